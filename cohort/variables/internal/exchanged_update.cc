// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/exchanged_update.h"

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/process_mark.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/replica_group.h"

namespace cohort::internal::variables {

using update_rules::Rule;

namespace {

std::size_t checked_bucket(std::size_t bytes, int workers) {
  const std::size_t one = bytes / static_cast<std::size_t>(workers);
  return std::max(one / SliceImage::kBorder, std::size_t{1}) * SliceImage::kBorder;
}

bool clips_norms(const UpdaterOptions& options) {
  return options.clipnorm || options.global_clipnorm;
}

// Blocks of norms know no borders of regions; what needs them waits for all gradients anyway.
std::size_t region_bytes(const UpdaterOptions& options) {
  return clips_norms(options) ? std::numeric_limits<std::size_t>::max() : options.bytes_per_bucket;
}

}  // namespace

void ExchangedUpdate::Step::meet() const {
  if (group != nullptr) group->barrier();
}

ExchangedUpdate::ExchangedUpdate(const UpdateLayout& layout, const UpdaterOptions& options,
                                 std::shared_ptr<collectives::Communicator> communicator)
    : layout_(layout),
      options_(options),
      communicator_(std::move(communicator)),
      worker_(communicator_->rank()),
      workers_(communicator_->size()),
      bucket_bytes_(checked_bucket(options.bytes_per_bucket, workers_)),
      shares_(layout, workers_, region_bytes(options)),
      agreement_(layout, worker_, workers_),
      rows_(layout, shares_, *communicator_, clips_norms(options)),
      by_rows_(layout.variables().size(), false),
      departures_(layout, shares_, by_rows_),
      can_go_ahead_(!communicator_->shares_memory() && !clips_norms(options)),
      scales_(layout.variables().size(), 1),
      progress_(base::kept_to_this_process(
          std::make_unique<ProgressThread>([this] { move_on_beside(); }))) {
  const bool norms = clips_norms(options);
  std::size_t to_all = 0;
  std::size_t of_all = 0;
  for (int w = 0; w < workers_; ++w) {
    sent_.emplace_back(layout, shares_, w, norms ? update_rules::kSquareSumBlock : 0);
    kept_.emplace_back(layout, shares_, w, 0);
    to_all += sent_.back().bytes();
    of_all += kept_.back().bytes();
  }
  cut_buckets();
  const auto here = static_cast<std::size_t>(worker_);
  send_ = communicator_->allocate(to_all);
  receive_ = communicator_->allocate(sent_[here].bytes() * static_cast<std::size_t>(workers_));
  fresh_ = communicator_->allocate(of_all);
  std::byte* to = send_.get();
  for (std::size_t w = 0; w < sent_.size(); ++w) {
    to_.push_back(to);
    into_.push_back(w == here ? to : receive_.get() + w * sent_[here].bytes());
    to += sent_[w].bytes();
    fresh_at_.push_back(fresh(static_cast<int>(w)));
  }
  from_.assign(into_.begin(), into_.end());
  if (options.bfloat16_gradients) {
    rounded_ = std::make_unique<RoundedGradients>(*communicator_, sent_);
  }
  if (options.global_clipnorm) {
    of_runs_ = std::make_unique<NormBlocks>(layout, NormBlocks::Of::kRuns, workers_);
  }
  if (norms) {
    of_variables_ = std::make_unique<NormBlocks>(layout, NormBlocks::Of::kVariables, workers_);
  }
  make_slots(options.slot_initial.size());
  for (std::size_t v = 0; v < layout.variables().size(); ++v) {
    for (int s = 0; s < layout.slot_count(); ++s) {
      const double initial = options.slot_initial[static_cast<std::size_t>(s)];
      if (initial != 0) write_slot(v, s, scalar(initial));
    }
  }
}

// Nobody else reads them. In one piece, of which more is on huge pages.
void ExchangedUpdate::make_slots(std::size_t count) {
  const std::size_t bytes = kept_[static_cast<std::size_t>(worker_)].bytes();
  if (count == 0 || bytes == 0) return slots_.fill(std::vector<Memory>(count));
  const Device& host = runtime::host_device();
  const std::shared_ptr<runtime::Region> all =
      runtime::device_backend(host).reserve(host, slots_.size() * count * bytes);
  all->use(0, slots_.size() * count * bytes);
  std::byte* at = all->data();
  for (auto& set : slots_) {
    for (std::size_t s = 0; s < count; ++s, at += bytes) set.emplace_back(all, at);
  }
}

void guard_update(collectives::Communicator& communicator, base::FunctionRef<void()> body) {
  try {
    body();
  } catch (const runtime::PeerFailed&) {
    throw;
  } catch (...) {
    communicator.abort(std::current_exception(), kApplyGradients);
    communicator.check();  // throws the first failure of all
    throw;
  }
}

void ExchangedUpdate::run(Posts posts, int replica, runtime::ReplicaGroup* group, const Rule& rule,
                          double weight_decay) {
  const std::exception_ptr stopped_by = progress_->pause();  // ahead of what it changes
  Step step{posts, replica, group, rule, weight_decay, departures_.left()};
  if (step.turns_left && step.leads()) pass_took_ = Clock::now() - pass_began_;
  if (step.turns_left && ahead_) step.turns_ahead = ahead_->turns;
  Flight flight;
  try {
    if (stopped_by) std::rethrow_exception(stopped_by);
    exchange_gradients(step, flight);
    update_slices(step, flight);
  } catch (const runtime::PeerFailed&) {
    throw;
  } catch (...) {
    // Before the flight is dropped, which would be the others' reason.
    communicator_->abort(std::current_exception(), kApplyGradients);
    throw;
  }
  step.meet();
  adopt(step);
}

void ExchangedUpdate::exchange_gradients(const Step& step, Flight& flight) {
  // Behind all buckets where some may have left: the order is every worker's.
  const bool agrees_first = !step.turns_left;
  const auto agree = [&] { flight.agreement = agreement_.exchange(*communicator_); };
  if (step.leads()) {
    take_over(step, flight);
    rows_.begin(step.posts);
    agreement_.write(step.posts, rows_.counts(), {step.rule, step.weight_decay},
                     step.turns_ahead ? &ahead_->by : nullptr);
    if (agrees_first) agree();
  }
  for (std::size_t turn = step.turns_left.value_or(0); turn < turns(); ++turn) {
    if (step.posts.size() == 1) find_loans(step.posts, turn);
    for (std::size_t b = first_buckets_[turn]; b < first_buckets_[turn + 1]; ++b) {
      pack(step, b);
      step.meet();
      if (!step.leads()) continue;
      base::failpoint("update.before_bucket");
      flight.gradients.push_back(send(b, step.turns_ahead.has_value()));
    }
  }
  if (!step.leads()) return;
  if (!agrees_first) agree();
  flight.agreement.wait();
  agreement_.conclude();
  rows_.exchange(step.posts, agreement_, by_rows_);
}

void ExchangedUpdate::update_turn(const Step& step, Flight& flight, std::size_t turn) {
  const bool norms = of_variables_ != nullptr;
  for (std::size_t b = first_buckets_[turn]; b < first_buckets_[turn + 1]; ++b) {
    if (step.leads() && !norms) receive(flight.gradients[b], b);
    step.meet();
    base::failpoint("update.before_rule");
    update(step, share_of_bytes(bucket_of(kept_buckets_[static_cast<std::size_t>(worker_)], b),
                                step.replica, layout_.replicas()));
    step.meet();
    if (step.leads()) flight.parameters.push_back(gather(b, step.turns_ahead.has_value()));
  }
}

// All have sent all parameters, which are not what they should be.
void ExchangedUpdate::update_again(Step step, Flight& flight) {
  for (auto& dropped : flight.parameters) dropped.wait();
  flight.parameters.clear();
  step.turns_ahead.reset();
  for (std::size_t turn = 0; turn < turns(); ++turn) update_turn(step, flight, turn);
}

void ExchangedUpdate::update_slices(const Step& step, Flight& flight) {
  if (of_variables_ != nullptr) {
    // Nothing is written before all norms are known.
    for (std::size_t b = 0; b < flight.gradients.size(); ++b) receive(flight.gradients[b], b);
    step.meet();
    share_norms(step);
  }
  for (std::size_t turn = step.turns_ahead.value_or(0); turn < turns(); ++turn) {
    update_turn(step, flight, turn);
  }
  if (step.turns_ahead) {
    step.meet();  // what workers have agreed on is for all replicas
    if (!agreement_.holds_ahead()) update_again(step, flight);
  }
  if (!step.leads()) return;
  if (!rows_.empty()) update_rows(step);
  find_parameters(flight);
  base::failpoint("update.before_commit");
  communicator_->commit();
  base::failpoint("update.after_commit");
  live_ = 1 - live_;
  conclude_departures();
}

void ExchangedUpdate::update_rows(const Step& step) {
  const auto scale = [&](std::size_t v) { return scale_ * scales_[v]; };
  const auto place = [&](int slot, int set, std::size_t run, std::size_t element) {
    return slot_place(slot, set, run, element);
  };
  rows_.update(step.rule, options_, step.weight_decay, scale, live_, place);
  rows_.gather();
}

void ExchangedUpdate::cut_buckets() {
  const auto travels = [&](std::size_t v) { return !by_rows_[v]; };
  sent_buckets_.clear();
  kept_buckets_.clear();
  buckets_ = 0;
  sent_buckets_.resize(sent_.size());
  kept_buckets_.resize(sent_.size());
  first_buckets_.assign(1, 0);
  const auto add = [](std::vector<Range>& to, const std::vector<Range>& more) {
    to.insert(to.end(), more.begin(), more.end());
    return to.size();
  };
  for (std::size_t region = shares_.regions(); region-- > 0;) {
    for (std::size_t w = 0; w < sent_.size(); ++w) {
      buckets_ =
          std::max({buckets_, add(sent_buckets_[w], sent_[w].cut(region, bucket_bytes_, travels)),
                    add(kept_buckets_[w], kept_[w].cut(region, bucket_bytes_, travels))});
    }
    for (std::size_t w = 0; w < sent_.size(); ++w) {
      sent_buckets_[w].resize(buckets_);
      kept_buckets_[w].resize(buckets_);
    }
    first_buckets_.push_back(buckets_);
  }
  loans_.assign(buckets_ * sent_.size(), nullptr);
  gradients_seen_.resize(buckets_ * sent_.size());
  parameters_seen_.resize(buckets_ * sent_.size());
}

// What has been rows is expected to be rows in the next step.
void ExchangedUpdate::note_rows() {
  bool changes = false;
  for (std::size_t v = 0; v < by_rows_.size(); ++v) {
    const bool now = agreement_.is_present(v) ? agreement_.has_rows(v) : by_rows_[v];
    changes = changes || now != by_rows_[v];
    by_rows_[v] = now;
  }
  if (changes) cut_buckets();
}

// This replica's share of what a bucket takes to each worker.
void ExchangedUpdate::pack(const Step& step, std::size_t bucket) {
  for (std::size_t w = 0; w < sent_.size(); ++w) {
    if (static_cast<int>(w) == worker_ && has_own_in_place(step)) continue;
    if (loan(bucket, w) != nullptr) continue;
    const Range bytes =
        share_of_bytes(bucket_of(sent_buckets_[w], bucket), step.replica, layout_.replicas());
    pack_for(w, step.posts, bytes);
  }
}

void ExchangedUpdate::pack_for(std::size_t worker, Posts posts, Range bytes) {
  const bool is_copy = communicator_->shares_memory() && posts.size() == 1;
  if (is_copy && static_cast<int>(worker) != worker_) communicator_->note_copied(bytes.size());
  sent_[worker].for_each(bytes, [&](std::size_t run, Range elements, std::size_t at) {
    sum(posts, layout_.runs()[run], elements, to_[worker] + at);
  });
  if (rounded_) rounded_->round(static_cast<int>(worker), to_[worker], bytes);
}

// The local replicas' gradients of some elements of a run, in replica order. Zero where none of
// them has one; whoever receives it knows.
void ExchangedUpdate::sum(Posts posts, const UpdateRun& run, Range elements, std::byte* out) const {
  const std::size_t width = run.element_size;
  const auto add = [&](std::size_t variable, Range part, std::size_t begin) {
    c10::SmallVector<const void*, 8> from;
    for (const Post& post : posts) {
      const std::byte* gradient = post.gradients[variable];
      if (gradient != nullptr) from.push_back(gradient + (part.begin - begin) * width);
    }
    std::byte* const to = out + (part.begin - elements.begin) * width;
    if (from.empty()) {
      std::memset(to, 0, part.size() * width);
    } else if (from.size() == 1) {
      std::memcpy(to, from[0], part.size() * width);
    } else {
      void* const outs[] = {to};
      reductions::reduce_range({.op = ReduceOp::kSum,
                                .dtype = run.arena->dtype(),
                                .sources = {from.data(), from.size()},
                                .outs = outs,
                                .begin = 0,
                                .end = static_cast<int64_t>(part.size())});
    }
  };
  if (std::all_of(posts.begin(), posts.end(), [](const Post& p) { return p.full; })) {
    return add(run.members.front(), elements, 0);
  }
  for (const std::size_t v : run.members) {
    const std::size_t begin = layout_.offset_in_run(v);
    const Range part = elements.intersect({begin, begin + layout_.padded_size(v)});
    if (!part.empty()) add(v, part, begin);
  }
}

// One replica's gradients need no sum, and lie as the runs do, which is seen behind the pass.
bool ExchangedUpdate::has_own_in_place(const Step& step) const {
  return step.posts.size() == 1 && step.posts[0].full && !rounded_ && !step.turns_ahead;
}

std::span<collectives::ConstBytes> ExchangedUpdate::seen(Seen& all, std::size_t bucket) const {
  return std::span(all).subspan(bucket * sent_.size(), sent_.size());
}

void ExchangedUpdate::receive(collectives::Communicator::Pending& gradients, std::size_t bucket) {
  gradients.wait();
  const std::size_t begin =
      bucket_of(sent_buckets_[static_cast<std::size_t>(worker_)], bucket).begin;
  const std::span<const collectives::ConstBytes> at = seen(gradients_seen_, bucket);
  for (std::size_t w = 0; w < at.size(); ++w) {
    if (at[w].empty()) continue;
    // Of a turn, all buckets of a worker are in one place: its memory, or this worker's.
    if (rounded_) {
      RoundedGradients::widen(at[w], into_[w] + begin);
    } else {
      from_[w] = at[w].data() - begin;
    }
  }
}

std::optional<uint64_t> ExchangedUpdate::place_of(std::size_t bucket, bool of_parameters,
                                                  bool is_ahead) const {
  if (!is_ahead) return std::nullopt;
  return ahead_->first_place + 2 * bucket + (of_parameters ? 1 : 0);
}

collectives::Communicator::Pending ExchangedUpdate::send(std::size_t bucket, bool is_ahead) {
  std::vector<collectives::ConstBytes> to;
  std::vector<collectives::Bytes> from;
  const Range mine = bucket_of(sent_buckets_[static_cast<std::size_t>(worker_)], bucket);
  for (std::size_t w = 0; w < sent_.size(); ++w) {
    const Range theirs = bucket_of(sent_buckets_[w], bucket);
    if (rounded_) {
      to.push_back(rounded_->to(static_cast<int>(w), theirs));
      from.push_back(rounded_->from(static_cast<int>(w), mine));
      continue;
    }
    const std::byte* const lent = loan(bucket, w);
    to.emplace_back(lent != nullptr ? lent : to_[w] + theirs.begin, theirs.size());
    from.emplace_back(into_[w] + mine.begin, mine.size());
  }
  return communicator_->start_lend(to, from, seen(gradients_seen_, bucket),
                                   {.tag = bucket, .place = place_of(bucket, false, is_ahead)});
}

// Whose gradients of an element have arrived, in rank order.
ExchangedUpdate::Sources ExchangedUpdate::sources(const Step& step, std::size_t run,
                                                  std::size_t element,
                                                  const std::size_t* variable) const {
  const std::size_t place = sent_[static_cast<std::size_t>(worker_)].place_of(run, element);
  Sources out;
  for (int w = 0; w < workers_; ++w) {
    if (variable != nullptr && !agreement_.has_gradient(w, *variable)) continue;
    if (w == worker_ && has_own_in_place(step)) {
      const UpdateRun& of = layout_.runs()[run];
      out.push_back(step.posts[0].gradients[of.members.front()] + element * of.element_size);
      continue;
    }
    out.push_back(from_[static_cast<std::size_t>(w)] + place);
  }
  return out;
}

std::byte* ExchangedUpdate::slot_data(int slot, int set) const {
  return slots_[static_cast<std::size_t>(set)][static_cast<std::size_t>(slot)].get();
}

// Of an element of this worker's slice.
std::byte* ExchangedUpdate::slot_place(int slot, int set, std::size_t run,
                                       std::size_t element) const {
  return slot_data(slot, set) + kept_[static_cast<std::size_t>(worker_)].place_of(run, element);
}

// New parameters of a worker's slice.
std::byte* ExchangedUpdate::fresh(int worker) const {
  std::byte* at = fresh_.get();
  for (int w = 0; w < worker; ++w) at += kept_[static_cast<std::size_t>(w)].bytes();
  return at;
}

collectives::Communicator::Pending ExchangedUpdate::gather(std::size_t bucket, bool is_ahead) {
  std::vector<collectives::Bytes> from;
  for (int w = 0; w < workers_; ++w) {
    const Range bytes = bucket_of(kept_buckets_[static_cast<std::size_t>(w)], bucket);
    from.emplace_back(fresh(w) + bytes.begin, bytes.size());
  }
  return communicator_->start_lend_to_all(
      from[static_cast<std::size_t>(worker_)], from, seen(parameters_seen_, bucket),
      {.tag = bucket, .place = place_of(bucket, true, is_ahead)});
}

void ExchangedUpdate::find_parameters(Flight& flight) {
  for (std::size_t b = 0; b < flight.parameters.size(); ++b) {
    flight.parameters[b].wait();
    const std::span<const collectives::ConstBytes> at = seen(parameters_seen_, b);
    for (std::size_t w = 0; w < at.size(); ++w) {
      if (!at[w].empty()) fresh_at_[w] = at[w].data() - bucket_of(kept_buckets_[w], b).begin;
    }
  }
}

// The new parameters become this replica's own. Nothing here can fail.
void ExchangedUpdate::adopt(const Step& step) {
  const bool shared = layout_.shares_parameters();
  const bool all = agreement_.all_present() && rows_.empty();
  for (int w = 0; w < workers_; ++w) {
    const SliceImage& image = kept_[static_cast<std::size_t>(w)];
    const std::byte* const from = fresh_at_[static_cast<std::size_t>(w)];
    const Range bytes{0, image.bytes()};
    image.for_each(
        shared ? share_of_bytes(bytes, step.replica, layout_.replicas()) : bytes,
        [&](std::size_t r, Range elements, std::size_t at) {
          const UpdateRun& run = layout_.runs()[r];
          const auto copy = [&](Range part) {
            runtime::copy_memory(run.device(step.replica),
                                 run.parameters(step.replica) + part.begin * run.element_size,
                                 runtime::host_device(),
                                 from + at + (part.begin - elements.begin) * run.element_size,
                                 part.size() * run.element_size);
          };
          if (all) return copy(elements);
          for (const std::size_t v : run.members) {
            const std::size_t begin = layout_.offset_in_run(v);
            const Range part = elements.intersect({begin, begin + layout_.padded_size(v)});
            if (!part.empty() && agreement_.is_present(v) && !rows_.takes(v)) copy(part);
          }
        });
  }
  if (!shared || step.leads()) rows_.adopt(step.replica);
  if (step.leads()) {
    rows_.adopt_slots([&](int slot, int set, std::size_t run, std::size_t element) {
      return slot_place(slot, set, run, element);
    });
    note_rows();
  }
  if (shared) step.meet();
}

}  // namespace cohort::internal::variables
