// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's effects that wait for what becomes of their functions.
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/scope_exit.h"
#include "cohort/coordinator/parameters/parameter_service_impl.h"
#include "cohort/coordinator/parameters/transaction.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kPrepared = "[ps] ";
constexpr uint64_t kMostSettled = 1 << 16;
constexpr uint64_t kMostWaiting = 1 << 24;
constexpr std::size_t kEffectBytes = 256;  // around one

bool is_preparable(const std::string& method) {
  return method == "ps.write" || method == "ps.scatter" || method == "ps.push" ||
         method == "ps.push_rows" || method == "ps.accumulate" || method == "ps.accumulate_rows" ||
         method == "ps.count_push" || method == "ps.push_whole";
}

rpc::Payload payload_of(const std::shared_ptr<const std::string>& bytes) {
  rpc::Payload out;
  out.append({.bytes = std::as_bytes(std::span(*bytes)), .owner = bytes});
  return out;
}

}  // namespace

// A snapshot has the bytes and counts nothing: what is refused is so on every copy of this server.
ParameterService::Impl::PreparedEffect ParameterService::Impl::counted(std::string method,
                                                                       std::string bytes) {
  const std::size_t size = bytes.size() + kEffectBytes;
  *prepared_bytes += size;
  return {.method = std::move(method),
          .bytes = std::make_shared<const std::string>(std::move(bytes)),
          .counted = std::shared_ptr<void>(
              nullptr, [count = prepared_bytes, size](void* /*none*/) { *count -= size; })};
}

rpc::Payload ParameterService::Impl::prepare(rpc::MessageReader& in, PayloadReader& data) {
  const uint64_t closure = in.number();
  const uint64_t attempt = in.number();
  const uint64_t place = in.number();
  std::string method = in.text();
  in.end();
  COHORT_CHECK_ARG(is_preparable(method), kPrepared, "expected a change of a variable, got \"",
                   method, "\"");
  if (*prepared_bytes + data.left() > options.most_prepared_bytes) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[schedule_exactly_once] expected changes that wait until their functions "
                        "end to take at most ",
                        options.most_prepared_bytes,
                        " bytes of a parameter server, got more; have fewer workers, more servers, "
                        "or functions that change less"));
  }
  std::string bytes(data.left(), '\0');
  data.read(bytes.data(), bytes.size());
  PreparedEffect effect = counted(std::move(method), std::move(bytes));
  {
    const rpc::Payload payload = payload_of(effect.bytes);
    PayloadReader inner(kPrepared, payload);
    const std::string header = inner.header();
    rpc::MessageReader request(kPrepared, header);
    read_id(request);  // else it would be found out when all others are done
  }
  base::failpoint("ps.prepares");
  const base::MutexLock lock(prepared_mutex);
  COHORT_CHECK_STATE(prepared.prepare(closure, attempt, place, std::move(effect)),
                     "[schedule_exactly_once] this attempt of the function comes too late: its "
                     "worker was taken for "
                     "lost, and another attempt has begun; none of this one's changes are applied");
  return message({});
}

rpc::Payload ParameterService::Impl::settle(rpc::MessageReader& in, PayloadReader& data) {
  const uint64_t floor = in.number();
  base::failpoint("ps.settles");
  {
    const base::MutexLock lock(prepared_mutex);
    prepared.raise_floor(floor);
  }
  rpc::MessageWriter out;
  for (uint64_t left = in.number_up_to(kMostSettled); left > 0; --left) {
    replication::Settlement what{.closure = in.number()};
    what.attempt = in.number();
    what.count = in.number();
    const replication::ClosureFailure failure = settle_one(what, floor);
    out.number(failure.code);
    out.text(failure.text);
  }
  in.end();
  data.expect(0);
  base::failpoint("ps.settled");
  return message(out);
}

// Who is told again, because an answer was lost, gets the answer of the first time: it may still be
// under way, and what it has met is not met again.
replication::ClosureFailure ParameterService::Impl::settle_one(const replication::Settlement& what,
                                                               uint64_t floor) {
  std::vector<PreparedEffect> effects;
  {
    const base::MutexLock lock(prepared_mutex);
    applied.wait(prepared_mutex, [&]() COHORT_REQUIRES(prepared_mutex) {
      return !prepared.is_being_applied(what.closure);
    });
    effects = prepared.settle(what, floor);
    if (effects.empty()) return prepared.failure_of(what.closure);
  }
  replication::ClosureFailure out;
  {
    const base::ScopeExit over([&] {
      const base::MutexLock lock(prepared_mutex);
      prepared.note_applied(what.closure, out);
      applied.notify_all();
    });
    apply_prepared(effects, out);
  }
  return out;
}

void ParameterService::Impl::apply_prepared(const std::vector<PreparedEffect>& effects,
                                            replication::ClosureFailure& failure) {
  for (const PreparedEffect& each : effects) {
    try {
      base::failpoint("ps.does");
      const rpc::Payload payload = payload_of(each.bytes);
      PayloadReader inner(kPrepared, payload);
      do_it(changes_once().at(each.method), inner);
    } catch (const Error& e) {
      if (failure.code == 0) failure = {static_cast<uint64_t>(e.code()), e.what()};
    } catch (...) {
      if (failure.code == 0) {
        failure = {static_cast<uint64_t>(ErrorCode::kInternal),
                   "[ps] expected to do what was prepared, got an error that has ended it"};
      }
      throw;
    }
  }
}

void ParameterService::Impl::save_prepared(rpc::MessageWriter& head, rpc::Payload& numbers) const {
  const base::MutexLock lock(prepared_mutex);
  const auto& state = prepared.state();
  head.number(state.floor);
  head.number(state.settled.size());
  for (const auto& [first, end] : state.settled) {
    head.number(first);
    head.number(end);
  }
  head.number(state.failed.size());
  for (const auto& [closure, failure] : state.failed) {
    head.number(closure);
    head.number(failure.code);
    head.text(failure.text);
  }
  head.number(state.open.size());
  for (const auto& [closure, attempt] : state.open) {
    head.number(closure);
    head.number(attempt.number);
    head.number(attempt.effects.size());
    for (const auto& [place, effect] : attempt.effects) {
      head.number(place);
      head.text(effect.method);
      head.number(effect.bytes->size());
      numbers.append({.bytes = std::as_bytes(std::span(*effect.bytes)), .owner = effect.bytes});
    }
  }
}

void ParameterService::Impl::load_prepared(rpc::MessageReader& in, PayloadReader& numbers) {
  replication::PreparedEffects<PreparedEffect>::State state;
  state.floor = in.number();
  for (uint64_t left = in.number_up_to(kMostWaiting); left > 0; --left) {
    const uint64_t first = in.number();
    state.settled[first] = in.number();
  }
  for (uint64_t left = in.number_up_to(kMostWaiting); left > 0; --left) {
    replication::ClosureFailure& failure = state.failed[in.number()];
    failure.code = in.number();
    failure.text = in.text();
  }
  for (uint64_t left = in.number_up_to(kMostWaiting); left > 0; --left) {
    const uint64_t closure = in.number();
    auto& attempt = state.open[closure];
    attempt.number = in.number();
    for (uint64_t effects = in.number_up_to(kMostWaiting); effects > 0; --effects) {
      const uint64_t place = in.number();
      std::string method = in.text();
      std::string bytes(in.number_up_to(numbers.left()), '\0');
      numbers.read(bytes.data(), bytes.size());
      attempt.effects[place] = counted(std::move(method), std::move(bytes));
    }
  }
  const base::MutexLock lock(prepared_mutex);
  prepared.restore(std::move(state));
}

}  // namespace cohort::internal::coordinator
