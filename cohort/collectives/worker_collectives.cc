// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/worker_collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/reductions/local_reduce.h"

namespace cohort::internal {
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

// Of one value of each local replica: what workers have to agree on.
std::string text_of(const Tensor& value) {
  return str_cat(dtype_name(value.scalar_type()), bracketed(value.sizes()));
}

// Between workers a mean travels as a sum does: what tells them apart.
const char* mean_text(ReduceOp op) { return op == ReduceOp::kMean ? " for a mean" : ""; }

// Memory of its own, in a row.
Tensor copy_in_a_row(const Tensor& value) {
  const Tensor row = in_a_row(value.detach());
  return row.is_alias_of(value) ? row.clone() : row;
}

void check_now(Communicator& communicator, const char* operation, const char* what,
               const std::string& text) {
  if (communicator.size() == 1) return;
  const std::vector<uint64_t> hashes = all_of(communicator, hash_of(text));
  if (std::all_of(hashes.begin(), hashes.end(), [&](uint64_t h) { return h == hashes[0]; })) return;
  // All have seen it, so all come here.
  const std::vector<std::string> texts = all_texts(communicator, text);
  for (std::size_t w = 1; w < texts.size(); ++w) {
    COHORT_CHECK_STATE(texts[w] == texts[0], operation, "expected the same ", what,
                       " on every worker, got ", texts[0], " on worker 0 and ", texts[w],
                       " on worker ", w);
  }
}

Tensor reduce_now(Communicator& communicator, const char* operation, ReduceOp op,
                  std::span<const Tensor> values, const std::string& what) {
  if (communicator.size() == 1) return reduce_in_order(op, values);
  const at::NoGradGuard no_grad;
  COHORT_CHECK_ARG(!values.empty(), operation, "expected at least 1 value, got none");
  check_reducible(operation, op, values[0]);
  check_now(communicator, operation, "value", str_cat(what, text_of(values[0]), mean_text(op)));
  const ReduceOp step = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  const Tensor local = reduce_in_order(step, values);
  const Tensor total = values.size() == 1 ? copy_in_a_row(local) : local;
  communicator.all_reduce(bytes_in(total), total.scalar_type(), step);
  if (op == ReduceOp::kMean) {
    divide_by_count(total,
                    static_cast<double>(communicator.size()) * static_cast<double>(values.size()));
  }
  return total;
}

Tensor gather_now(Communicator& communicator, const char* operation, const Tensor& value,
                  int64_t axis, std::vector<int64_t>* sizes, const std::string& what) {
  const int64_t along = check_joinable(operation, std::span(&value, 1), axis);
  if (communicator.size() == 1) {
    if (sizes != nullptr) *sizes = {value.size(along)};
    return value;
  }
  const at::NoGradGuard no_grad;
  Shape others = shape_of(value);
  others.erase(others.begin() + along);
  check_now(
      communicator, operation, "value but for the axis to join",
      str_cat(what, dtype_name(value.scalar_type()), bracketed(others), " along axis ", along));
  const std::vector<int64_t> lengths = all_of(communicator, value.size(along));
  std::vector<Tensor> parts;
  std::vector<Bytes> pieces;
  for (std::size_t w = 0; w < lengths.size(); ++w) {
    Shape shape = shape_of(value);
    shape[static_cast<std::size_t>(along)] = lengths[w];
    const bool here = static_cast<int>(w) == communicator.rank();
    parts.push_back(here ? in_a_row(value.detach())
                         : at::empty(shape, value.options().requires_grad(false)));
    pieces.push_back(bytes_in(parts.back()));
  }
  communicator.all_gather(pieces);
  if (sizes != nullptr) *sizes = lengths;
  return concat(parts, along);
}

IndexedSlices join_now(Communicator& communicator, const char* operation, ReduceOp op,
                       std::span<const IndexedSlices> values) {
  if (communicator.size() == 1) return join_slices(operation, op, values);
  const at::NoGradGuard no_grad;
  const ReduceOp step = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  const IndexedSlices local = join_slices(operation, step, values);
  check_reducible(operation, op, local.values);
  check_now(communicator, operation, "table to have rows of",
            str_cat(bracketed(local.dense_shape), mean_text(op)));
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
  check_now(communicator, operation, "value", str_cat(what, " ", text_of(value)));
  const Tensor out = copy_in_a_row(value);
  communicator.broadcast(bytes_in(out), root);
  return out;
}

}  // namespace

void check_same_on_workers(Communicator& communicator, const char* operation, const char* what,
                           const std::string& text) {
  communicator.take_turn(operation, [&] { check_now(communicator, operation, what, text); });
}

Tensor reduce_across(Communicator& communicator, const char* operation, ReduceOp op,
                     std::span<const Tensor> values, const std::string& what) {
  Tensor out;
  communicator.take_turn(operation,
                         [&] { out = reduce_now(communicator, operation, op, values, what); });
  return out;
}

Tensor gather_across(Communicator& communicator, const char* operation, const Tensor& value,
                     int64_t axis, std::vector<int64_t>* sizes, const std::string& what) {
  Tensor out;
  communicator.take_turn(
      operation, [&] { out = gather_now(communicator, operation, value, axis, sizes, what); });
  return out;
}

IndexedSlices join_across(Communicator& communicator, const char* operation, ReduceOp op,
                          std::span<const IndexedSlices> values) {
  IndexedSlices out;
  communicator.take_turn(operation, [&] { out = join_now(communicator, operation, op, values); });
  return out;
}

Tensor broadcast_across(Communicator& communicator, const char* operation, const std::string& what,
                        const Tensor& value, int root) {
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
  reduce_range({.op = ReduceOp::kMean,
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

}  // namespace cohort::internal
