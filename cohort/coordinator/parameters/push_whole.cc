// SPDX-License-Identifier: Apache-2.0
//
// Steps that look at a variable as a whole, on their way to the servers.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/push.h"
#include "cohort/coordinator/parameters/shard_rows.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kStatistics = "[parameter_servers] ";

Tensor rows_of(const Tensor& x, RowRange range) {
  return x.dim() == 0 ? x : x.narrow(0, range.first, range.count);
}

// Of a matrix all of its columns, whichever rows these are.
void append_part(rpc::Payload& to, const variables::WholeGradient& by, RowRange range) {
  append_bytes(to, rows_of(by.gradient, range));
  if (by.update.defined()) append_bytes(to, rows_of(by.update, range));
  if (!by.row_means.defined()) return;
  append_bytes(to, rows_of(by.row_means, range));
  append_bytes(to, by.gradient.dim() == 2 ? by.column_means : rows_of(by.column_means, range));
}

bool shares_columns(const WholePush& all) {
  return all.by.row_means.defined() && all.by.gradient.dim() == 2;
}

enum class Messages { kAll, kFirst, kOthers };
// send(shard, request) for each message of those that are meant of each shard.
template <class Send>
void in_whole_messages(const WholePush& all, Messages which, const Send& send) {
  const std::size_t row_bytes = all.by.gradient.nbytes() * (all.by.update.defined() ? 2 : 1) /
                                static_cast<std::size_t>(std::max<int64_t>(1, all.variable.rows()));
  const auto most = static_cast<int64_t>(
      std::max<std::size_t>(1, kMessageBytes / std::max<std::size_t>(1, row_bytes)));
  for (const BoundShard& shard : all.variable.shards) {
    const int64_t begin = which == Messages::kOthers ? most : 0;
    const int64_t end =
        which == Messages::kFirst ? std::min(most, shard.place.rows) : shard.place.rows;
    for (int64_t first = begin; first < end; first += most) {
      const RowRange range{first, std::min(most, shard.place.rows - first)};
      rpc::MessageWriter header;
      header.number(shard.id);
      write_step(header, all.step);
      write_range(header, range);
      header.number(which == Messages::kOthers ? 0 : 1);
      rpc::Payload request = message(header);
      append_part(request, all.by, {shard.place.first + first, range.count});
      send(shard, request);
    }
  }
}

variables::WholeSums read_sums(const rpc::Payload& payload) {
  PayloadReader data(kStatistics, payload);
  const std::string text = data.header();
  rpc::MessageReader in(kStatistics, text);
  variables::WholeSums out;
  out.value = in.float64();
  out.update = in.float64();
  in.end();
  data.expect(0);
  return out;
}

}  // namespace

// Answers come in any order, and are added in that of the rows: it is the same sum each time.
std::vector<variables::WholeSums> ParameterServers::sums(const std::vector<WholePush>& all) {
  std::vector<std::deque<variables::WholeSums>> parts(all.size());
  Calls calls(options_.timeout);
  for (std::size_t i = 0; i < all.size(); ++i) {
    in_whole_messages(all[i], Messages::kAll,
                      [&](const BoundShard& shard, const rpc::Payload& request) {
                        variables::WholeSums& to = parts[i].emplace_back();
                        calls.start(at(shard), "ps.statistics", request,
                                    [&to](const rpc::Payload& answer) { to = read_sums(answer); });
                      });
  }
  calls.wait();
  std::vector<variables::WholeSums> out(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const variables::WholeSums& each : parts[i]) {
      out[i].value += each.value;
      out[i].update += each.update;
    }
  }
  return out;
}

// Columns that a shard has once move with its first message; the others find them moved.
void ParameterServers::Push::whole(const WholePush& all) {
  const auto send = [&](const BoundShard& shard, const rpc::Payload& request) {
    impl_->servers.change(impl_->calls, shard, "ps.push_whole", request);
  };
  if (!shares_columns(all)) return in_whole_messages(all, Messages::kAll, send);
  in_whole_messages(all, Messages::kFirst, send);
  bool are_moved = false;
  in_whole_messages(all, Messages::kOthers, [&](const BoundShard& shard, const rpc::Payload& rest) {
    if (!std::exchange(are_moved, true)) impl_->calls.wait();
    send(shard, rest);
  });
}

}  // namespace cohort::internal::coordinator
