// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/cluster_connection.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/coordinator/internal/coordinator_variables.h"
#include "cohort/coordinator/internal/task_service.h"
#include "cohort/coordinator/parameters/replica_host.h"
#include "cohort/rpc/wire.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often who has not come is named in the log, and the pause between two tries.
constexpr milliseconds kSayMissing{10000};
constexpr milliseconds kOneTry{1000};
// Of the end, which is said once: who does not hear it waits for a lease.
constexpr milliseconds kTimeToHear{5000};

std::string number_text(uint64_t number) {
  rpc::MessageWriter out;
  out.number(number);
  return out.str();
}

bool is_absence(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
         code == ErrorCode::kCancelled;
}

}  // namespace

uint64_t random_session() {
  const rpc::Secret random = rpc::Secret::random();
  uint64_t out = 0;
  std::memcpy(&out, random.bytes().data(), sizeof out);
  return out;
}

struct ClusterConnection::Impl {
  // The answer to a ping, on its way from a thread of gRPC's.
  struct Ping {
    base::Mutex mutex;
    bool is_asked COHORT_GUARDED_BY(mutex) = false;
    bool is_answered COHORT_GUARDED_BY(mutex) = false;
    rpc::RpcResult result COHORT_GUARDED_BY(mutex);
  };
  struct Task {
    std::string name = {};
    std::string address = {};
    std::shared_ptr<rpc::RpcClient> client = {};
    uint64_t incarnation = 0;
    bool is_resumed = false;
    int failures = 0;      // in a row, of a parameter server
    bool is_lost = false;  // and has not come back
    std::shared_ptr<Ping> ping = std::make_shared<Ping>();
  };

  explicit Impl(ClusterConnectionOptions given)
      : options(std::move(given)),
        board(options.board ? options.board : std::make_shared<StatusBoard>()),
        greeting{.program = program_identity()} {
    board->set_replicas(options.replicas);
    add_tasks("ps", servers);
    add_tasks("worker", workers);
  }

  void add_tasks(const std::string& job, std::vector<Task>& to) {
    COHORT_CHECK_ARG(options.spec.has_job(job) && options.spec.num_tasks(job) > 0,
                     "[parameter_server_strategy] expected a cluster with at least one ", job,
                     ", got ", options.spec.to_string());
    for (const int index : options.spec.task_indices(job)) {
      COHORT_CHECK_ARG(index == static_cast<int>(to.size()),
                       "[parameter_server_strategy] expected tasks of \"", job,
                       "\" without gaps, got ", options.spec.to_string());
      Task task{.name = str_cat(job, " ", index), .address = options.spec.task_address(job, index)};
      task.client = client_of(task);
      board->add_task(task.name, task.address);
      to.push_back(std::move(task));
    }
  }

  std::shared_ptr<rpc::RpcClient> client_of(const Task& task) const {
    return std::make_shared<rpc::RpcClient>(rpc::RpcClientOptions{.address = task.address,
                                                                  .server_name = task.name,
                                                                  .security = options.security,
                                                                  .claims = claims()});
  }
  rpc::RpcClaims claims() const {
    return {.task = "coordinator", .generation = identity.generation};
  }

  std::shared_ptr<rpc::RpcClient> client(const Task& task) {
    const base::MutexLock lock(mutex);
    return task.client;
  }

  void greet(Task& task, milliseconds timeout) {
    const rpc::Payload answer = client(task)->call("task.hello", to_payload(greeting),
                                                   {.timeout = timeout, .wait_for_server = true});
    const HelloAnswer hello = hello_answer_of(answer);
    GroupFacts known;
    {
      const base::MutexLock lock(mutex);
      task.incarnation = hello.incarnation;
      task.is_resumed = hello.is_resumed;
      known = groups;
    }
    board->found(task.name, hello.incarnation);
    const bool is_ps = &task >= servers.data() && &task < servers.data() + servers.size();
    if (is_ps && known.replicas > 0) tell_group_facts(*client(task), known, timeout);
  }

  // What the first server knows that answers and knows it.
  GroupFacts known_groups() {
    for (Task& task : servers) {
      try {
        const GroupFacts told = group_facts_of(*client(task), kOneTry * 3);
        if (told.replicas > 0) return told;
      } catch (const Error& e) {
        if (!is_absence(e.code())) throw;
      }
    }
    return {};
  }

  // Servers of an earlier coordinator know which groups they are; who has come anew is told.
  void form_groups(Clock::time_point limit) {
    if (!has_store()) return;
    const rpc::Secret random = rpc::Secret::random();
    GroupFacts facts = known_groups();
    if (facts.replicas == 0) std::memcpy(&facts.job, random.bytes().data(), sizeof facts.job);
    facts.replicas = options.replicas;
    {
      const base::MutexLock lock(mutex);
      groups = facts;
    }
    for (Task& task : servers) wait_for(task, limit);
    facts.lease = known_groups().lease;
    const base::MutexLock lock(mutex);
    groups = facts;
  }
  // Workers that have one ask how many copies there are.
  static bool has_store() {
    const char* const store = std::getenv(cluster::kStoreVariable);
    return store != nullptr && *store != '\0';
  }

  void wait_for(Task& task, Clock::time_point limit) {
    wait_for(task, limit, [&] { greet(task, kOneTry); });
  }
  // Until the task is there; those that are not are named from time to time.
  void wait_for(const Task& task, Clock::time_point limit, const std::function<void()>& call) {
    auto say = Clock::now() + kSayMissing;
    while (true) {
      try {
        return call();
      } catch (const Error& e) {
        if (!is_absence(e.code())) throw;
        if (Clock::now() >= limit) {
          throw DeadlineExceeded(str_cat(
              "[parameter_server_strategy] expected all parameter servers and workers within ",
              options.start_timeout.count() / 1000, " s, but ", task.name, " (", task.address,
              ") has not come; start it, or see its output"));
        }
      }
      if (Clock::now() >= say) {
        COHORT_LOG(kWarning, "waiting for ", task.name, " (", task.address, ")");
        say = Clock::now() + kSayMissing;
      }
    }
  }

  // Who it is depends on who was there: it follows all of them, also those of whom only workers
  // have heard, because all servers are new. Where servers know of one, they hear of this one
  // without waiting for a worker that stands still.
  void begin(Clock::time_point limit) {
    std::vector<NewestCoordinator> newest;
    const auto ask = [&](Task& task, Clock::time_point until) {
      wait_for(task, until, [&] {
        newest.push_back(newest_of(client(task)->call(
            "task.newest", rpc::Payload(), {.timeout = kOneTry, .wait_for_server = true})));
      });
    };
    for (Task& task : servers) ask(task, limit);
    const bool is_known = newest_generation(newest) > 0;
    const auto last_try = Clock::now() + kSayMissing;
    for (Task& task : workers) {
      if (is_known && Clock::now() >= last_try) break;
      try {
        ask(task, is_known ? Clock::now() : limit);
      } catch (const DeadlineExceeded&) {
        if (!is_known) throw;
      }
    }
    identity = options.begin ? options.begin(newest)
                             : CoordinatorIdentity{.session = random_session(),
                                                   .generation = newest_generation(newest) + 1};
    greeting.who = identity;
    for (auto* const tasks : {&servers, &workers}) {
      for (Task& task : *tasks) task.client->set_claims(claims());
    }
  }

  void wait_for_all() {
    const auto limit = Clock::now() + options.start_timeout;
    begin(limit);
    for (Task& task : servers) wait_for(task, limit);
    is_resumed = std::all_of(servers.begin(), servers.end(),
                             [](const Task& each) { return each.is_resumed; });
    if (!is_resumed && identity.origin != 0 && options.replicas == 1) {
      options.begin_anew(identity);
      greeting.who.origin = 0;
      for (Task& task : servers) wait_for(task, limit);
    }
    base::failpoint("coordinator.servers_greeted");
    form_groups(limit);
    for (Task& task : workers) wait_for(task, limit);
  }

  void ask(Task& task) {
    {
      const base::MutexLock lock(task.ping->mutex);
      if (task.ping->is_asked) return;
      task.ping->is_asked = true;
      task.ping->is_answered = false;
    }
    client(task)->start("task.ping", rpc::Payload(number_text(identity.session)),
                        {.timeout = options.lease}, [ping = task.ping](rpc::RpcResult result) {
                          const base::MutexLock lock(ping->mutex);
                          ping->result = std::move(result);
                          ping->is_answered = true;
                        });
  }

  // Nothing: there is none yet.
  static std::optional<rpc::RpcResult> answer_of(Task& task) {
    const base::MutexLock lock(task.ping->mutex);
    if (!task.ping->is_answered) return std::nullopt;
    task.ping->is_asked = false;
    task.ping->is_answered = false;
    return std::move(task.ping->result);
  }

  void look_at_server(Task& task) {
    const auto answer = answer_of(task);
    if (!answer) return;
    try {
      if (answer->error) std::rethrow_exception(answer->error);
      board->heard(task.name, report_of(answer->payload));
      const base::MutexLock lock(mutex);
      task.failures = 0;
      task.is_lost = false;
    } catch (const Error& e) {
      // Another coordinator has it.
      if (e.code() == ErrorCode::kFailedPrecondition) return fail(std::current_exception());
      if (e.code() == ErrorCode::kAborted) return lose_server(task, "was started anew");
      count_failure(task, e.what());
    } catch (const std::exception& e) {
      count_failure(task, e.what());
    }
  }

  void count_failure(Task& task, const std::string& what) {
    {
      const base::MutexLock lock(mutex);
      if (++task.failures < most_failures) return;
    }
    lose_server(task, what);
  }

  // The others have its variables; who comes back is greeted, and is a backup then.
  void miss_server(Task& task, const std::string& what) {
    try {
      greet(task, kOneTry);
      const base::MutexLock lock(mutex);
      task.failures = 0;
      task.is_lost = false;
      return;
    } catch (const std::exception&) {  // it is not there yet
    }
    std::string names;
    {
      const base::MutexLock lock(mutex);
      task.failures = 0;
      if (!std::exchange(task.is_lost, true)) {
        COHORT_LOG(kWarning, task.name, " (", task.address, ") is lost: ", what,
                   ". Others have copies of its variables");
      }
      board->missed(task.name, StatusBoard::State::kLost, what);
      names = lost_group();
    }
    if (!names.empty()) {
      fail(std::make_exception_ptr(DataLoss(str_cat(
          "[coordinator] ", names, " are lost, which had all copies of some variables: ", what,
          ". Start the job again, from its last checkpoint"))));
    }
  }
  // The names of a group none of whose servers is left; empty: there is none.
  std::string lost_group() const COHORT_REQUIRES(mutex) {
    for (std::size_t g = 0; g < servers.size(); ++g) {
      std::string names;
      bool is_whole = false;
      for (std::size_t i = 0; i < static_cast<std::size_t>(options.replicas); ++i) {
        const Task& member = servers[(g + i) % servers.size()];
        is_whole = is_whole || !member.is_lost;
        names += str_cat(i == 0 ? "" : ", ", member.name);
      }
      if (!is_whole) return names;
    }
    return {};
  }
  void fail(const std::exception_ptr& error) {
    const base::MutexLock lock(watch_mutex);
    if (on_failure) on_failure(error);
  }

  void lose_server(Task& task, const std::string& what) {
    if (options.replicas > 1) return miss_server(task, what);
    board->missed(task.name, StatusBoard::State::kGone, what);
    fail(std::make_exception_ptr(
        Unavailable(str_cat("[coordinator] ", task.name, " (", task.address,
                            ") is lost, and the variables that it had: ", what,
                            ". Start the job again, from its last checkpoint"),
                    task.name)));
  }

  // A worker that hangs is told from one that works long: it answers to pings.
  void look_at_worker(int index) {
    Task& task = workers[static_cast<std::size_t>(index)];
    const auto answer = answer_of(task);
    if (!answer) return;
    try {
      if (answer->error) std::rethrow_exception(answer->error);
      board->heard(task.name, report_of(answer->payload));
    } catch (const DeadlineExceeded&) {
      COHORT_LOG(kWarning, task.name, " (", task.address, ") has not answered for ",
                 options.lease.count() / 1000, " s; its functions go to other workers");
      board->missed(task.name, StatusBoard::State::kLost, "does not answer");
      drop_calls(index);
    } catch (const FailedPrecondition&) {  // another coordinator has it
      fail(std::current_exception());
    } catch (const Cancelled&) {         // by drop_calls()
    } catch (const std::exception& e) {  // what is under way there fails by itself
      board->missed(task.name, StatusBoard::State::kLost, e.what());
    }
  }

  void drop_calls(int index) {
    Task& task = workers[static_cast<std::size_t>(index)];
    std::shared_ptr<rpc::RpcClient> old = client_of(task);
    {
      const base::MutexLock lock(mutex);
      task.client.swap(old);
    }
    old->cancel();
  }

  void monitor() {
    runtime::set_thread_name("cohort-cluster");
    while (true) {
      for (Task& task : servers) {
        look_at_server(task);
        ask(task);
      }
      for (std::size_t w = 0; w < workers.size(); ++w) {
        look_at_worker(static_cast<int>(w));
        ask(workers[w]);
      }
      const base::MutexLock lock(mutex);
      changed.wait_for(mutex, options.heartbeat, [this]() COHORT_REQUIRES(mutex) { return ends; });
      if (ends) return;
    }
  }

  void end_all() {
    {
      const base::MutexLock lock(mutex);
      ends = true;
      changed.notify_all();
    }
    if (thread.joinable()) thread.join();
    std::vector<std::future<void>> told;
    for (auto* const tasks : {&workers, &servers}) {
      for (Task& task : *tasks) told.push_back(say_end(task));
    }
    for (const std::future<void>& each : told) each.wait();
  }
  // Ready when it has heard it, or cannot: it has ended, or does not listen.
  std::future<void> say_end(Task& task) {
    const auto told = std::make_shared<std::promise<void>>();
    client(task)->start("task.end", rpc::Payload(number_text(identity.session)),
                        {.timeout = kTimeToHear},
                        [told](const rpc::RpcResult&) { told->set_value(); });
    return told->get_future();
  }

  const ClusterConnectionOptions options;
  const std::shared_ptr<StatusBoard> board;
  const int most_failures = failures_of_a_lost_server();
  Greeting greeting;             // as it is behind wait_for_all()
  CoordinatorIdentity identity;  // as it began
  bool is_resumed = false;
  std::vector<Task> servers;
  std::vector<Task> workers;
  base::Mutex mutex;  // of clients, incarnations and failures
  std::condition_variable_any changed;
  bool ends COHORT_GUARDED_BY(mutex) = false;
  GroupFacts groups COHORT_GUARDED_BY(mutex);
  std::map<int, std::set<uint64_t>> left COHORT_GUARDED_BY(mutex);  // by worker
  base::Mutex watch_mutex;
  std::function<void(std::exception_ptr)> on_failure COHORT_GUARDED_BY(watch_mutex);
  std::thread thread;
};

ClusterConnection::ClusterConnection(ClusterConnectionOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->wait_for_all();
  impl_->thread = std::thread([impl = impl_.get()] { impl->monitor(); });
}

ClusterConnection::~ClusterConnection() { impl_->end_all(); }

int ClusterConnection::num_workers() const { return static_cast<int>(impl_->workers.size()); }
int ClusterConnection::num_ps() const { return static_cast<int>(impl_->servers.size()); }
const ClusterSpec& ClusterConnection::spec() const { return impl_->options.spec; }
StatusBoard& ClusterConnection::board() const { return *impl_->board; }
const CoordinatorIdentity& ClusterConnection::identity() const { return impl_->identity; }
bool ClusterConnection::is_resumed() const { return impl_->is_resumed; }
milliseconds ClusterConnection::group_lease() const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->groups.lease;
}

std::shared_ptr<rpc::RpcClient> ClusterConnection::ps(int index) const {
  return impl_->client(impl_->servers.at(static_cast<std::size_t>(index)));
}

std::shared_ptr<rpc::RpcClient> ClusterConnection::worker(int index) const {
  return impl_->client(impl_->workers.at(static_cast<std::size_t>(index)));
}

void ClusterConnection::leave_resources(int worker, const std::set<uint64_t>& ids) {
  const base::MutexLock lock(impl_->mutex);
  impl_->left[worker].insert(ids.begin(), ids.end());
}

std::set<uint64_t> ClusterConnection::take_left_resources(int worker) {
  const base::MutexLock lock(impl_->mutex);
  return std::exchange(impl_->left[worker], {});
}

uint64_t ClusterConnection::worker_incarnation(int index) const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->workers.at(static_cast<std::size_t>(index)).incarnation;
}

void ClusterConnection::drop_calls(int worker) { impl_->drop_calls(worker); }

void ClusterConnection::greet_worker(int worker, milliseconds timeout) {
  impl_->greet(impl_->workers.at(static_cast<std::size_t>(worker)), timeout);
}

void ClusterConnection::watch_servers(std::function<void(std::exception_ptr)> on_failure) {
  const base::MutexLock lock(impl_->watch_mutex);
  impl_->on_failure = std::move(on_failure);
}

int ClusterConnection::ps_at(const std::string& address) const {
  for (std::size_t i = 0; i < impl_->servers.size(); ++i) {
    if (impl_->servers[i].address == address) return static_cast<int>(i);
  }
  return -1;
}

void ClusterConnection::report_ps(int ps, const std::string& what) {
  impl_->count_failure(impl_->servers.at(static_cast<std::size_t>(ps)), what);
}

}  // namespace cohort::internal::coordinator
