// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/coordinator_core.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/closure_effects.h"
#include "cohort/coordinator/internal/cluster_connection.h"
#include "cohort/coordinator/internal/coordinator_variables.h"
#include "cohort/coordinator/internal/named_closures.h"
#include "cohort/coordinator/internal/remote_result.h"
#include "cohort/coordinator/internal/watchdog.h"
#include "cohort/rpc/server.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

// A message of functions may be under way for as long as they take: who hangs is found by pings.
constexpr std::chrono::hours kRunTimeout{24 * 365};
constexpr std::chrono::seconds kOneGreeting{5};
constexpr std::chrono::seconds kMostAbsence{3600};
constexpr std::chrono::milliseconds kStopAgain{20};
constexpr std::chrono::milliseconds kServerPause{100};
// Functions of one message: as many as run within a millisecond or so.
constexpr std::size_t kMostOfOneMessage = 256;
constexpr double kMessageNanoseconds = 1e6;
constexpr std::size_t kMostMessageArguments = 8 << 20;
constexpr std::size_t kMostArguments = rpc::kMostMessageBytes - (1 << 20);

// Of all coordinators: two of one session, one after the other, have other resources.
std::atomic<uint64_t> g_last_resource{0};
// Of functions that may count several times: what servers remember of the others has no gaps then.
std::atomic<uint64_t> g_last_plain{0};
constexpr uint64_t kPlain = uint64_t{1} << 63;

std::exception_ptr cancelled_error() {
  return std::make_exception_ptr(Cancelled(
      "[cluster_coordinator] the function is cancelled, because another one has failed or the "
      "coordinator has ended; schedule it again"));
}

// Of a message that did not arrive, or whose answer did not: whose fault it is.
bool is_workers_absence(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kCancelled ||
         code == ErrorCode::kAborted || code == ErrorCode::kDeadlineExceeded;
}

}  // namespace

struct CoordinatorCore::Impl {
  struct Resource {
    ResourceRecipe recipe = {};
    std::vector<std::shared_ptr<const void>> kept = {};
  };
  /// One worker as its thread sees it.
  struct Worker {
    int index = 0;
    std::string name = {};  // for error texts
    std::string task = {};
    uint64_t incarnation = 0;
    std::set<uint64_t> made = {};    // the resources that it has
    std::set<uint64_t> may_be = {};  // it may have, by messages without an answer
    double call_nanoseconds = kMessageNanoseconds;
    std::thread thread = {};
  };

  Impl(std::shared_ptr<ClusterConnection> to, std::shared_ptr<ParameterServers> on,
       std::shared_ptr<Journal> in, const CoordinatorSettings& settings)
      : connection(std::move(to)),
        named(in),
        effects(std::move(on), std::move(in)),
        workers(static_cast<std::size_t>(connection->num_workers())),
        sync_pushes(settings.sync_pushes),
        queue({.staleness_bound = settings.staleness_bound}),
        ignored_timeouts(
            static_cast<int>(number_variable("TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS",
                                             std::floor(connection->num_workers() / 10.0)))),
        watchdog(number_variable("TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT", -1)) {}

  void start() {
    {
      const base::MutexLock lock(mutex);
      serving = static_cast<int>(workers.size());
      for (int w = 0; w < serving; ++w) {
        if (start_delay(w).count() == 0) queue.join_worker(w);
      }
    }
    connection->watch_servers([this](const std::exception_ptr& error) { fail_for_good(error); });
    connection->board().set_queue([this] { return queue_status(); });
    for (std::size_t i = 0; i < workers.size(); ++i) {
      Worker& worker = workers[i];
      worker.index = static_cast<int>(i);
      worker.name = str_cat("on worker ", i);
      worker.task = str_cat("worker ", i);
      worker.incarnation = connection->worker_incarnation(worker.index);
      worker.thread = std::thread([this, &worker] {
        runtime::set_thread_name(str_cat("cohort-to-w", worker.index));
        serve(worker);
        const base::MutexLock lock(mutex);
        --serving;
        changed.notify_all();
      });
    }
  }

  void stop() {
    connection->watch_servers({});
    connection->board().set_queue({});
    {
      const base::MutexLock lock(mutex);
      ends = true;
      work.notify_all();
      changed.notify_all();
    }
    while (is_serving()) {  // again and again: a message may just have been sent
      for (Worker& worker : workers) connection->drop_calls(worker.index);
    }
    for (Worker& worker : workers) {
      if (worker.thread.joinable()) worker.thread.join();
      worker.made.merge(worker.may_be);
      connection->leave_resources(worker.index, worker.made);
    }
    const base::MutexLock lock(mutex);
    queue.fail_for_good(cancelled_error());
    tell_cancelled();
  }

  StatusBoard::Queue queue_status() {
    const base::MutexLock lock(mutex);
    StatusBoard::Queue out{.scheduled = scheduled, .waiting = queue.waiting()};
    for (const Worker& each : workers) out.running[each.task] = queue.running_on(each.index);
    return out;
  }

  // Waits a moment for the workers' threads to end.
  bool is_serving() {
    const base::MutexLock lock(mutex);
    changed.wait_for(mutex, kStopAgain, [this]() COHORT_REQUIRES(mutex) { return serving == 0; });
    return serving > 0;
  }

  // What the queue has cancelled learns it. Behind every event of the queue.
  void tell_cancelled() COHORT_REQUIRES(mutex) {
    for (const CancelledClosure& each : queue.take_cancelled()) {
      std::exception_ptr why = each.error ? each.error : cancelled_error();
      if (each.closure->counts_once) why = effects.cancel(each.closure->id, why);
      each.closure->result->fail(why);
      each.closure->kept.clear();
    }
    changed.notify_all();
  }

  void throw_ripe_error() COHORT_REQUIRES(mutex) {
    if (!queue.has_error()) return;
    changed.wait(mutex, [this]() COHORT_REQUIRES(mutex) {
      return !queue.has_error() || queue.is_error_ripe();
    });
    if (!queue.has_error()) return;  // another thread has thrown it
    const std::exception_ptr error = queue.take_error();
    changed.notify_all();
    std::rethrow_exception(error);
  }

  void fail_for_good(const std::exception_ptr& error) {
    const base::MutexLock lock(mutex);
    queue.fail_for_good(error);
    tell_cancelled();
  }

  // The thread of one worker.
  void serve(Worker& worker) {
    if (const auto delay = start_delay(worker.index); delay.count() > 0) {
      const base::MutexLock lock(mutex);
      changed.wait_for(mutex, delay, [this]() COHORT_REQUIRES(mutex) { return ends; });
      queue.join_worker(worker.index);
    }
    while (true) {
      const std::vector<ClosurePtr> closures = wait_for_work(worker);
      if (closures.empty()) return;
      if (!run(worker, closures) && !find_again(worker)) return;
    }
  }

  std::vector<ClosurePtr> wait_for_work(const Worker& worker) {
    const base::MutexLock lock(mutex);
    work.wait(mutex, [this, &worker]()
                         COHORT_REQUIRES(mutex) { return ends || queue.can_take(worker.index); });
    if (ends) return {};
    // Not so many that another worker would have none.
    const std::size_t share = 1 + queue.waiting() / (2 * workers.size());
    const auto fit = static_cast<std::size_t>(kMessageNanoseconds / worker.call_nanoseconds);
    const auto most = std::clamp<std::size_t>(std::min(share, fit), 1, kMostOfOneMessage);
    return queue.take_message(worker.index, most, kMostMessageArguments);
  }

  // False: the worker is lost.
  bool run(Worker& worker, const std::vector<ClosurePtr>& closures) {
    std::vector<uint64_t> sent;
    RunAnswer answer;
    try {
      base::failpoint("coordinator.before_send");
      const RunRequest request = request_for(worker, closures, sent);
      const rpc::Payload payload =
          connection->worker(worker.index)
              ->call(kRunMethod, to_payload(request), {.timeout = kRunTimeout});
      answer = run_answer_of(payload, worker.name);
    } catch (const Error& e) {
      return handle_failure(worker, closures, e);
    }
    worker.made.insert(sent.begin(), sent.end());
    worker.may_be.clear();
    effects.settle(worker.index, answer, [this] { return waits_for_servers(); });
    named.write_down(closures, answer);
    take_answers(worker, answer);
    return true;
  }

  // Of those that cannot be reached. Whether there is still a point in it.
  bool waits_for_servers() {
    const base::MutexLock lock(mutex);
    const auto is_over = [this]() COHORT_REQUIRES(mutex) { return ends || queue.is_over(); };
    return !changed.wait_for(mutex, kServerPause, is_over);
  }

  RunRequest request_for(Worker& worker, const std::vector<ClosurePtr>& closures,
                         std::vector<uint64_t>& sent) {
    RunRequest out{.session = connection->identity().session, .sync_pushes = sync_pushes};
    worker.made.merge(connection->take_left_resources(worker.index));
    const base::MutexLock lock(mutex);
    for (auto ids = dropped->take(); !ids.empty(); ids = dropped->take()) {
      for (const uint64_t id : ids) resources.erase(id);  // which may let go of others
    }
    for (const uint64_t id : worker.may_be) {
      if (resources.count(id) == 0) out.dropped.push_back(id);
    }
    for (const auto& [id, resource] : resources) {
      if (worker.made.count(id) > 0) continue;
      out.made.push_back(resource.recipe);
      sent.push_back(id);
    }
    std::erase_if(worker.made, [&](uint64_t id) COHORT_REQUIRES(mutex) {
      const bool is_gone = resources.count(id) == 0;
      if (is_gone) out.dropped.push_back(id);
      return is_gone;
    });
    worker.may_be.insert(sent.begin(), sent.end());
    worker.may_be.insert(out.dropped.begin(), out.dropped.end());
    for (const ClosurePtr& each : closures) {
      out.calls.push_back({.id = each->id,
                           .attempt = each->counts_once ? effects.begin(worker.index, each->id) : 0,
                           .function = each->function,
                           .arguments = each->arguments});
    }
    return out;
  }

  void take_answers(Worker& worker, RunAnswer& answer) {
    std::vector<std::pair<int, std::string>> lost_servers;
    StatusBoard::Ended count;
    {
      const base::MutexLock lock(mutex);
      std::size_t ran = 0;
      // Backwards, so that those that were not run are the next ones, in their order.
      for (auto it = answer.calls.rbegin(); it != answer.calls.rend(); ++it) {
        if (it->state == CallAnswer::State::kNotRun) queue.hand_back(worker.index, it->id);
      }
      for (CallAnswer& each : answer.calls) {
        ran += each.state == CallAnswer::State::kNotRun ? 0 : 1;
        if (each.state == CallAnswer::State::kValue) count.done += take_value(worker, each) ? 1 : 0;
        if (each.state == CallAnswer::State::kError) {
          const bool has_failed = take_error(worker, each, lost_servers);
          (has_failed ? count.failed : count.again) += 1;
        }
      }
      connection->board().ended(worker.task, count);
      if (ran > 0) {
        const double each = static_cast<double>(answer.nanoseconds) / static_cast<double>(ran);
        worker.call_nanoseconds = std::max(1.0, 0.5 * worker.call_nanoseconds + 0.5 * each);
        watchdog.reset();
      }
      tell_cancelled();
      if (queue.waiting() > 0) work.notify_all();
    }
    for (const auto& [ps, what] : lost_servers) connection->report_ps(ps, what);
  }

  // False: it does not run there any more.
  bool take_value(const Worker& worker, CallAnswer& answer) COHORT_REQUIRES(mutex) {
    const ClosurePtr closure = queue.end(worker.index, answer.id);
    if (!closure) return false;
    if (closure->counts_once) effects.end(closure->id);
    closure->kept.clear();
    closure->result->set(std::move(answer.value));
    return true;
  }

  // A function that could not reach a parameter server is run again: the connection counts how
  // often that happens. False: it is.
  bool take_error(const Worker& worker, const CallAnswer& answer,
                  std::vector<std::pair<int, std::string>>& lost_servers) COHORT_REQUIRES(mutex) {
    try {
      std::rethrow_exception(answer.error);
    } catch (const Unavailable& e) {
      if (const int ps = connection->ps_at(e.peer()); ps >= 0) {
        lost_servers.emplace_back(ps, e.what());
        queue.put_back(worker.index, answer.id);
        return false;
      }
    } catch (const DeadlineExceeded&) {
      if (--ignored_timeouts >= 0) {
        queue.put_back(worker.index, answer.id);
        return false;
      }
    } catch (...) {  // the queue's business
    }
    if (const ClosurePtr closure = queue.fail(worker.index, answer.id, answer.error)) {
      connection->board().note_error(
          worker.task, str_cat(closure->function, " has thrown: ", text_of(answer.error)));
      if (closure->counts_once) effects.end(closure->id);
      closure->kept.clear();
      closure->result->fail(answer.error);
    }
    return true;
  }

  bool handle_failure(Worker& worker, const std::vector<ClosurePtr>& closures, const Error& error) {
    const base::MutexLock lock(mutex);
    if (!is_workers_absence(error.code())) {
      // The message itself is not to be sent: nobody else could.
      for (const ClosurePtr& each : closures) {
        const auto why = std::current_exception();
        if (!queue.fail(worker.index, each->id, why)) continue;
        if (each->counts_once) effects.end(each->id);
        each->result->fail(why);
        connection->board().note_error(worker.task, error.what());
        connection->board().ended(worker.task, {.failed = 1});
      }
      tell_cancelled();
      return true;
    }
    if (!ends) {
      COHORT_LOG(kWarning, "worker ", worker.index, " is lost: ", error.what(), "; its ",
                 closures.size(), " functions go to the end of the queue");
      connection->board().missed(worker.task, StatusBoard::State::kLost, error.what());
      connection->board().ended(worker.task, {.again = closures.size()});
    }
    effects.lose_worker(worker.index);
    queue.lose_worker(worker.index);
    tell_cancelled();
    work.notify_all();
    return false;
  }

  // Until the worker is there again. False: it is not, or nobody needs it any more.
  bool find_again(Worker& worker) {
    const auto limit = Clock::now() + kMostAbsence;
    while (Clock::now() < limit) {
      {
        const base::MutexLock lock(mutex);
        if (ends) return false;
      }
      try {
        connection->greet_worker(worker.index, kOneGreeting);
        const uint64_t incarnation = connection->worker_incarnation(worker.index);
        if (incarnation != worker.incarnation) worker.made.clear();
        worker.incarnation = incarnation;
        COHORT_LOG(kInfo, "worker ", worker.index, " is there again");
        const base::MutexLock lock(mutex);
        queue.join_worker(worker.index);
        return true;
      } catch (const Error& e) {
        if (!is_workers_absence(e.code())) return give_up(worker, e.what());
      }
    }
    return give_up(worker, "it did not come back within an hour");
  }

  bool give_up(const Worker& worker, const std::string& why) {
    const base::MutexLock lock(mutex);
    COHORT_LOG(kError, "worker ", worker.index, " gets no more functions: ", why);
    connection->board().missed(worker.task, StatusBoard::State::kGone, why);
    if (++gone == static_cast<int>(workers.size())) {
      queue.fail_for_good(std::make_exception_ptr(
          Unavailable(str_cat("[cluster_coordinator] no worker is left: ", why,
                              ". Start the job again, from its last checkpoint"),
                      "all workers")));
      tell_cancelled();
    }
    return false;
  }

  const std::shared_ptr<ClusterConnection> connection;
  NamedClosures named;
  ClosureEffects effects;
  std::vector<Worker> workers;
  base::Mutex mutex;
  std::condition_variable_any changed;  // for who schedules and joins
  std::condition_variable_any work;     // for the workers' threads
  const SyncPushes sync_pushes;
  ClosureQueue queue COHORT_GUARDED_BY(mutex);
  std::map<uint64_t, Resource> resources COHORT_GUARDED_BY(mutex);  // in the order of their making
  const std::shared_ptr<DroppedResources> dropped = std::make_shared<DroppedResources>();
  uint64_t scheduled COHORT_GUARDED_BY(mutex) = 0;
  int ignored_timeouts COHORT_GUARDED_BY(mutex);
  int gone COHORT_GUARDED_BY(mutex) = 0;
  int serving COHORT_GUARDED_BY(mutex) = 0;  // threads
  bool ends COHORT_GUARDED_BY(mutex) = false;
  Watchdog watchdog;
};

CoordinatorCore::CoordinatorCore(std::shared_ptr<ClusterConnection> connection,
                                 std::shared_ptr<ParameterServers> servers,
                                 std::shared_ptr<Journal> journal, CoordinatorSettings settings)
    : impl_(std::make_unique<Impl>(std::move(connection), std::move(servers), std::move(journal),
                                   settings)) {
  impl_->start();
}

CoordinatorCore::~CoordinatorCore() { impl_->stop(); }

std::shared_ptr<RemoteResult> CoordinatorCore::put(ClosurePtr closure) {
  COHORT_CHECK_ARG(closure->arguments.size() <= kMostArguments,
                   "[schedule] expected arguments of at most ", kMostArguments, " bytes, got ",
                   closure->arguments.size(), "; workers read what is larger themselves");
  Impl& i = *impl_;
  COHORT_CHECK_STATE(!closure->counts_once || i.effects.has_servers(),
                     "[schedule_exactly_once] expected a strategy with variables on parameter "
                     "servers, got one without");
  const base::MutexLock lock(i.mutex);
  i.throw_ripe_error();
  i.effects.go_on();
  if (auto before = i.named.find(*closure)) return before;
  while (i.queue.is_full()) {
    i.changed.wait(i.mutex, [&i]() COHORT_REQUIRES(i.mutex) {
      return !i.queue.is_full() || i.queue.has_error();
    });
    i.throw_ripe_error();
    if (auto before = i.named.find(*closure)) return before;  // of another thread that has waited
  }
  closure->id = closure->counts_once ? i.effects.open(closure->key) : kPlain | ++g_last_plain;
  auto out = closure->result;
  i.named.add(*closure);
  i.queue.put(std::move(closure));
  ++i.scheduled;
  i.queue.is_bounded() ? i.work.notify_all() : i.work.notify_one();  // some may not take it
  return out;
}

void CoordinatorCore::forget_finished() {
  const base::MutexLock lock(impl_->mutex);
  impl_->effects.go_on();
  impl_->named.forget_finished(impl_->queue);
}

void CoordinatorCore::join() {
  Impl& i = *impl_;
  const base::MutexLock lock(i.mutex);
  i.changed.wait(i.mutex, [&i]() COHORT_REQUIRES(i.mutex) {
    return i.queue.is_idle() || i.queue.has_error();
  });
  i.throw_ripe_error();
}

bool CoordinatorCore::done() {
  Impl& i = *impl_;
  const base::MutexLock lock(i.mutex);
  i.throw_ripe_error();
  return i.queue.is_idle();
}

std::shared_ptr<ResourceHandle> CoordinatorCore::add_resource(
    ResourceRecipe recipe, std::vector<std::shared_ptr<const void>> kept) {
  Impl& i = *impl_;
  const base::MutexLock lock(i.mutex);
  // A worker that begins anew is sent those of all, with its first functions.
  std::size_t all = recipe.arguments.size();
  for (const auto& [number, each] : i.resources) all += each.recipe.arguments.size();
  const std::size_t most = kMostArguments - (i.resources.empty() ? 0 : kMostMessageArguments);
  COHORT_CHECK_ARG(all <= most, "[create_per_worker_resource] expected arguments of at most ", most,
                   " bytes in all, got ", all, "; workers read what is larger themselves");
  const uint64_t id = recipe.id = ++g_last_resource;
  i.resources[id] = {.recipe = std::move(recipe), .kept = std::move(kept)};
  return std::make_shared<ResourceHandle>(i.dropped, id);
}

}  // namespace cohort::internal::coordinator
