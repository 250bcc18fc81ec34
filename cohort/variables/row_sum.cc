// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/row_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cohort/values/internal/add_rows.h"

namespace cohort::internal::variables {
namespace {

struct NumberedRow {
  int64_t row;
  int64_t position;
};

// By rows; equal ones stay in their order. As many passes as the largest number has digits.
void sort_rows(std::vector<NumberedRow>& rows, int64_t largest) {
  constexpr int kDigit = 11;
  constexpr int64_t kMask = (int64_t{1} << kDigit) - 1;
  std::vector<NumberedRow> other(rows.size());
  for (int shift = 0; shift < 63 && (largest >> shift) > 0; shift += kDigit) {
    std::array<std::size_t, kMask + 2> starts = {};
    for (const NumberedRow& one : rows) {
      ++starts[static_cast<std::size_t>((one.row >> shift) & kMask) + 1];
    }
    for (std::size_t d = 1; d < starts.size(); ++d) starts[d] += starts[d - 1];
    for (const NumberedRow& one : rows) {
      other[starts[static_cast<std::size_t>((one.row >> shift) & kMask)]++] = one;
    }
    rows.swap(other);
  }
}

std::vector<NumberedRow> in_order(const Tensor& indices) {
  const Tensor index = (indices.is_cpu() ? indices : indices.cpu()).to(kInt64).contiguous();
  const auto* at = index.const_data_ptr<int64_t>();
  std::vector<NumberedRow> rows(static_cast<std::size_t>(index.numel()));
  int64_t largest = 0;
  bool ascends = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {at[i], static_cast<int64_t>(i)};
    ascends = ascends && at[i] >= largest;
    largest = std::max(largest, at[i]);
  }
  if (!ascends) sort_rows(rows, largest);
  return rows;
}

template <class T>
void add_row(T* __restrict out, const T* __restrict in, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) out[i] = out[i] + in[i];
}

Tensor zero_rows(const Tensor& like, std::size_t count) {
  Shape shape = shape_of(like);
  shape[0] = static_cast<int64_t>(count);
  return at::zeros(shape, like.options().requires_grad(false));
}

// The bits of adding the row to zeros, of which there need be none: -0 becomes 0.
template <class T>
void first_row(T* __restrict out, const T* __restrict in, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) out[i] = in[i] + T(0);
}

// The rows one after another, those of one number into one.
template <class T>
void add_in_order(const std::vector<NumberedRow>& order, const T* from, T* to, std::size_t width) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    const T* const row = from + static_cast<std::size_t>(order[i].position) * width;
    if (i > 0 && order[i].row == order[i - 1].row) {
      add_row(to, row, width);
      continue;
    }
    if (i > 0) to += width;
    first_row(to, row, width);
  }
}

// A part's rows from `first` on, to those that `out` has.
template <class T>
void add_part(const RowSum& part, int64_t first, std::size_t width, RowSum* out) {
  T* const to = out->values.mutable_data_ptr<T>();
  const T* const from = part.values.const_data_ptr<T>();
  auto at = std::lower_bound(part.rows.begin(), part.rows.end(), first);
  for (std::size_t i = 0; i < out->rows.size() && at != part.rows.end(); ++i) {
    if (*at != out->rows[i]) continue;
    add_row(to + i * width, from + static_cast<std::size_t>(at - part.rows.begin()) * width, width);
    ++at;
  }
}

// The rows of all parts that lie in [first, last), each once.
std::vector<int64_t> united(std::span<const RowSum* const> parts, int64_t first, int64_t last) {
  std::vector<int64_t> rows;
  for (const RowSum* part : parts) {
    const auto begin = std::lower_bound(part->rows.begin(), part->rows.end(), first);
    const auto end = std::lower_bound(begin, part->rows.end(), last);
    const auto before = static_cast<std::ptrdiff_t>(rows.size());
    rows.insert(rows.end(), begin, end);
    std::inplace_merge(rows.begin(), rows.begin() + before, rows.end());
  }
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

RowSum part_of(const RowSum& all, int64_t first, int64_t last) {
  const auto begin = std::lower_bound(all.rows.begin(), all.rows.end(), first);
  const auto end = std::lower_bound(begin, all.rows.end(), last);
  return {{begin, end}, all.values.narrow(0, begin - all.rows.begin(), end - begin)};
}

// ---- values on GPUs, by operations there ----

Tensor numbers_on(const std::vector<int64_t>& numbers, const Tensor& like) {
  return from_vector<int64_t>(numbers, {static_cast<int64_t>(numbers.size())}).to(like.device());
}

// Where each of the rows `of` is among `all`, which has them; both ascend.
std::vector<int64_t> places_of(std::span<const int64_t> of, const std::vector<int64_t>& all) {
  std::vector<int64_t> places;
  places.reserve(of.size());
  auto at = all.begin();
  for (const int64_t row : of) {
    at = std::lower_bound(at, all.end(), row);
    places.push_back(at - all.begin());
  }
  return places;
}

void add_on_device(const std::vector<NumberedRow>& order, const Tensor& values, RowSum* out) {
  std::vector<int64_t> place(order.size());
  int64_t at = -1;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || order[i].row != order[i - 1].row) ++at;
    place[static_cast<std::size_t>(order[i].position)] = at;
  }
  internal::values::add_rows(out->values, numbers_on(place, values), values);
}

// The parts may lie on several devices, of which this thread works on one.
RowSum sum_on_device(std::span<const RowSum* const> parts, int64_t first, int64_t last) {
  const Tensor& like = parts[0]->values;
  const c10::Device here = c10::impl::VirtualGuardImpl(like.device().type()).getDevice();
  RowSum out{united(parts, first, last), {}};
  Shape shape = shape_of(like);
  shape[0] = static_cast<int64_t>(out.rows.size());
  out.values = at::zeros(shape, like.options().device(here).requires_grad(false));
  for (const RowSum* part : parts) {
    const RowSum some = part_of(*part, first, last);
    if (some.rows.empty()) continue;
    const Tensor places = numbers_on(places_of(some.rows, out.rows), out.values);
    internal::values::add_rows(out.values, places, some.values.to(here));
  }
  return out;
}

}  // namespace

std::size_t RowSum::width() const {
  return rows.empty() ? 0 : static_cast<std::size_t>(values.numel()) / rows.size();
}

Tensor RowSum::to_dense(const Shape& shape) const {
  Tensor out = at::zeros(shape, values.options());
  if (!values.is_cpu()) return out.index_copy_(0, numbers_on(rows, values), values);
  const std::size_t bytes = width() * values.element_size();
  auto* const to = static_cast<std::byte*>(out.mutable_data_ptr());
  const auto* from = static_cast<const std::byte*>(values.const_data_ptr());
  for (const int64_t row : rows) {
    std::memcpy(to + static_cast<std::size_t>(row) * bytes, from, bytes);
    from += bytes;
  }
  return out;
}

IndexedSlices RowSum::to_slices(const Shape& shape) && {
  Tensor indices = empty({static_cast<int64_t>(rows.size())}, kInt64);
  std::copy(rows.begin(), rows.end(), indices.mutable_data_ptr<int64_t>());
  if (!values.is_cpu()) indices = indices.to(values.device());
  return {std::move(values), indices, shape};
}

UniqueRows unique_rows(const Tensor& indices) {
  const std::vector<NumberedRow> order = in_order(indices);
  UniqueRows out;
  out.position.resize(order.size());
  for (const NumberedRow& one : order) {
    if (out.rows.empty() || out.rows.back() != one.row) out.rows.push_back(one.row);
    out.position[static_cast<std::size_t>(one.position)] =
        static_cast<int64_t>(out.rows.size()) - 1;
  }
  return out;
}

RowSum sum_rows(const IndexedSlices& slices, DType dtype) {
  const at::NoGradGuard no_grad;
  if (slices.values.is_cpu() && c10::isReducedFloatingType(dtype)) {
    const Tensor wide = slices.values.detach().to(dtype).to(kFloat32);
    RowSum out = sum_rows({wide, slices.indices, slices.dense_shape}, kFloat32);
    out.values = out.values.to(dtype);
    return out;
  }
  const std::vector<NumberedRow> order = in_order(slices.indices);
  RowSum out;
  for (const NumberedRow& one : order) {
    if (out.rows.empty() || out.rows.back() != one.row) out.rows.push_back(one.row);
  }
  const Tensor values = slices.values.detach().to(dtype).contiguous();
  if (!values.is_cpu()) {
    out.values = zero_rows(values, out.rows.size());
    add_on_device(order, values, &out);
    return out;
  }
  Shape shape = shape_of(values);
  shape[0] = static_cast<int64_t>(out.rows.size());
  out.values = empty(shape, dtype);
  const std::size_t width = out.width();
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(at::kHalf, at::kBFloat16, dtype, "sum_rows", [&] {
    add_in_order(order, values.const_data_ptr<scalar_t>(), out.values.mutable_data_ptr<scalar_t>(),
                 width);
  });
  return out;
}

namespace {

// Of 16 bits: added in 32.
RowSum sum_rounded_once(std::span<const RowSum* const> parts, int64_t first, int64_t last) {
  std::vector<RowSum> wide;
  wide.reserve(parts.size());
  std::vector<const RowSum*> all;
  for (const RowSum* part : parts) {
    all.push_back(&wide.emplace_back(RowSum{part->rows, part->values.to(kFloat32)}));
  }
  RowSum out = sum_rows(all, first, last);
  out.values = out.values.to(parts[0]->values.scalar_type());
  return out;
}

}  // namespace

RowSum sum_rows(std::span<const RowSum* const> parts, int64_t first, int64_t last) {
  const at::NoGradGuard no_grad;
  if (parts.size() == 1) return part_of(*parts[0], first, last);
  if (!parts[0]->values.is_cpu()) return sum_on_device(parts, first, last);
  if (c10::isReducedFloatingType(parts[0]->values.scalar_type())) {
    return sum_rounded_once(parts, first, last);
  }
  RowSum out{united(parts, first, last), {}};
  out.values = zero_rows(parts[0]->values, out.rows.size());
  const std::size_t width = out.width();
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(at::kHalf, at::kBFloat16, out.values.scalar_type(),
                                         "sum_rows", [&] {
                                           for (const RowSum* part : parts)
                                             add_part<scalar_t>(*part, first, width, &out);
                                         });
  return out;
}

}  // namespace cohort::internal::variables
