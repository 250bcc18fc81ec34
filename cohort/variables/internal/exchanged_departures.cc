// SPDX-License-Identifier: Apache-2.0
//
// How an exchanged update sends buckets away while backward passes still run.
#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/scope_exit.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {

FinalGradients* ExchangedUpdate::expect(int replica, uint64_t stamp,
                                        base::FunctionRef<RuleOfStep()> rule) {
  if (replica == 0) {
    static_cast<void>(progress_->pause());  // of a pass whose end nobody was told of
    ahead_.reset();
    if (may_leave_ && goes_ahead_) {
      ahead_.emplace(Ahead{.by = rule(), .first_place = communicator_->reserve(2 * buckets())});
    }
    before_pass_ = {communicator_->generation(), communicator_->operations()};
    pass_began_ = Clock::now();
  }
  if (!may_leave_) return nullptr;
  departures_.expect(replica, stamp);
  // Where places are reserved, it does not matter what is between two operations. A pass as short
  // as the last one may be over before the thread looks.
  if (replica == 0 && ahead_ && pass_took_ > 2 * ProgressThread::kTick) progress_->resume();
  return this;
}

void ExchangedUpdate::on_final(Component& leaf, const Tensor& gradient) {
  departures_.announce(std::max(0, current_replica()), leaf, gradient);
  move_on();
}

// One thread at a time sends and moves, whichever comes: replicas go on with their passes.
void ExchangedUpdate::move_on() {
  leave_in_turn();
  if (!departures_.begin_moving()) return;
  {
    const base::ScopeExit ended([&] { departures_.end_turn(false); });
    communicator_->go_on();
    go_ahead();
  }
  leave_in_turn();  // what others have announced meanwhile
}

// The others hear at once of what has failed here; this worker throws it behind its pass.
void ExchangedUpdate::move_on_beside() {
  communicator_->beside_turn([this] {
    try {
      move_on();
    } catch (...) {
      communicator_->abort(std::current_exception(), kApplyGradients);
      throw;
    }
  });
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
  if (posts.size() == 1) find_loans(posts, turn);
  for (std::size_t b = first_buckets_[turn]; b < first_buckets_[turn + 1]; ++b) {
    for (std::size_t w = 0; w < sent_.size(); ++w) {
      // Read in its place, if the step leaves it there.
      const bool is_in_place =
          static_cast<int>(w) == worker_ && posts.size() == 1 && !rounded_ && !ahead_;
      if (!is_in_place && loan(b, w) == nullptr) pack_for(w, posts, bucket_of(sent_buckets_[w], b));
    }
    base::failpoint("update.before_bucket");
    left_.push_back(send(b, ahead_.has_value()));
  }
}

// Updates the turns whose gradients have come, and sends their new parameters.
void ExchangedUpdate::go_ahead() {
  const runtime::FlushDenormals flush;
  const std::size_t left = departures_.left().value_or(0);
  for (; ahead_ && ahead_->turns < left; ++ahead_->turns) {
    const std::size_t begin = first_buckets_[ahead_->turns];
    const std::size_t end = first_buckets_[ahead_->turns + 1];
    if (begin < end && !left_[end - 1].has_come()) return;
    const Step step{.posts = departures_.posts(),
                    .replica = std::max(0, current_replica()),
                    .group = nullptr,
                    .rule = ahead_->by.rule,
                    .weight_decay = ahead_->by.weight_decay,
                    .turns_left = left,
                    .turns_ahead = ahead_->turns};
    for (std::size_t b = begin; b < end; ++b) {
      receive(left_[b], b);
      base::failpoint("update.before_rule");
      update(step, bucket_of(kept_buckets_[static_cast<std::size_t>(worker_)], b));
      ahead_->parameters.push_back(gather(b, /*is_ahead=*/true));
    }
  }
}

void ExchangedUpdate::on_over() noexcept { static_cast<void>(progress_->pause()); }

void ExchangedUpdate::on_failure(const std::exception_ptr& error) noexcept {
  static_cast<void>(progress_->pause());
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
  operations_in_pass_ = 0;
  if (!step.turns_left) {
    left_.clear();  // of a step that has failed
    return ahead_.reset();
  }
  const Posts announced = departures_.posts();
  for (std::size_t v = 0; v < by_rows_.size(); ++v) {
    if (by_rows_[v] || departures_.turn_of(v) >= *step.turns_left) continue;
    for (std::size_t r = 0; r < announced.size(); ++r) {
      COHORT_CHECK(announced[r].gradients[v] == step.posts[r].gradients[v],
                   "the gradient of variable ", v,
                   " is another one than was sent to the other workers");
    }
  }
  const auto here = static_cast<std::size_t>(worker_);
  if (step.posts.size() == 1 && !has_own_in_place(step) && !rounded_ && !ahead_) {
    for (std::size_t b = 0; b < left_.size(); ++b) {
      pack_for(here, step.posts, bucket_of(sent_buckets_[here], b));
    }
  }
  flight.gradients = std::exchange(left_, {});
  if (ahead_) flight.parameters = std::exchange(ahead_->parameters, {});
  if (!ahead_) operations_in_pass_ = flight.gradients.size();
}

// Collectives of the pass could come before a bucket on one worker, and behind it on another.
void ExchangedUpdate::conclude_departures() {
  // One of an earlier generation was before a pass that has failed.
  if (before_pass_ && before_pass_->generation == communicator_->generation()) {
    may_leave_ = operations_at_run_ - before_pass_->operations == operations_in_pass_;
  }
  goes_ahead_ = can_go_ahead_ && agreement_.all_dense();
  ahead_.reset();
  before_pass_.reset();
  departures_.end();
}

}  // namespace cohort::internal::variables
