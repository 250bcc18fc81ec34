// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's effects that wait for what becomes of their functions.
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/coordinator/parameters/parameter_service_impl.h"
#include "cohort/coordinator/parameters/transaction.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kPrepared = "[ps] ";
constexpr uint64_t kMostSettled = 1 << 16;
constexpr uint64_t kMostWaiting = 1 << 24;
// Beyond it functions fail, instead of the server.
constexpr std::size_t kMostPreparedBytes = std::size_t{1} << 30;
constexpr std::size_t kEffectBytes = 256;  // around one

bool is_preparable(const std::string& method) {
  return method == "ps.write" || method == "ps.scatter" || method == "ps.push" ||
         method == "ps.push_rows";
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
  if (*prepared_bytes + data.left() > kMostPreparedBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[schedule_exactly_once] expected changes that wait for the ends of their "
                        "functions to take at most ",
                        kMostPreparedBytes,
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
  COHORT_CHECK_STATE(
      prepared.prepare(closure, attempt, place, std::move(effect)),
      "[schedule_exactly_once] expected the attempt of the function that counts, got one that was "
      "taken for lost; nothing of it is done");
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
    std::vector<PreparedEffect> effects;
    {
      const base::MutexLock lock(prepared_mutex);
      effects = prepared.settle(what, floor);
    }
    uint64_t code = 0;
    std::string text;
    for (const PreparedEffect& each : effects) {
      try {
        const rpc::Payload payload = payload_of(each.bytes);
        PayloadReader inner(kPrepared, payload);
        do_it(changes_once().at(each.method), inner);
      } catch (const Error& e) {
        if (code == 0) text = e.what();
        if (code == 0) code = static_cast<uint64_t>(e.code());
      }
    }
    out.number(code);
    out.text(text);
  }
  in.end();
  data.expect(0);
  base::failpoint("ps.settled");
  return message(out);
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
