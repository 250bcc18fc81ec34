// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/distributed_dataset.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/data/core/internal/rows/upload.h"
#include "cohort/data/pipeline/internal/replica_nodes.h"
#include "cohort/strategy/internal/reduce.h"
#include "cohort/strategy/strategy_extended.h"

namespace cohort {
namespace {

constexpr const char* kNext = "[distributed_iterator.next] ";

}  // namespace

class DistributedIterator::State {
 public:
  State(std::shared_ptr<const internal::strategy::DistributedInput> input, Iterator steps)
      : input_(std::move(input)), steps_(std::move(steps)) {
    if (input_->common_workers == nullptr) return;
    others_ = input_->common_workers->reach(kNext).others;
    generation_ = others_->generation();
  }

  std::optional<PerReplica<Element>> next();
  std::optional<Element> next_step();
  std::string save() { return steps_.save(); }
  void restore(std::string_view state) {
    steps_.restore(state);
    ended_ = false;
    taken_ = 0;
  }
  const internal::strategy::DistributedInput& input() const { return *input_; }
  Iterator& steps() { return steps_; }

 private:
  void upload(std::vector<Element>& parts) const;
  std::optional<Element> agreed(std::optional<Element> step);
  void catch_up();
  void skip();

  const std::shared_ptr<const internal::strategy::DistributedInput> input_;
  Iterator steps_;
  Element empty_step_;  // as the steps so far; only where workers agree on the end
  bool ended_ = false;
  internal::collectives::Communicator* others_ =
      nullptr;               // set where all workers read the same steps
  uint64_t generation_ = 0;  // of theirs, in which they have agreed on the next step
  int64_t taken_ = 0;        // steps, since the iterator was made or restored
};

// A failure is thrown by one worker in the step that failed and by another perhaps in the next one,
// for which it has read already. So all go on behind the last step that anyone has read.
void DistributedIterator::State::catch_up() {
  if (others_ == nullptr) return;
  if (!others_->failed() && others_->generation() == generation_) return;
  others_->take_turn(kNext, [&] {
    const std::vector<std::byte> all =
        internal::collectives::gather_bytes(*others_, kNext, std::as_bytes(std::span(&taken_, 1)));
    int64_t most = taken_;
    for (std::size_t at = 0; at < all.size(); at += sizeof most) {
      int64_t taken = 0;
      std::memcpy(&taken, all.data() + at, sizeof taken);
      most = std::max(most, taken);
    }
    if (taken_ < most) {
      COHORT_LOG(kWarning, kNext, "left out ", most - taken_,
                 " steps, which another worker had read when a step failed");
    }
    while (taken_ < most) skip();
    generation_ = others_->generation();
  });
}

void DistributedIterator::State::skip() {
  ++taken_;
  try {
    if (!ended_) steps_.next();
  } catch (const std::exception&) {
    // It took the place of a step, and is lost with it.
  }
}

std::optional<PerReplica<Element>> DistributedIterator::State::next() {
  internal::strategy::check_cross_replica(kNext);
  catch_up();
  if (ended_) return std::nullopt;
  ++taken_;
  std::optional<Element> step;
  const auto read = [&] { step = next_step(); };
  input_->guarded ? input_->guarded(read) : read();
  if (!step) {
    ended_ = true;
    return std::nullopt;
  }
  std::vector<Element> parts;
  if (input_->is_plain) {
    parts.push_back(std::move(*step));
  } else {
    parts.reserve(step->size());
    for (std::size_t i = 0; i < step->size(); ++i) parts.push_back((*step)[i]);
  }
  if (input_->uploads) upload(parts);
  return PerReplica<Element>::placed(std::move(parts), input_->devices);
}

// On the thread that calls run next, whose stream waits for the copies: not in the one that reads.
void DistributedIterator::State::upload(std::vector<Element>& parts) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Device& device = (*input_->devices)[i];
    if (device.kind() == DeviceKind::kCpu) continue;
    parts[i] = internal::data::uploaded(device, parts[i]);
  }
}

std::optional<Element> DistributedIterator::State::next_step() {
  internal::base::failpoint("data.next");
  std::optional<Element> step = steps_.next();
  return input_->any_worker ? agreed(std::move(step)) : step;
}

/// The step; one without rows if only others have more; nullopt if nobody has.
std::optional<Element> DistributedIterator::State::agreed(std::optional<Element> step) {
  if (!input_->any_worker(step.has_value())) return std::nullopt;
  if (!step) {
    if (empty_step_.has_value()) return empty_step_;
    return internal::data::without_rows(input_->steps.element_spec(), kNext);
  }
  if (!empty_step_.has_value()) empty_step_ = internal::data::without_rows(*step);
  return step;
}

/// Of several workers a value of all, or of each.
class DistributedIterator::TrackedSteps final : public Trackable {
 public:
  explicit TrackedSteps(const std::shared_ptr<State>& state)
      : state_(state), position_(trackable_position<State>(state)) {}

  TrackedParts parts() const override {
    TrackedParts parts = position_->parts();
    const std::shared_ptr<State> state = state_.lock();
    if (state == nullptr) return parts;
    parts.group = state->input().group;
    for (TrackedValue& value : parts.values) {
      if (state->input().is_common) value.group = parts.group;
    }
    return parts;
  }

 private:
  const std::weak_ptr<State> state_;
  const std::shared_ptr<Trackable> position_;
};

DistributedIterator::DistributedIterator(
    std::shared_ptr<const internal::strategy::DistributedInput> input, Iterator steps)
    : state_(std::make_shared<State>(std::move(input), std::move(steps))) {}

std::optional<PerReplica<Element>> DistributedIterator::next() { return use().next(); }
const ElementSpec& DistributedIterator::element_spec() const { return use().input().element_spec; }
std::string DistributedIterator::save() { return use().save(); }
void DistributedIterator::restore(std::string_view state) { use().restore(state); }
void DistributedIterator::cancel() { use().steps().cancel(); }
PipelineReport DistributedIterator::report() const { return use().steps().report(); }
std::shared_ptr<Trackable> DistributedIterator::trackable() const {
  return std::make_shared<TrackedSteps>(internal::base::held(state_, "DistributedIterator"));
}

PerReplica<Element> DistributedIterator::get_next() {
  use();
  std::optional<PerReplica<Element>> step = next();
  if (!step) {
    throw Error(ErrorCode::kOutOfRange,
                "[distributed_iterator.get_next] expected another step, got the end of the data; "
                "get_next_as_optional() says so without an error");
  }
  return std::move(*step);
}

DistributedIterator DistributedDataset::make_iterator() const {
  const Dataset& steps = input().steps;
  return DistributedIterator(input_, steps.make_iterator());
}

DistributedIterator DistributedDataset::make_iterator(std::string_view state) const {
  const Dataset& steps = input().steps;
  return DistributedIterator(input_, steps.make_iterator(state));
}

internal::data::RangeIterator<PerReplica<Element>, DistributedIterator> DistributedDataset::begin()
    const {
  input();
  return internal::data::RangeIterator<PerReplica<Element>, DistributedIterator>(make_iterator());
}

std::ostream& operator<<(std::ostream& out, const DistributedDataset& dataset) {
  return out << "<DistributedDataset for " << dataset.num_replicas() << " replicas of "
             << dataset.element_spec() << ">";
}

}  // namespace cohort
