// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/process_mark.h"
#include "cohort/base/scope_exit.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/core_seats.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/thread_name.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::runtime {

// What a run's replicas do.
struct ReplicaGroup::Work {
  const ThreadContext& context;
  base::FunctionRef<void(ThreadContext& here)> body;
};

struct ReplicaGroup::Workers {
  // What one replica shows to the others; a line of its own.
  struct alignas(64) Member {
    // What it brings to a meeting, and to which (its epoch before). Two in turns: the one before is
    // not overwritten until everybody has come to the one after.
    struct Post {
      MeetingKind kind;
      const void* argument = nullptr;
      uint64_t epoch = 0;
    };
    Post posts[2];
    std::exception_ptr error;
    bool follower = false;  // the error only follows another replica's
    std::atomic<bool> returned{false};
    uint64_t epoch = 0;
    std::vector<const void*> arguments;  // of all, as this one has read them
    SpinBudget meetings;                 // this replica's waits for others within a run,
    SpinBudget runs;                     // and between runs: for a start, or (0) for their end
    explicit Member(int most_spins) : meetings(most_spins), runs(most_spins) {}
  };

  explicit Workers(int replicas)
      : most_spins(runtime::most_spins(replicas)), barrier(replicas), seats(replicas) {
    for (int r = 0; r < replicas; ++r) {
      members.emplace_back(most_spins).arguments.resize(static_cast<std::size_t>(replicas));
    }
  }

  const base::ProcessMark process;
  const int most_spins;
  Barrier barrier;
  CoreSeats seats;
  std::deque<Member> members;
  std::shared_ptr<void> merged;
  std::atomic<bool> meeting_failed{false};  // a body of this run's last meeting has thrown

  // Hand-over to the worker threads.
  const Work* work = nullptr;
  std::atomic<uint64_t> runs{0};  // odd while one goes on
  alignas(64) WaitWord started;
  alignas(64) WaitWord running;
  std::atomic<bool> stop{false};

  std::vector<std::jthread> threads;
};

namespace {

// What a merge starts on a device whose memory replica 0's does not share, and so on another stream
// than that replica's own: it writes the copies of all.
void publish_elsewhere(const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (device.kind() == DeviceKind::kCpu || share_memory(devices.front(), device)) continue;
    device_backend(device).publish(device);
  }
}

ReplicaGroupOptions checked(const ReplicaGroupOptions& options) {
  COHORT_CHECK_ARG(options.replicas >= 1, "[replica_group] expected at least 1 replica, got ",
                   options.replicas);
  COHORT_CHECK_ARG(
      options.devices.empty() || static_cast<int>(options.devices.size()) == options.replicas,
      "[replica_group] expected a device for each of ", options.replicas, " replicas, got ",
      options.devices.size());
  return options;
}

}  // namespace

ReplicaGroup::ReplicaGroup(ReplicaGroupOptions options)
    : options_(checked(options)),
      devices_(options_.devices),
      workers_(std::make_unique<Workers>(options.replicas)) {}

ReplicaGroup::~ReplicaGroup() {
  if (!workers_->process.is_ours()) {
    // There are no threads to wait for here, and whatever they waited for is in use for ever.
    static_cast<void>(workers_.release());
    return;
  }
  workers_->stop.store(true, std::memory_order_release);
  workers_->started.add(1);
  workers_->started.wake_all();
}

uint64_t ReplicaGroup::epoch(int replica) const {
  return size() == 1 ? 1 : workers_->members[replica].epoch;
}

// After an error the threads that did start wait for a run in which all do.
void ReplicaGroup::start_workers() {
  Workers& w = *workers_;
  try {
    for (int replica = static_cast<int>(w.threads.size()) + 1; replica < size(); ++replica) {
      w.threads.emplace_back([this, replica] { work(replica); });
    }
  } catch (const std::system_error& e) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[strategy.run] expected the system to start ", size() - 1, " threads for ",
                        size(), " replicas, got ", w.threads.size(), " started: ", e.what(),
                        "; use fewer replicas, or raise the limits of processes (ulimit -u, "
                        "pids.max) and memory"));
  }
}

void ReplicaGroup::work(int replica) {
  Workers& w = *workers_;
  set_thread_name(str_cat("replica-", replica));
  IntraOpThreads threads(options_.intra_op_threads);
  FlushDenormals flush;
  for (uint32_t seen = 0; !w.stop.load(std::memory_order_acquire); ++seen) {
    w.started.wait_while(seen, w.members[static_cast<std::size_t>(replica)].runs);
    if (w.stop.load(std::memory_order_acquire)) return;
    run_replica(replica, *w.work);
    if (w.running.subtract(1) == 1) w.running.wake_all();
  }
}

void ReplicaGroup::run_replica(int replica, const Work& work) {
  Workers& w = *workers_;
  Workers::Member& self = w.members[replica];
  w.seats.sit(replica);
  const base::ScopeExit rests([&] { w.seats.rest(replica); });
  ContextFrame frame(work.context);
  frame.context().group = this;
  frame.context().replica = replica;
  const auto guard = devices_.enter(replica);
  devices_.await_all();
  const base::ScopeExit published([&] { devices_.publish(replica); });
  try {
    work.body(frame.context());
    self.returned.store(true, std::memory_order_release);
    w.barrier.leave();
  } catch (const PeerFailed&) {
    if (self.error) return;  // its own merge function failed before, and it went on
    self.error = std::current_exception();
    self.follower = true;
  } catch (...) {
    self.error = std::current_exception();
    self.follower = false;
    w.barrier.poison();
  }
}

void ReplicaGroup::run(base::FunctionRef<void(int)> body) {
  ThreadContext context = current_context();
  context.layout = ReplicaLayout::one_worker(size());
  run(
      context, [&](ThreadContext& here) { body(here.replica); }, [](bool) {});
}

void ReplicaGroup::run(const ThreadContext& context, base::FunctionRef<void(ThreadContext&)> body,
                       base::FunctionRef<void(bool)> ended) {
  const Work work{context, body};
  if (size() == 1) {
    try {
      run_alone(work);
    } catch (...) {
      ended(true);
      throw;
    }
    return ended(false);
  }
  check_may_run();
  const base::MutexLock lock(run_mutex_);
  try {
    run_together(work);
  } catch (...) {
    ended(true);
    throw;
  }
  ended(false);
}

void ReplicaGroup::check_may_run() const {
  workers_->process.check("strategy.run", "a strategy");
  COHORT_CHECK_STATE(enclosing_replica_group() != this,
                     "[strategy.run] expected cross-replica context outside of every run, got a "
                     "call from inside run or merge_call of the same strategy");
}

void ReplicaGroup::run_alone(const Work& work) {
  ContextFrame frame(work.context);
  frame.context().group = this;
  frame.context().replica = 0;
  IntraOpThreads threads(options_.intra_op_threads);
  FlushDenormals flush;
  devices_.publish_all();
  {
    const auto guard = devices_.enter(0);
    devices_.await_all();
    const base::ScopeExit published([&] { devices_.publish(0); });
    work.body(frame.context());
  }
  devices_.await_all();
}

void ReplicaGroup::run_together(const Work& work) {
  Workers& w = *workers_;
  start_workers();
  devices_.publish_all();
  w.barrier.reset();
  // The end of the run before was a meeting of all, also of those that failed before others did.
  uint64_t epoch = 0;
  for (const Workers::Member& member : w.members) epoch = std::max(epoch, member.epoch);
  for (Workers::Member& member : w.members) {
    member.error = nullptr;
    member.epoch = epoch + 1;
    member.returned.store(false, std::memory_order_relaxed);
  }
  w.meeting_failed.store(false, std::memory_order_relaxed);

  w.work = &work;
  w.runs.fetch_add(1, std::memory_order_relaxed);
  w.running.store(static_cast<uint32_t>(size() - 1));
  w.started.add(1);
  w.started.wake_all();
  {
    IntraOpThreads threads(options_.intra_op_threads);
    FlushDenormals flush;
    run_replica(0, work);
  }
  for (uint32_t left = w.running.load(); left != 0; left = w.running.load()) {
    w.running.wait_while(left, w.members[0].runs, [&w] { w.seats.part(0); });
  }
  w.seats.rest(0);
  devices_.await_all();
  w.runs.fetch_add(1, std::memory_order_relaxed);
  w.merged.reset();
  rethrow_first_error();
}

void ReplicaGroup::rethrow_first_error() {
  std::exception_ptr first;
  bool first_is_follower = true;
  for (Workers::Member& member : workers_->members) {
    const std::exception_ptr error = std::exchange(member.error, nullptr);
    if (!error || !first_is_follower || (first && member.follower)) continue;
    first = error;
    first_is_follower = member.follower;
  }
  if (first || workers_->barrier.poisoned()) ++failed_runs_;
  if (first) std::rethrow_exception(first);
  workers_->barrier.check();  // a failure that every replica's function has swallowed
}

void ReplicaGroup::barrier() {
  Workers& w = *workers_;
  const int replica = checked_replica();
  if (size() == 1) return;
  try {
    w.seats.sit(replica);
    devices_.publish(replica);
    w.barrier.arrive(w.members[replica].meetings, [&] { w.seats.part(replica); });
  } catch (const MembersDiverged&) {
    // Kept, so that the caller of run() hears of it even if the replica's function swallows it.
    w.members[replica].error = std::make_exception_ptr(FailedPrecondition(diverged_text(replica)));
    w.members[replica].follower = false;
    std::rethrow_exception(w.members[replica].error);
  }
  devices_.await_all();
  ++w.members[replica].epoch;
}

std::string ReplicaGroup::diverged_text(int waiting) const {
  std::string returned;
  int count = 0;
  for (int replica = 0; replica < size(); ++replica) {
    if (!workers_->members[replica].returned.load(std::memory_order_acquire)) continue;
    returned += str_cat(count++ == 0 ? " " : ", ", replica);
  }
  return str_cat(
      "[strategy.run] replicas made different numbers of merge calls (merge_call, all_reduce, "
      "apply_gradients, aggregating assignments): expected all ",
      size(), " replicas at the merge point that replica ", waiting, " has reached, got replica",
      count == 1 ? "" : "s", returned, " returned; let every replica take the same way");
}

uint64_t ReplicaGroup::run_number() const {
  if (size() == 1) return 1;
  const uint64_t runs = workers_->runs.load(std::memory_order_relaxed);
  return runs % 2 == 1 ? runs : 0;
}

int ReplicaGroup::checked_replica() const {
  COHORT_CHECK_STATE(current_replica_group() == this,
                     "[replica_context.merge_call] expected a replica of this strategy, got ",
                     current_replica() >= 0 ? "one of another strategy" : "cross-replica context");
  COHORT_CHECK_STATE(run_number() != 0,
                     "[replica_context.merge_call] expected a replica whose run goes on, got one "
                     "whose run is over: join threads of your own before the function returns");
  return current_replica();
}

void ReplicaGroup::post(int replica, const MeetingKind& kind, const void* argument) {
  Workers::Member& self = workers_->members[replica];
  self.posts[self.epoch % 2] = {kind, argument, self.epoch};
  barrier();
}

std::span<const void* const> ReplicaGroup::posted(int replica, const MeetingKind& kind) {
  Workers& w = *workers_;
  Workers::Member& self = w.members[replica];
  const uint64_t meeting = self.epoch - 1;
  for (int other = 0; other < size(); ++other) {
    const auto& post = w.members[other].posts[meeting % 2];
    const bool has_post = post.epoch == meeting;
    COHORT_CHECK_STATE(has_post && post.kind == kind,
                       "[replica_context.merge_call] expected the same merge call or collective on "
                       "every replica, got different ones on replica ",
                       std::min(replica, other), " and replica ", std::max(replica, other), ": ",
                       kind.name, " on replica ", replica, ", ",
                       has_post ? post.kind.name : "a barrier", " on replica ", other);
    self.arguments[other] = post.argument;
  }
  return self.arguments;
}

void ReplicaGroup::fail(int replica, const std::exception_ptr& error) {
  // Even if the caller's function swallows this, nobody may pass another merge point, and the
  // caller of run() gets it.
  Workers::Member& self = workers_->members[replica];
  self.error = error;
  self.follower = false;
  workers_->barrier.poison();
  std::rethrow_exception(error);
}

std::shared_ptr<void> ReplicaGroup::merge_untyped(const MeetingKind& kind, const void* argument,
                                                  MergeBody body) {
  Workers& w = *workers_;
  const int replica = checked_replica();
  if (size() == 1) {
    const ContextFrame frame(merged_context());
    return body(std::span<const void* const>(&argument, 1));
  }
  post(replica, kind, argument);
  if (replica == 0) {
    try {
      const std::span<const void* const> arguments = posted(replica, kind);
      const ContextFrame frame(merged_context());
      w.merged = body(arguments);
      publish_elsewhere(options_.devices);
    } catch (...) {
      fail(replica, std::current_exception());
    }
  }
  barrier();
  return w.merged;
}

void ReplicaGroup::meet_untyped(const MeetingKind& kind, const void* argument,
                                base::FunctionRef<void(std::span<const void* const>)> body) {
  Workers& w = *workers_;
  const int replica = checked_replica();
  if (size() == 1) return body(std::span<const void* const>(&argument, 1));
  post(replica, kind, argument);
  std::span<const void* const> arguments;
  try {
    arguments = posted(replica, kind);
  } catch (...) {
    // Whoever brought this kind finds the same, and reads nobody's argument.
    fail(replica, std::current_exception());
  }
  std::exception_ptr error;
  try {
    body(arguments);
  } catch (...) {
    // Not yet out of here: others may be reading what this replica has brought.
    error = std::current_exception();
    w.meeting_failed.store(true, std::memory_order_relaxed);
  }
  barrier();
  if (error) fail(replica, error);
  if (w.meeting_failed.load(std::memory_order_relaxed)) {
    throw PeerFailed("[strategy.run] cancelled, because another replica failed");
  }
}

bool ReplicaGroup::cores_share_cache() {
  // Spinning threads that share a core would pass the ball once a time slice.
  if (size() < 2 || workers_->most_spins == 0) return true;
  static constexpr int kBatches = 20;
  static constexpr int kRounds = 100;
  static constexpr auto kBudget = std::chrono::milliseconds(2);
  alignas(64) std::atomic<int> ball{0};
  std::atomic<bool> late{false};
  static constexpr double kNotMeasured = 1e9;
  double best = kNotMeasured;
  run([&](int replica) {
    if (replica > 1) return;
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int batch = 0; batch < kBatches; ++batch) {
      const auto start = Clock::now();
      for (int i = batch * kRounds; i < (batch + 1) * kRounds; ++i) {
        const int mine = 2 * i + replica;
        while (ball.load(std::memory_order_acquire) != mine) {
          // On a busy machine the other one may not be running at all.
          if (late.load(std::memory_order_relaxed)) return;
          if (Clock::now() - begin > kBudget) late.store(true, std::memory_order_relaxed);
        }
        ball.store(mine + 1, std::memory_order_release);
      }
      const std::chrono::duration<double, std::nano> took = Clock::now() - start;
      if (replica == 0) best = std::min(best, took.count() / kRounds);
    }
  });
  return best < 100 || best == kNotMeasured;
}

}  // namespace cohort::internal::runtime
