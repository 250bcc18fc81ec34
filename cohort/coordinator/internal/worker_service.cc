// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/worker_service.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/mutex.h"
#include "cohort/coordinator/function.h"
#include "cohort/coordinator/internal/run_messages.h"
#include "cohort/coordinator/internal/worker_resources.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

// A coordinator sends one message at a time; more than a few are not its.
constexpr std::size_t kMostMessages = 16;
// What takes longer than this in all, or answers with more, is answered in several messages.
constexpr std::chrono::milliseconds kMostTime{3};
constexpr std::size_t kMostAnswerBytes = 8 << 20;
// With room for what stands around it.
constexpr std::size_t kMostResultBytes = rpc::kMostMessageBytes - (1 << 20);

}  // namespace

struct WorkerService::Impl {
  struct Waiting {
    rpc::RpcRequest request;
    rpc::RpcReply reply;
  };
  /// What one coordinator has here.
  struct Session {
    Session(const Options& options, const WorkerPlace& place)
        : strategy(options.make_strategy ? std::optional(options.make_strategy(place))
                                         : std::nullopt),
          resources({.worker = options.place.worker,
                     .workers = options.place.spec.num_tasks("worker"),
                     .strategy = strategy,
                     .variable = options.variable}) {}
    std::optional<Strategy> strategy;
    WorkerResources resources;
  };

  explicit Impl(Options given) : options(std::move(given)) {}

  void accept(rpc::RpcRequest request, const rpc::RpcReply& reply) {
    const base::MutexLock lock(mutex);
    if (waiting.size() >= kMostMessages) {
      throw Error(ErrorCode::kResourceExhausted,
                  str_cat("worker ", options.place.worker, " has ", waiting.size(),
                          " messages of functions to run already"));
    }
    waiting.push_back({std::move(request), reply});
    changed.notify_all();
  }

  void work() {
    runtime::set_thread_name("cohort-worker");
    while (auto next = wait_for_next()) {
      try {
        answer(next->request, next->reply);
      } catch (const std::exception& e) {
        next->reply.fail(e);
      }
    }
    session.reset();  // on the thread that has made it
  }

  std::optional<Waiting> wait_for_next() {
    const base::MutexLock lock(mutex);
    changed.wait(mutex, [this]() COHORT_REQUIRES(mutex) { return ends || !waiting.empty(); });
    if (ends) return std::nullopt;
    Waiting out = std::move(waiting.front());
    waiting.pop_front();
    return out;
  }

  void answer(const rpc::RpcRequest& message, const rpc::RpcReply& reply) {
    const RunRequest request = run_request_of(message.payload);
    options.check_session(request.session, message.caller.generation);
    if (!session || session_number != request.session) {
      session.reset();  // first: what the old one holds is let go
      WorkerPlace place = options.place;
      place.generation = message.caller.generation;
      place.sync_pushes = request.sync_pushes;
      session.emplace(options, place);
      session_number = request.session;
    }
    base::failpoint("worker.received");
    std::optional<Scope> scope;
    if (session->strategy) scope.emplace(session->strategy->scope());
    for (const uint64_t id : request.dropped) session->resources.drop(id);
    for (const ResourceRecipe& recipe : request.made) session->resources.make(recipe);
    rpc::Payload out = to_payload(run_calls(request.calls));
    base::failpoint("worker.before_answer");
    reply.send(std::move(out));
    base::failpoint("worker.answered");
  }

  RunAnswer run_calls(const std::vector<CallRequest>& calls) {
    const auto begun = Clock::now();
    RunAnswer out;
    std::size_t bytes = 0;
    for (const CallRequest& call : calls) {
      CallAnswer one{.id = call.id};
      const bool is_late = Clock::now() - begun > kMostTime || bytes > kMostAnswerBytes;
      if (out.calls.empty() || !is_late) run_call(call, one);
      bytes += one.value.size();
      out.calls.push_back(std::move(one));
    }
    const auto took = Clock::now() - begun;
    out.nanoseconds =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
    return out;
  }

  void run_call(const CallRequest& call, CallAnswer& out) {
    out.state = CallAnswer::State::kError;
    try {
      const RegisteredFunction& entry = registered_function(call.function, "[schedule] ");
      COHORT_CHECK_ARG(entry.call != nullptr,
                       "[schedule] expected a function whose result is a "
                       "nest or void, got \"",
                       call.function, "\"");
      const RunningFunction running(options.place.worker);
      if (options.begin_function && session->strategy) options.begin_function(*session->strategy);
      ValueReader in(call.arguments);
      ValueWriter result(ValueWriter::Use::kLast);
      std::optional<Transaction> once;
      if (call.attempt > 0) once.emplace(call.id, call.attempt);
      base::failpoint("worker.before_function");
      entry.call(entry.function, in, session->resources, result);
      base::failpoint("worker.after_function");
      if (once) out.prepared = once->counts();
      out.value = std::move(result).finish();
      COHORT_CHECK_ARG(out.value.size() <= kMostResultBytes, "[schedule] expected a result of \"",
                       call.function, "\" of at most ", kMostResultBytes, " bytes, got ",
                       out.value.size(), "; put what is larger into variables or files");
      out.state = CallAnswer::State::kValue;
    } catch (...) {
      out.error = std::current_exception();
      out.value = {};
    }
  }

  const Options options;
  base::Mutex mutex;
  std::condition_variable_any changed;
  std::deque<Waiting> waiting COHORT_GUARDED_BY(mutex);
  bool ends COHORT_GUARDED_BY(mutex) = false;
  // The working thread's:
  std::optional<Session> session;
  uint64_t session_number = 0;
  std::thread thread;
};

WorkerService::WorkerService(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->work(); });
}

WorkerService::~WorkerService() {
  {
    const base::MutexLock lock(impl_->mutex);
    impl_->ends = true;
    impl_->changed.notify_all();
  }
  impl_->thread.join();
}

std::map<std::string, rpc::RpcHandler> WorkerService::methods() {
  return {{kRunMethod, [this](rpc::RpcRequest request, const rpc::RpcReply& reply) {
             impl_->accept(std::move(request), reply);
           }}};
}

}  // namespace cohort::internal::coordinator
