// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/push_sum.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace cohort::internal::coordinator {

void write_stamp(rpc::MessageWriter& out, const PushStamp& stamp) {
  out.number(stamp.needed);
  out.number(stamp.drops_late ? 1 : 0);
  out.number(stamp.step);
}

PushStamp read_stamp(rpc::MessageReader& in) {
  PushStamp out;
  out.needed = std::max<uint64_t>(1, in.number());
  out.drops_late = in.number_up_to(1) == 1;
  out.step = in.number();
  return out;
}

bool PushSum::takes(const PushStamp& stamp) {
  if (stamp.step < step_) return !stamp.drops_late;
  if (count_ == 0) step_ = stamp.step;
  return true;
}

// A snapshot may have a share of what is there: it is replaced, not changed, unless it is this
// object's alone.
void PushSum::add(Tensor dense, double scale) {
  const at::NoGradGuard no_grad;
  ++count_;
  if (!dense_.defined()) {
    if (scale != 1) dense.mul_(scale);
    dense_ = std::move(dense);
  } else if (dense_.use_count() > 1) {
    dense_ = dense_.add(dense, scale);
  } else {
    dense_.add_(dense, scale);
  }
}

void PushSum::add(variables::RowSum rows, double scale, bool others_too) {
  const at::NoGradGuard no_grad;
  ++count_;
  others_too_ = others_too_ || others_too;
  if (rows.rows.empty()) return;
  if (scale != 1) rows.values.mul_(scale);
  if (rows_.rows.empty()) {
    rows_ = std::move(rows);
    return;
  }
  const variables::RowSum* const parts[] = {&rows_, &rows};
  const int64_t end = std::max(rows_.rows.back(), rows.rows.back()) + 1;
  rows_ = variables::sum_rows(parts, 0, end);
}

void PushSum::begin_next() {
  const uint64_t next = step_ + 1;
  *this = PushSum();
  step_ = next;
}

Tensor PushSum::dense_of(int64_t rows) const {
  if (!dense_.defined() || rows_.rows.empty()) return dense_;
  return dense_.add(rows_.to_dense({rows, dense_.size(1)}));
}

std::size_t PushSum::bytes() const {
  return (dense_.defined() ? dense_.nbytes() : 0) +
         (rows_.rows.empty() ? 0 : rows_.values.nbytes() + rows_.rows.size() * sizeof(int64_t));
}

std::size_t PushSum::room_for(std::optional<std::size_t> named, std::size_t row_bytes,
                              std::size_t rows) const {
  const std::size_t all = rows * row_bytes;
  if (!named) {
    const bool is_there = dense_.defined() && dense_.use_count() == 1;
    return (is_there ? 0 : all) + (rows_.rows.empty() ? 0 : 2 * all);  // dense_of()
  }
  const std::size_t sum = std::min(rows, rows_.rows.size() + *named);
  return sum * (row_bytes + sizeof(int64_t)) + (dense_.defined() ? 2 * all : 0);
}

void PushSum::save(rpc::MessageWriter& out, rpc::Payload& numbers) const {
  out.number(step_);
  out.number(count_);
  out.number(others_too_ ? 1 : 0);
  out.number(last_ ? 1 : 0);
  if (last_) write_step(out, *last_);
  out.number(dense_.defined() ? 1 : 0);
  if (dense_.defined()) append_bytes(numbers, dense_);
  out.number(rows_.rows.size());
  if (rows_.rows.empty()) return;
  append_rows(numbers, rows_.rows);
  append_bytes(numbers, rows_.values);
}

PushSum PushSum::load(rpc::MessageReader& in, PayloadReader& numbers, const Shape& by_rows,
                      DType dtype) {
  PushSum out;
  out.step_ = in.number();
  out.count_ = in.number();
  out.others_too_ = in.number_up_to(1) == 1;
  if (in.number_up_to(1) == 1) out.last_ = read_step(in);
  const auto read = [&](int64_t rows) {
    Tensor x = empty({rows, by_rows[1]}, dtype);
    if (x.nbytes() > 0) numbers.read(x.mutable_data_ptr(), x.nbytes());
    return x;
  };
  if (in.number_up_to(1) == 1) out.dense_ = read(by_rows[0]);
  const uint64_t rows = in.number_up_to(static_cast<uint64_t>(by_rows[0]));
  if (rows == 0) return out;
  out.rows_.rows = numbers.ascending_rows(rows, by_rows[0]);
  out.rows_.values = read(static_cast<int64_t>(rows));
  return out;
}

}  // namespace cohort::internal::coordinator
