// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/transaction.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal::coordinator {
namespace {

thread_local Transaction* t_transaction = nullptr;

}  // namespace

Transaction::Transaction(uint64_t closure, uint64_t attempt)
    : closure_(closure), attempt_(attempt), before_(std::exchange(t_transaction, this)) {}
Transaction::~Transaction() { t_transaction = before_; }
Transaction* Transaction::current() { return t_transaction; }

WithoutTransaction::WithoutTransaction() : before_(std::exchange(t_transaction, nullptr)) {}
WithoutTransaction::~WithoutTransaction() { t_transaction = before_; }

rpc::Payload Transaction::prepared(int server, const char* method, const rpc::Payload& request) {
  const auto index = static_cast<std::size_t>(server);
  counts_.resize(std::max(counts_.size(), index + 1));
  rpc::MessageWriter header;
  header.number(closure_);
  header.number(attempt_);
  header.number(counts_[index]++);
  header.text(method);
  rpc::Payload out = message(header);
  for (const rpc::Payload::Piece& piece : request.pieces()) out.append(piece);
  return out;
}

// Else an effect might be missing that a server refused, or be there though the function was told
// that it is not.
const std::vector<uint64_t>& Transaction::counts() const {
  const uint64_t begun = std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
  COHORT_CHECK_STATE(begun == acknowledged_,
                     "[schedule_exactly_once] expected a function whose changes all succeed, or "
                     "that throws, got one that has caught the errors of ",
                     begun - acknowledged_, " of them; none of its changes are applied");
  return counts_;
}

void ParameterServers::change(Calls& calls, const BoundShard& shard, const char* method,
                              const rpc::Payload& request,
                              const std::function<void(const rpc::Payload&)>& take) {
  Transaction* const once = Transaction::current();
  if (once == nullptr) return calls.start_once(numbers_at(shard), method, request, take);
  base::failpoint("worker.prepares");
  calls.start_once(numbers_at(shard), kPrepareMethod,
                   once->prepared(shard.place.server, method, request),
                   [once](const rpc::Payload&) { once->acknowledge(); });
}

void ParameterServers::settle(const std::vector<ClosureSettlement>& all, uint64_t floor,
                              std::vector<std::exception_ptr>& errors) {
  errors.resize(all.size());
  Calls calls(options_.timeout);
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    rpc::MessageWriter header;
    header.number(floor);
    header.number(all.size());
    for (const ClosureSettlement& each : all) {
      header.number(each.closure);
      header.number(each.attempt);
      header.number(server < each.counts.size() ? each.counts[server] : 0);
    }
    const auto take = [&errors](const rpc::Payload& payload) {
      PayloadReader data("[parameter_servers] ", payload);
      const std::string text = data.header();
      rpc::MessageReader in("[parameter_servers] ", text);
      for (std::exception_ptr& each : errors) {
        const uint64_t code = in.number_up_to(static_cast<uint64_t>(rpc::kUnauthenticatedCode));
        const std::string what = in.text();
        if (code != 0 && !each) each = rpc::error_with(static_cast<ErrorCode>(code), what, "");
      }
      in.end();
    };
    calls.start_once(*numbers_[server], kSettleMethod, message(header), take);
  }
  calls.wait();
}

}  // namespace cohort::internal::coordinator
