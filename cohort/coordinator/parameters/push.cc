// SPDX-License-Identifier: Apache-2.0
//
// Gradients on their way to the servers.
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/shard_rows.h"

namespace cohort::internal::coordinator {

struct ParameterServers::Push::Impl {
  explicit Impl(ParameterServers& all) : servers(all), calls(all.options_.timeout) {}
  ParameterServers& servers;
  Calls calls;
};

ParameterServers::Push::Push(ParameterServers& servers) : impl_(std::make_unique<Impl>(servers)) {}
ParameterServers::Push::~Push() = default;
void ParameterServers::Push::wait() { impl_->calls.wait(); }

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

}  // namespace cohort::internal::coordinator
