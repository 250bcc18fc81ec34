// SPDX-License-Identifier: Apache-2.0
//
// Where the passes of a node get their random numbers from: a seed and the number of the pass.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "cohort/base/mutex.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/data/pipeline/internal/shuffle_random.h"

namespace cohort::internal::data {

/// Without one that is given: one that follows from set_seed and the number of seeds drawn since,
/// if set_seed was called, and else another one every time.
uint64_t seed_or_default(std::optional<uint64_t> given);

/// Of one pass.
struct IterationSeed {
  uint64_t seed = 0;
  uint64_t pass = 0;

  void save(StateWriter& out) const {
    out.put_int(static_cast<int64_t>(seed));
    out.put_int(static_cast<int64_t>(pass));
  }
  static IterationSeed restored(StateReader& in) {
    const int64_t seed = in.get_int();
    return {static_cast<uint64_t>(seed), static_cast<uint64_t>(in.get_int())};
  }
};

/// Hands them out. Restoring an iterator sets what is next, so that later passes draw what they
/// would have drawn. Threads: thread-safe.
class IterationSeeds {
 public:
  /// Without `each_its_own`, all passes have the same.
  IterationSeeds(uint64_t seed, bool each_its_own) : each_its_own_(each_its_own), next_{seed, 0} {}

  IterationSeed take() {
    const base::MutexLock lock(mutex_);
    const IterationSeed seed = next_;
    if (each_its_own_) ++next_.pass;
    return seed;
  }
  IterationSeed next() const {
    const base::MutexLock lock(mutex_);
    return next_;
  }
  void set_next(const IterationSeed& seed) {
    const base::MutexLock lock(mutex_);
    next_ = seed;
  }

 private:
  const bool each_its_own_;
  mutable base::Mutex mutex_;
  IterationSeed next_ COHORT_GUARDED_BY(mutex_);
};

/// A node whose passes draw: the seed of the next one is a part of what they share. A copy of the
/// node begins with the first seed again.
template <class Base>
class WithIterationSeeds : public Base {
 public:
  template <class... Args>
  WithIterationSeeds(uint64_t seed, bool each_its_own, Args&&... base)
      : Base(std::forward<Args>(base)...),
        seeds_(std::make_shared<IterationSeeds>(seed, each_its_own)) {}

  const std::shared_ptr<IterationSeeds>& seeds() const { return seeds_; }
  std::optional<uint64_t> next_seed() const final { return seeds_->next().seed; }
  void save_shared(StateWriter& out) const final {
    seeds_->next().save(out);
    Base::save_shared(out);
  }
  void restore_shared(StateReader& in) const final {
    seeds_->set_next(IterationSeed::restored(in));
    Base::restore_shared(in);
  }

 private:
  const std::shared_ptr<IterationSeeds> seeds_;
};

/// The random numbers of one pass. Threads: one caller at a time.
class IterationRandom {
 public:
  explicit IterationRandom(std::shared_ptr<IterationSeeds> seeds)
      : seeds_(std::move(seeds)), seed_(seeds_->take()), numbers_(seed_.seed, seed_.pass) {}

  uint64_t below(uint64_t bound) { return numbers_.below(bound); }
  /// Uniform in [0, 1).
  double part() {
    constexpr uint64_t kSteps = uint64_t{1} << 53;  // Every number of them is a double.
    return static_cast<double>(below(kSteps)) / kSteps;
  }
  void save(StateWriter& out) const {
    seed_.save(out);
    seeds_->next().save(out);
    out.put_int(static_cast<int64_t>(numbers_.drawn()));
  }
  void restore(StateReader& in) {
    seed_ = IterationSeed::restored(in);
    const IterationSeed next = IterationSeed::restored(in);
    numbers_ = ShuffleRandom(seed_.seed, seed_.pass);
    numbers_.skip_to(static_cast<uint64_t>(in.get_int()));
    // Not the pass after this one: others may have begun before the position was saved.
    seeds_->set_next(next);
  }

 private:
  std::shared_ptr<IterationSeeds> seeds_;
  IterationSeed seed_;
  ShuffleRandom numbers_;
};

}  // namespace cohort::internal::data
