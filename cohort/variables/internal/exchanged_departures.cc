// SPDX-License-Identifier: Apache-2.0
//
// How an exchanged update sends buckets away while backward passes still run.
#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/scope_exit.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {

FinalGradients* ExchangedUpdate::expect(int replica, uint64_t stamp) {
  if (replica == 0) before_pass_ = {communicator_->generation(), communicator_->operations()};
  if (!may_leave_) return nullptr;
  departures_.expect(replica, stamp);
  return this;
}

// One replica at a time sends and moves, whichever comes: the others go on with their passes.
void ExchangedUpdate::on_final(Component& leaf, const Tensor& gradient) {
  departures_.announce(std::max(0, current_replica()), leaf, gradient);
  leave_in_turn();
  if (!departures_.begin_moving()) return;
  {
    const base::ScopeExit ended([&] { departures_.end_turn(false); });
    communicator_->go_on();
  }
  leave_in_turn();  // what others have announced meanwhile
}

void ExchangedUpdate::leave_in_turn() {
  while (const auto turn = departures_.begin_turn()) {
    bool left = false;
    const base::ScopeExit ended([&] { departures_.end_turn(left); });
    leave(*turn);
    left = true;
  }
}

void ExchangedUpdate::leave(std::size_t turn) {
  const runtime::FlushDenormals flush;
  const Posts posts = departures_.posts();
  if (turn == 0) left_.clear();  // of a step that has failed
  for (std::size_t b = first_buckets_[turn]; b < first_buckets_[turn + 1]; ++b) {
    for (std::size_t w = 0; w < sent_.size(); ++w) {
      // Read in its place, if the step leaves it there.
      const bool is_in_place = static_cast<int>(w) == worker_ && posts.size() == 1 && !rounded_;
      if (!is_in_place) pack_for(w, posts, bucket_of(sent_buckets_[w], b));
    }
    base::failpoint("update.before_bucket");
    left_.push_back(send(b));
  }
}

void ExchangedUpdate::on_failure(const std::exception_ptr& error) noexcept {
  const bool has_left = departures_.left().value_or(0) > 0;
  departures_.end();
  if (!has_left) return;
  try {
    std::rethrow_exception(error);
  } catch (const runtime::PeerFailed&) {
    // The replica that has failed says so.
  } catch (...) {
    communicator_->abort(error, kApplyGradients);
  }
}

// Behind the posts' meeting: nobody announces any more.
void ExchangedUpdate::take_over(const Step& step, Flight& flight) {
  operations_at_run_ = communicator_->operations();
  buckets_left_ = 0;
  if (!step.turns_left) return left_.clear();  // of a step that has failed
  const Posts announced = departures_.posts();
  for (std::size_t v = 0; v < by_rows_.size(); ++v) {
    if (by_rows_[v] || departures_.turn_of(v) >= *step.turns_left) continue;
    for (std::size_t r = 0; r < announced.size(); ++r) {
      COHORT_CHECK(announced[r].gradients[v] == step.posts[r].gradients[v],
                   "another gradient than was sent");
    }
  }
  buckets_left_ = first_buckets_[*step.turns_left];
  const auto here = static_cast<std::size_t>(worker_);
  if (step.posts.size() == 1 && !has_own_in_place(step) && !rounded_) {
    for (std::size_t b = 0; b < buckets_left_; ++b) {
      pack_for(here, step.posts, bucket_of(sent_buckets_[here], b));
    }
  }
  flight.gradients = std::move(left_);
  left_.clear();
}

// Collectives of the pass could come before a bucket on one worker, and behind it on another.
void ExchangedUpdate::conclude_departures() {
  // One of an earlier generation was before a pass that has failed.
  if (before_pass_ && before_pass_->generation == communicator_->generation()) {
    may_leave_ = operations_at_run_ - before_pass_->operations == buckets_left_;
  }
  before_pass_.reset();
  departures_.end();
}

}  // namespace cohort::internal::variables
