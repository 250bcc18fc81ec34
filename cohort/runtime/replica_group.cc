// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "cohort/base/check.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal {

struct ReplicaGroup::Workers {
  // What one replica shows to the others; a line of its own.
  struct alignas(64) Member {
    const void* tag = nullptr;
    const void* argument = nullptr;
    std::exception_ptr error;
    bool follower = false;  // the error only follows another replica's
    uint64_t epoch = 0;
  };

  Workers(int replicas, int spin_count)
      : spins(spin_count), barrier(replicas, spin_count), members(replicas) {}

  const int spins;
  Barrier barrier;
  std::vector<Member> members;
  std::vector<const void*> arguments;
  std::shared_ptr<void> merged;

  // Hand-over to the worker threads.
  const FunctionRef<void(int)>* body = nullptr;
  alignas(64) std::atomic<uint32_t> started{0};
  alignas(64) std::atomic<uint32_t> running{0};
  std::atomic<bool> stop{false};

  std::vector<std::jthread> threads;
};

ReplicaGroup::ReplicaGroup(ReplicaGroupOptions options)
    : options_(options),
      workers_(
          std::make_unique<Workers>(options.replicas, spins_before_parking(options.replicas))) {
  COHORT_CHECK_ARG(options.replicas >= 1, "[replica_group] expected at least 1 replica, got ",
                   options.replicas);
}

ReplicaGroup::~ReplicaGroup() {
  workers_->stop.store(true, std::memory_order_release);
  workers_->started.fetch_add(1, std::memory_order_acq_rel);
  workers_->started.notify_all();
}

uint64_t ReplicaGroup::epoch(int replica) const { return workers_->members[replica].epoch; }

void ReplicaGroup::start_workers() {
  Workers& w = *workers_;
  for (int replica = 1; replica < size(); ++replica) {
    w.threads.emplace_back([this, replica, &w] {
      set_thread_name(str_cat("replica-", replica));
      IntraOpThreads threads(options_.intra_op_threads);
      FlushDenormals flush;
      for (uint32_t seen = 0; !w.stop.load(std::memory_order_acquire); ++seen) {
        wait_while_equal(w.started, seen, w.spins);
        if (w.stop.load(std::memory_order_acquire)) return;
        run_replica(replica, *w.body);
        if (w.running.fetch_sub(1, std::memory_order_acq_rel) == 1) w.running.notify_one();
      }
    });
  }
}

void ReplicaGroup::run_replica(int replica, FunctionRef<void(int)> body) {
  Workers& w = *workers_;
  Workers::Member& self = w.members[replica];
  ReplicaScope scope(this, replica, size());
  try {
    body(replica);
    w.barrier.leave();
  } catch (const PeerFailed&) {
    self.error = std::current_exception();
    self.follower = true;
  } catch (...) {
    self.error = std::current_exception();
    self.follower = false;
    w.barrier.poison();
  }
}

void ReplicaGroup::run(FunctionRef<void(int)> body) {
  COHORT_CHECK_STATE(current_replica_group() != this,
                     "[strategy.run] expected cross-replica context outside of every run, got a "
                     "call from inside run or merge_call of the same strategy");
  std::scoped_lock lock(run_mutex_);
  Workers& w = *workers_;
  if (size() > 1 && w.threads.empty()) start_workers();
  w.barrier.reset();
  for (Workers::Member& member : w.members) member.error = nullptr;

  w.body = &body;
  w.running.store(static_cast<uint32_t>(size() - 1), std::memory_order_relaxed);
  w.started.fetch_add(1, std::memory_order_acq_rel);
  if (size() > 1) w.started.notify_all();
  {
    std::optional<IntraOpThreads> threads;
    if (options_.intra_op_threads > 0) threads.emplace(options_.intra_op_threads);
    FlushDenormals flush;
    run_replica(0, body);
  }
  for (uint32_t left = w.running.load(std::memory_order_acquire); left != 0;
       left = w.running.load(std::memory_order_acquire)) {
    wait_while_equal(w.running, left, w.spins);
  }
  w.merged.reset();

  std::exception_ptr follower;
  for (Workers::Member& member : w.members) {
    if (member.error && !member.follower) std::rethrow_exception(member.error);
    if (member.error && !follower) follower = member.error;
  }
  if (follower) std::rethrow_exception(follower);
}

void ReplicaGroup::barrier() {
  Workers& w = *workers_;
  if (size() > 1) w.barrier.arrive();
  ++w.members[current_replica()].epoch;
}

std::shared_ptr<void> ReplicaGroup::merge(
    const void* tag, const void* argument,
    FunctionRef<std::shared_ptr<void>(std::span<const void* const>)> body) {
  Workers& w = *workers_;
  const int replica = current_replica();
  w.members[replica].tag = tag;
  w.members[replica].argument = argument;
  barrier();
  if (replica == 0) {
    try {
      w.arguments.clear();
      for (const Workers::Member& member : w.members) {
        COHORT_CHECK_STATE(member.tag == tag,
                           "[replica_context.merge_call] expected the same merge call on every "
                           "replica, got different ones on replica 0 and replica ",
                           &member - w.members.data());
        w.arguments.push_back(member.argument);
      }
      ReplicaScope cross_replica(this, -1, size());
      w.merged = body(w.arguments);
    } catch (...) {
      // Even if the caller's function swallows this, nobody may pass another merge point.
      w.barrier.poison();
      throw;
    }
  }
  barrier();
  return w.merged;
}

bool ReplicaGroup::cores_share_cache() {
  // Spinning threads that share a core would pass the ball once a time slice.
  if (size() < 2 || workers_->spins == 0) return true;
  static constexpr int kBatches = 5;
  static constexpr int kRounds = 500;
  alignas(64) std::atomic<int> ball{0};
  double best = 1e9;
  run([&](int replica) {
    if (replica > 1) return;
    for (int batch = 0; batch < kBatches; ++batch) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = batch * kRounds; i < (batch + 1) * kRounds; ++i) {
        const int mine = 2 * i + replica;
        while (ball.load(std::memory_order_acquire) != mine) {
        }
        ball.store(mine + 1, std::memory_order_release);
      }
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      if (replica == 0) best = std::min(best, took.count() / kRounds);
    }
  });
  return best < 100;
}

}  // namespace cohort::internal
