// SPDX-License-Identifier: Apache-2.0
//
// Where the passes of a node get their random numbers from: a seed and the number of the pass.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "cohort/data/core/internal/state.h"
#include "cohort/data/pipeline/internal/shuffle_random.h"

namespace cohort::internal {

/// Of one pass.
struct PassOrder {
  uint64_t seed = 0;
  uint64_t pass = 0;

  void save(StateWriter& out) const {
    out.put_int(static_cast<int64_t>(seed));
    out.put_int(static_cast<int64_t>(pass));
  }
  static PassOrder restored(StateReader& in) {
    const int64_t seed = in.get_int();
    return {static_cast<uint64_t>(seed), static_cast<uint64_t>(in.get_int())};
  }
};

/// Hands them out. Restoring an iterator sets what is next, so that later passes have the orders
/// they would have had. Threads: thread-safe.
class PassOrders {
 public:
  /// Without `each_its_own`, all passes have the same.
  PassOrders(uint64_t seed, bool each_its_own) : each_its_own_(each_its_own), next_{seed, 0} {}

  PassOrder take() {
    std::lock_guard lock(mutex_);
    const PassOrder order = next_;
    if (each_its_own_) ++next_.pass;
    return order;
  }
  PassOrder next() const {
    std::lock_guard lock(mutex_);
    return next_;
  }
  void set_next(const PassOrder& order) {
    std::lock_guard lock(mutex_);
    next_ = order;
  }

 private:
  const bool each_its_own_;
  mutable std::mutex mutex_;
  PassOrder next_;  ///< Guarded by mutex_.
};

/// A node whose passes take their orders from one place: what is next there is a part of what they
/// share.
template <class Base>
class WithPassOrders : public Base {
 public:
  template <class... Args>
  explicit WithPassOrders(std::shared_ptr<PassOrders> orders, Args&&... base)
      : Base(std::forward<Args>(base)...), orders_(std::move(orders)) {}

  void save_shared(StateWriter& out) const final {
    orders_->next().save(out);
    Base::save_shared(out);
  }
  void restore_shared(StateReader& in) const final {
    orders_->set_next(PassOrder::restored(in));
    Base::restore_shared(in);
  }

 protected:
  const std::shared_ptr<PassOrders>& orders() const { return orders_; }

 private:
  const std::shared_ptr<PassOrders> orders_;
};

/// The random numbers of one pass. Threads: one caller at a time.
class PassRandom {
 public:
  explicit PassRandom(std::shared_ptr<PassOrders> orders)
      : orders_(std::move(orders)), order_(orders_->take()), numbers_(order_.seed, order_.pass) {}

  uint64_t below(uint64_t bound) { return numbers_.below(bound); }
  /// Uniform in [0, 1).
  double part() {
    constexpr uint64_t kSteps = uint64_t{1} << 53;  // Every number of them is a double.
    return static_cast<double>(below(kSteps)) / kSteps;
  }
  void save(StateWriter& out) const {
    order_.save(out);
    orders_->next().save(out);
    out.put_int(static_cast<int64_t>(numbers_.drawn()));
  }
  void restore(StateReader& in) {
    order_ = PassOrder::restored(in);
    const PassOrder next = PassOrder::restored(in);
    numbers_ = ShuffleRandom(order_.seed, order_.pass);
    numbers_.skip_to(static_cast<uint64_t>(in.get_int()));
    // Not the pass after this one: others may have begun before the position was saved.
    orders_->set_next(next);
  }

 private:
  std::shared_ptr<PassOrders> orders_;
  PassOrder order_;
  ShuffleRandom numbers_;
};

}  // namespace cohort::internal
