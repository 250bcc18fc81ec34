// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/worker_collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/reductions/local_reduce.h"

namespace cohort::internal::collectives {
namespace {

Bytes bytes_in(const Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()), static_cast<std::size_t>(t.nbytes())};
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a, the same in every process
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

// One number of each worker, in rank order.
template <class T>
std::vector<T> all_of(Communicator& communicator, T here) {
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  all[static_cast<std::size_t>(communicator.rank())] = here;
  std::vector<Bytes> pieces;
  for (T& one : all) pieces.push_back(std::as_writable_bytes(std::span(&one, 1)));
  communicator.all_gather(pieces);
  return all;
}

std::vector<std::string> all_texts(Communicator& communicator, const std::string& here) {
  std::vector<std::string> texts;
  std::vector<Bytes> pieces;
  for (const uint64_t size : all_of<uint64_t>(communicator, here.size()))
    texts.emplace_back(size, ' ');
  texts[static_cast<std::size_t>(communicator.rank())] = here;
  for (std::string& text : texts) pieces.push_back(bytes_of(text));
  communicator.all_gather(pieces);
  return texts;
}

// What each worker says of its value before it sends it, and with it the value itself if it is
// small, so that one exchange does. As long everywhere, whatever the values are.
struct Notice {
  static constexpr std::size_t kMost = 480;
  uint64_t hash = 0;   // of what workers have to agree on
  int64_t length = 0;  // along the axis to join
  uint64_t bytes = 0;  // of the value
  std::array<std::byte, kMost> value = {};
};

Notice notice_of(const std::string& text, ConstBytes value, int64_t length = 0) {
  Notice notice{.hash = hash_of(text), .length = length, .bytes = value.size()};
  if (!value.empty() && value.size() <= Notice::kMost) {
    std::memcpy(notice.value.data(), value.data(), value.size());
  }
  return notice;
}

void put(const Notice& notice, Bytes to) {
  if (!to.empty()) std::memcpy(to.data(), notice.value.data(), to.size());
}

bool have_come_whole(std::span<const Notice> notices) {
  return std::all_of(notices.begin(), notices.end(),
                     [](const Notice& notice) { return notice.bytes <= Notice::kMost; });
}

// Of one value of each local replica: what workers have to agree on.
std::string text_of(const Tensor& value) {
  return str_cat(dtype_name(value.scalar_type()), bracketed(value.sizes()));
}

// Between workers a mean travels as a sum does: what tells them apart.
// And how many values a worker brings, for all divide by the number that it knows.
std::string mean_text(ReduceOp op, std::size_t values) {
  if (op != ReduceOp::kMean) return {};
  return values == 1 ? " for a mean" : str_cat(" for a mean of ", values);
}

// And what tells other reductions from sums.
std::string other_op_text(ReduceOp op) {
  return op == ReduceOp::kSum ? "" : str_cat(" for a ", reduce_op_name(op));
}

// Memory of its own, in a row.
Tensor copy_in_a_row(const Tensor& value) {
  const Tensor row = reductions::in_a_row(value.detach());
  return row.is_alias_of(value) ? row.clone() : row;
}

// All have seen the same notices, so all come to the same end.
void check_hashes(Communicator& communicator, const char* operation, const char* what,
                  const std::string& text, std::span<const Notice> notices) {
  if (std::all_of(notices.begin(), notices.end(),
                  [&](const Notice& notice) { return notice.hash == notices[0].hash; })) {
    return;
  }
  const std::vector<std::string> texts = all_texts(communicator, text);
  for (std::size_t w = 1; w < texts.size(); ++w) {
    COHORT_CHECK_STATE(texts[w] == texts[0], operation, "expected the same ", what,
                       " on every worker, got ", texts[0], " on worker 0 and ", texts[w],
                       " on worker ", w);
  }
}

std::vector<Notice> exchange_notices(Communicator& communicator, const char* operation,
                                     const char* what, const std::string& text, ConstBytes value,
                                     int64_t length = 0) {
  std::vector<Notice> notices = all_of(communicator, notice_of(text, value, length));
  check_hashes(communicator, operation, what, text, notices);
  return notices;
}

void check_now(Communicator& communicator, const char* operation, const char* what,
               const std::string& text) {
  if (communicator.size() == 1) return;
  exchange_notices(communicator, operation, what, text, {});
}

// As Communicator::all_reduce() does it.
void add_notices(std::span<const Notice> notices, ReduceOp op, const Tensor& total) {
  c10::SmallVector<const void*, 8> sources;
  for (const Notice& notice : notices) sources.push_back(notice.value.data());
  void* const outs[] = {total.mutable_data_ptr()};
  reductions::reduce_range({.op = op,
                            .dtype = total.scalar_type(),
                            .sources = {sources.data(), sources.size()},
                            .outs = outs,
                            .begin = 0,
                            .end = total.numel(),
                            .divisor = static_cast<double>(sources.size()),
                            .memory = total.device().type()});
}

Tensor reduce_now(Communicator& communicator, const char* operation, ReduceOp op,
                  std::span<const Tensor> values, const std::string& what) {
  if (communicator.size() == 1) return reductions::reduce_in_order(op, values);
  const at::NoGradGuard no_grad;
  COHORT_CHECK_ARG(!values.empty(), operation, "expected at least 1 value, got none");
  reductions::check_reducible(operation, op, values[0]);
  const ReduceOp step = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  const Tensor local = reductions::reduce_in_order(step, values);
  const Tensor total = values.size() == 1 ? copy_in_a_row(local) : local;
  const std::string text =
      str_cat(what, text_of(values[0]), mean_text(op, values.size()), other_op_text(step));
  const std::vector<Notice> notices =
      exchange_notices(communicator, operation, "value", text, bytes_in(total));
  if (have_come_whole(notices)) {
    add_notices(notices, step, total);
  } else {
    communicator.all_reduce(bytes_in(total), total.scalar_type(), step);
  }
  if (op == ReduceOp::kMean) {
    divide_by_count(total,
                    static_cast<double>(communicator.size()) * static_cast<double>(values.size()));
  }
  return total;
}

Tensor gather_now(Communicator& communicator, const char* operation, const Tensor& value,
                  int64_t axis, std::vector<int64_t>* sizes, const std::string& what) {
  const int64_t along = reductions::check_joinable(operation, std::span(&value, 1), axis);
  if (communicator.size() == 1) {
    if (sizes != nullptr) *sizes = {value.size(along)};
    return value;
  }
  const at::NoGradGuard no_grad;
  Shape others = shape_of(value);
  others.erase(others.begin() + along);
  const Tensor mine = reductions::in_a_row(value.detach());
  const std::vector<Notice> notices = exchange_notices(
      communicator, operation, "value but for the axis to join",
      str_cat(what, dtype_name(value.scalar_type()), bracketed(others), " along axis ", along),
      bytes_in(mine), value.size(along));
  std::vector<int64_t> lengths;
  std::vector<Tensor> parts;
  std::vector<Bytes> pieces;
  for (std::size_t w = 0; w < notices.size(); ++w) {
    lengths.push_back(notices[w].length);
    Shape shape = shape_of(value);
    shape[static_cast<std::size_t>(along)] = notices[w].length;
    const bool here = static_cast<int>(w) == communicator.rank();
    parts.push_back(here ? mine : at::empty(shape, value.options().requires_grad(false)));
    pieces.push_back(bytes_in(parts.back()));
  }
  if (!have_come_whole(notices)) {
    communicator.all_gather(pieces);
  } else {
    for (std::size_t w = 0; w < pieces.size(); ++w) {
      if (static_cast<int>(w) != communicator.rank()) put(notices[w], pieces[w]);
    }
  }
  if (sizes != nullptr) *sizes = lengths;
  return concat(parts, along);
}

IndexedSlices join_now(Communicator& communicator, const char* operation, ReduceOp op,
                       std::span<const IndexedSlices> values) {
  if (communicator.size() == 1) return reductions::join_slices(operation, op, values);
  const at::NoGradGuard no_grad;
  const ReduceOp step = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  const IndexedSlices local = reductions::join_slices(operation, step, values);
  reductions::check_reducible(operation, op, local.values);
  check_now(communicator, operation, "table to have rows of",
            str_cat(bracketed(local.dense_shape), mean_text(op, values.size())));
  Tensor rows = gather_now(communicator, operation, local.values, 0, nullptr, {});
  const Tensor indices = gather_now(communicator, operation, local.indices, 0, nullptr, {});
  const auto count = static_cast<double>(communicator.size()) * static_cast<double>(values.size());
  if (op == ReduceOp::kMean) rows = rows.div(count);
  return {.values = rows, .indices = indices, .dense_shape = local.dense_shape};
}

Tensor broadcast_now(Communicator& communicator, const char* operation, const std::string& what,
                     const Tensor& value, int root) {
  if (communicator.size() == 1) return value;
  const at::NoGradGuard no_grad;
  const Tensor out = copy_in_a_row(value);
  const std::vector<Notice> notices = exchange_notices(
      communicator, operation, "value", str_cat(what, " ", text_of(value)), bytes_in(out));
  if (have_come_whole(notices)) {
    put(notices[static_cast<std::size_t>(root)], bytes_in(out));
  } else {
    communicator.broadcast(bytes_in(out), root);
  }
  return out;
}

// Messages carry the host's memory: values of a device come by there, and results go back.
std::vector<Tensor> on_host(std::span<const Tensor> values) {
  std::vector<Tensor> out;
  for (const Tensor& value : values) {
    out.push_back(value.defined() && !value.is_cpu() ? value.cpu() : value);
  }
  return out;
}

bool is_on_device(const Tensor& value) { return value.defined() && !value.is_cpu(); }

}  // namespace

void check_same_on_workers(Communicator& communicator, const char* operation, const char* what,
                           const std::string& text) {
  communicator.take_turn(operation, [&] { check_now(communicator, operation, what, text); });
}

Tensor reduce_across(Communicator& communicator, const char* operation, ReduceOp op,
                     std::span<const Tensor> values, const std::string& what) {
  if (std::any_of(values.begin(), values.end(), is_on_device)) {
    const c10::Device there = values[0].device();
    return reduce_across(communicator, operation, op, on_host(values), what).to(there);
  }
  Tensor out;
  communicator.take_turn(operation,
                         [&] { out = reduce_now(communicator, operation, op, values, what); });
  return out;
}

Tensor gather_across(Communicator& communicator, const char* operation, const Tensor& value,
                     int64_t axis, std::vector<int64_t>* sizes, const std::string& what) {
  if (is_on_device(value)) {
    return gather_across(communicator, operation, value.cpu(), axis, sizes, what)
        .to(value.device());
  }
  Tensor out;
  communicator.take_turn(
      operation, [&] { out = gather_now(communicator, operation, value, axis, sizes, what); });
  return out;
}

IndexedSlices join_across(Communicator& communicator, const char* operation, ReduceOp op,
                          std::span<const IndexedSlices> values) {
  if (!values.empty() && is_on_device(values[0].values)) {
    const c10::Device there = values[0].values.device();
    std::vector<IndexedSlices> here;
    for (const IndexedSlices& rows : values) {
      here.push_back({rows.values.cpu(), rows.indices.cpu(), rows.dense_shape});
    }
    const IndexedSlices out = join_across(communicator, operation, op, here);
    return {out.values.to(there), out.indices.to(there), out.dense_shape};
  }
  IndexedSlices out;
  communicator.take_turn(operation, [&] { out = join_now(communicator, operation, op, values); });
  return out;
}

Tensor broadcast_across(Communicator& communicator, const char* operation, const std::string& what,
                        const Tensor& value, int root) {
  if (is_on_device(value)) {
    return broadcast_across(communicator, operation, what, value.cpu(), root).to(value.device());
  }
  Tensor out;
  communicator.take_turn(operation,
                         [&] { out = broadcast_now(communicator, operation, what, value, root); });
  return out;
}

std::vector<std::byte> gather_bytes(Communicator& communicator, const char* operation,
                                    ConstBytes here) {
  const auto workers = static_cast<std::size_t>(communicator.size());
  std::vector<std::byte> all(here.size() * workers);
  std::vector<Bytes> pieces;
  for (std::size_t w = 0; w < workers; ++w) {
    pieces.push_back(Bytes(all).subspan(w * here.size(), here.size()));
  }
  const auto rank = static_cast<std::size_t>(communicator.rank());
  std::copy(here.begin(), here.end(), pieces[rank].begin());
  communicator.take_turn(operation, [&] { communicator.all_gather(pieces); });
  return all;
}

std::vector<std::string> gather_texts(Communicator& communicator, const char* operation,
                                      const std::string& here) {
  std::vector<std::string> texts;
  communicator.take_turn(operation, [&] { texts = all_texts(communicator, here); });
  return texts;
}

void divide_by_count(const Tensor& total, double count) {
  const void* const sources[] = {total.const_data_ptr()};
  void* const outs[] = {total.mutable_data_ptr()};
  reductions::reduce_range({.op = ReduceOp::kMean,
                            .dtype = total.scalar_type(),
                            .sources = sources,
                            .outs = outs,
                            .begin = 0,
                            .end = total.numel(),
                            .divisor = count,
                            .memory = total.device().type()});
}

int64_t sum_across(Communicator& communicator, int64_t here) {
  std::array<int64_t, 1> sum = {here};
  communicator.take_turn("sum_of_workers", [&] { communicator.all_reduce(bytes_of(sum), kInt64); });
  return sum[0];
}

}  // namespace cohort::internal::collectives
