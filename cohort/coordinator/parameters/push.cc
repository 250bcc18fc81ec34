// SPDX-License-Identifier: Apache-2.0
//
// Gradients on their way to the servers.
#include <deque>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/push.h"
#include "cohort/coordinator/parameters/shard_rows.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::coordinator {
namespace {

// A shard's part of a push is one step to all who read it, and so one message.
constexpr std::size_t kMostAccumulated = rpc::kMostMessageBytes - (std::size_t{2} << 20);

void check_one_message(const ParameterHandle& variable, std::size_t shard, std::size_t bytes) {
  COHORT_CHECK_ARG(bytes <= kMostAccumulated,
                   "[optimizer.apply_gradients] expected with sync_replicas a gradient of at most ",
                   kMostAccumulated, " bytes for \"", variable.shard_name(shard), "\", got ", bytes,
                   "; have the variable cut into more shards (variable_partitioner)");
}

PushCount count_in(const rpc::Payload& payload) {
  PayloadReader data("[parameter_servers] ", payload);
  const std::string text = data.header();
  rpc::MessageReader in("[parameter_servers] ", text);
  PushCount out;
  out.step = in.number();
  out.is_late = in.number_up_to(1) == 1;
  in.end();
  return out;
}

}  // namespace

void ParameterServers::Push::Impl::accumulate(const BoundShard& shard, const char* method,
                                              const rpc::Payload& request) {
  servers.change(calls, shard, method, request, [this](const rpc::Payload& answer) {
    if (count_in(answer).is_late) ++late_parts;
  });
}

ParameterServers::Push::Push(ParameterServers& servers) : impl_(std::make_unique<Impl>(servers)) {}
ParameterServers::Push::~Push() = default;
void ParameterServers::Push::wait() { impl_->calls.wait(); }
int ParameterServers::Push::late_parts() const { return impl_->late_parts; }

void ParameterServers::Push::dense(const ParameterHandle& variable, const UpdateStep& step,
                                   const Tensor& gradient) {
  const Tensor rows = by_rows(variable, gradient);
  for (const BoundShard& shard : variable.shards) {
    in_messages(variable, shard.place.rows, [&](int64_t first, int64_t count) {
      rpc::MessageWriter header;
      header.number(shard.id);
      write_step(header, step);
      write_range(header, {first, count});
      rpc::Payload request = message(header);
      append_bytes(request, rows.narrow(0, shard.place.first + first, count));
      impl_->servers.change(impl_->calls, shard, "ps.push", request);
    });
  }
}

// Messages share out the rows of the shard, named or not: each of them has a gradient once.
void ParameterServers::Push::rows(const ParameterHandle& variable, const UpdateStep& step,
                                  const variables::RowSum& gradient, bool others_too) {
  const std::size_t most = rows_of_message(variable);
  for (const BoundShard& shard : variable.shards) {
    const RowPart part = part_of(gradient.rows, shard.place);
    if (part.first == part.last && !others_too) continue;
    int64_t begin = 0;
    std::size_t first = part.first;
    do {
      const std::size_t last = std::min(part.last, first + most);
      const bool is_last = last == part.last;
      const int64_t end = is_last ? shard.place.rows : gradient.rows[last] - shard.place.first;
      rpc::MessageWriter header;
      header.number(shard.id);
      write_step(header, step);
      write_range(header, {begin, end - begin});
      header.number(last - first);
      header.number(others_too ? 1 : 0);
      rpc::Payload request = message(header);
      append_rows(request, local_rows(gradient.rows, {first, last}, shard.place));
      append_bytes(request, gradient.values.narrow(0, static_cast<int64_t>(first),
                                                   static_cast<int64_t>(last - first)));
      impl_->servers.change(impl_->calls, shard, "ps.push_rows", request);
      begin = end;
      first = last;
    } while (first < part.last);
  }
}

void ParameterServers::Push::check(const ParameterHandle& variable) {
  for (std::size_t s = 0; s < variable.shards.size(); ++s) {
    check_one_message(
        variable, s,
        static_cast<std::size_t>(variable.shards[s].place.rows) * variable.row_bytes());
  }
}

void ParameterServers::Push::check(const ParameterHandle& variable,
                                   const variables::RowSum& gradient) {
  for (std::size_t s = 0; s < variable.shards.size(); ++s) {
    const RowPart part = part_of(gradient.rows, variable.shards[s].place);
    check_one_message(variable, s,
                      (part.last - part.first) * (variable.row_bytes() + sizeof(int64_t)));
  }
}

void ParameterServers::Push::accumulate(const ParameterHandle& variable, const UpdateStep& step,
                                        const PushStamp& stamp, const Tensor& gradient) {
  const Tensor rows = by_rows(variable, gradient);
  for (const BoundShard& shard : variable.shards) {
    const Tensor mine = rows.narrow(0, shard.place.first, shard.place.rows);
    rpc::MessageWriter header;
    header.number(shard.id);
    write_step(header, step);
    write_stamp(header, stamp);
    rpc::Payload request = message(header);
    append_bytes(request, mine);
    impl_->accumulate(shard, "ps.accumulate", request);
  }
}

// Also to shards of which no row is named: the push counts there, too.
void ParameterServers::Push::accumulate_rows(const ParameterHandle& variable,
                                             const UpdateStep& step, const PushStamp& stamp,
                                             const variables::RowSum& gradient, bool others_too) {
  for (const BoundShard& shard : variable.shards) {
    const RowPart part = part_of(gradient.rows, shard.place);
    const std::size_t count = part.last - part.first;
    rpc::MessageWriter header;
    header.number(shard.id);
    write_step(header, step);
    write_stamp(header, stamp);
    header.number(count);
    header.number(others_too ? 1 : 0);
    rpc::Payload request = message(header);
    if (count > 0) {
      append_rows(request, local_rows(gradient.rows, part, shard.place));
      append_bytes(request, gradient.values.narrow(0, static_cast<int64_t>(part.first),
                                                   static_cast<int64_t>(count)));
    }
    impl_->accumulate(shard, "ps.accumulate_rows", request);
  }
}

std::optional<PushCount> ParameterServers::count_push(const ParameterHandle& counter,
                                                      const PushStamp& stamp) {
  rpc::MessageWriter header;
  header.number(counter.shards.front().id);
  write_stamp(header, stamp);
  std::optional<PushCount> out;
  Calls calls(options_.timeout);
  change(calls, counter.shards.front(), "ps.count_push", message(header),
         [&out](const rpc::Payload& answer) { out = count_in(answer); });
  calls.wait();
  return out;
}

// Each by itself: one that has ended is no matter of the others.
std::vector<std::optional<uint64_t>> ParameterServers::push_steps(
    const std::vector<ParameterHandle>& counters) {
  std::vector<std::optional<uint64_t>> out(counters.size());
  std::deque<Calls> each;
  for (std::size_t i = 0; i < counters.size(); ++i) {
    const BoundShard& shard = counters[i].shards.front();
    rpc::MessageWriter header;
    header.number(shard.id);
    each.emplace_back(options_.timeout)
        .start(at(shard), "ps.push_step", message(header),
               [&out, i](const rpc::Payload& answer) { out[i] = count_in(answer).step; });
  }
  for (Calls& one : each) {
    try {
      one.wait();
    } catch (const FailedPrecondition&) {  // it is not there any more
    }
  }
  return out;
}

uint64_t ParameterServers::complete_update(const std::vector<ParameterHandle>& variables,
                                           const std::string& set, const ParameterHandle& counter) {
  Calls calls(options_.timeout);
  for (const ParameterHandle& variable : variables) {
    for (const BoundShard& shard : variable.shards) {
      rpc::MessageWriter header;
      header.number(shard.id);
      header.text(set);
      calls.start_once(numbers_at(shard), "ps.complete_update", message(header));
    }
  }
  calls.wait();
  const BoundShard& shard = counter.shards.front();
  rpc::MessageWriter header;
  header.number(shard.id);
  uint64_t out = 0;
  calls.start_once(numbers_at(shard), "ps.complete_count", message(header),
                   [&out](const rpc::Payload& answer) { out = count_in(answer).step; });
  calls.wait();
  return out;
}

}  // namespace cohort::internal::coordinator
