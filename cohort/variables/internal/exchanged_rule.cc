// SPDX-License-Identifier: Apache-2.0
//
// How an exchanged update runs the rule: beside what is live, which stays as it is.
#include <cstring>

#include "cohort/update_rules/update.h"
#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {

namespace {

// Of parameters and of each slot; whole lines, so that no part begins within one.
constexpr std::size_t kCopied = std::size_t{8} << 10;

}  // namespace

// Of this worker's slice: the rule beside what is live. Where it does not run on all elements
// alike, on copies, so much at a time that they are still in the cache.
void ExchangedUpdate::update(const Step& step, Range bytes) {
  const bool at_once = step.turns_ahead || (is_full() && !options_.clipnorm);
  kept_[static_cast<std::size_t>(worker_)].for_each(
      bytes, [&](std::size_t r, Range elements, std::size_t at) {
        if (at_once) return update_beside(step, r, elements, at);
        const std::size_t width = layout_.runs()[r].element_size;
        for (std::size_t begin = elements.begin; begin < elements.end; begin += kCopied / width) {
          const Range part = elements.intersect({begin, begin + kCopied / width});
          update_copy(step, r, part, at + (begin - elements.begin) * width);
        }
      });
}

void ExchangedUpdate::copy_parameters(const Step& step, std::size_t r, Range elements,
                                      std::size_t at) {
  const UpdateRun& run = layout_.runs()[r];
  const std::size_t width = run.element_size;
  runtime::copy_memory(runtime::host_device(), fresh(worker_) + at, run.device(step.replica),
                       run.parameters(step.replica) + elements.begin * width,
                       elements.size() * width);
}

// Elements of a run in a row, read where they are live.
void ExchangedUpdate::update_beside(const Step& step, std::size_t r, Range elements,
                                    std::size_t at) {
  const UpdateRun& run = layout_.runs()[r];
  const std::size_t width = run.element_size;
  const Sources from = sources(step, r, elements.begin, nullptr);
  RangeUpdate call = copies_at(r, elements, from, at);
  call.from_parameters = run.parameters(step.replica) + elements.begin * width;
  if (!run.device(step.replica).at_device().is_cpu()) {
    copy_parameters(step, r, elements, at);
    call.from_parameters = call.parameters;
  }
  for (int s = 0; s < layout_.slot_count(); ++s) {
    const std::byte* const live = slot_data(s, live_) + at;
    call.from_slots[static_cast<std::size_t>(s)] = live;
    if (update_rules::uses_slot(step.rule, static_cast<std::size_t>(s))) continue;
    std::memcpy(slot_data(s, 1 - live_) + at, live, elements.size() * width);
  }
  apply_rule(step, run, call, scale_);
}

void ExchangedUpdate::update_copy(const Step& step, std::size_t r, Range elements, std::size_t at) {
  const UpdateRun& run = layout_.runs()[r];
  const std::size_t width = run.element_size;
  copy_parameters(step, r, elements, at);
  for (int s = 0; s < layout_.slot_count(); ++s) {
    std::memcpy(slot_data(s, 1 - live_) + at, slot_data(s, live_) + at, elements.size() * width);
  }
  for (const std::size_t v : run.members) {
    const std::size_t begin = layout_.offset_in_run(v);
    const Range part = elements.intersect({begin, begin + layout_.padded_size(v)});
    if (part.empty() || !agreement_.is_present(v) || rows_.takes(v)) continue;
    const Sources from = sources(step, r, part.begin, &v);
    apply_rule(step, run, copies_at(r, part, from, at + (part.begin - elements.begin) * width),
               scale_ * scales_[v]);
  }
}

// What the rule writes of elements of this worker's slice, which are the image's from `at` on.
RangeUpdate ExchangedUpdate::copies_at(std::size_t r, Range elements, const Sources& sources,
                                       std::size_t at) const {
  RangeUpdate call{.dtype = layout_.runs()[r].arena->dtype(),
                   .parameters = fresh(worker_) + at,
                   .sources = {sources.data(), sources.size()},
                   .begin = 0,
                   .end = elements.size()};
  for (int s = 0; s < layout_.slot_count(); ++s) {
    call.slots[static_cast<std::size_t>(s)] = slot_data(s, 1 - live_) + at;
  }
  return call;
}

// The copies are in the communicator's memory, which is the host's.
void ExchangedUpdate::apply_rule(const Step& step, const UpdateRun& run, const RangeUpdate& call,
                                 double scale) const {
  update_rules::UpdateOptions how = update_options(options_, run, step.weight_decay);
  how.gradient_scale = scale;
  update_kernels(runtime::host_device()).update(call, step.rule, how);
}

}  // namespace cohort::internal::variables
