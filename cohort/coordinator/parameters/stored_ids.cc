// SPDX-License-Identifier: Apache-2.0
//
// Of a variable whose rows belong to ids: each call finds them by the ids, while it alone has the
// variable, so that no id ever meets another one's row.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/stored_parameter.h"
#include "cohort/runtime/float_mode.h"

namespace cohort::internal::coordinator {
namespace {

template <class T>
void fill_row(Tensor& x, int64_t row, int64_t width, double number) {
  T* const to = x.mutable_data_ptr<T>() + row * width;
  std::fill(to, to + width, static_cast<T>(number));
}

}  // namespace

StoredTable& StoredParameter::table() {
  COHORT_CHECK_STATE(table_ != nullptr, "[ps] expected a variable whose rows belong to ids, got \"",
                     name_, "\", of which nobody has made a DynamicTable");
  return *table_;
}

void StoredParameter::check_by_numbers() const {
  COHORT_CHECK_STATE(table_ == nullptr, "[ps] expected ids for the rows of \"", name_,
                     "\", which a DynamicTable gives away, got their numbers; make the same table "
                     "of it here, and use that");
}

void StoredParameter::make_table(const variables::IdTableOptions& options) {
  COHORT_CHECK_ARG(dtype_ == kFloat32 || dtype_ == kFloat64,
                   "[dynamic_table] expected rows of float32 or float64, got \"", name_, "\" of ",
                   dtype_name(dtype_));
  COHORT_CHECK_ARG(!shape_.empty() && options.map.capacity == rows_,
                   "[dynamic_table] expected ids for the ", rows_, " rows of \"", name_, "\", got ",
                   options.map.capacity);
  const base::MutexLock lock(mutex_);
  if (table_ == nullptr) {
    for (const auto& [name, set] : slots_) {
      for (const Tensor& slot : set.values) {
        COHORT_CHECK_STATE(slot.sizes() == value_.sizes(), "[dynamic_table] expected slots like \"",
                           name_, "\", got those of the optimizer \"", name,
                           "\", which looks at a variable as a whole; use another one");
      }
    }
    table_ = std::make_unique<StoredTable>(options);
    return;
  }
  COHORT_CHECK_STATE(table_->options == options, "[dynamic_table] expected for \"", name_,
                     "\" the options of the table that has been made of it, got others: all who "
                     "use a table make it alike");
}

int64_t StoredParameter::see_ids(std::span<const int64_t> ids, std::span<const int64_t> counts,
                                 bool begins_step) {
  const at::NoGradGuard no_grad;
  const base::MutexLock lock(mutex_);
  StoredTable& all = table();
  // Ahead of the map: without memory for a copy the row would keep the numbers of before.
  own(value_);
  for (auto& [name, set] : slots_) {
    for (Tensor& slot : set.values) own(slot);
  }
  ++all.version;
  if (begins_step) all.map.begin_step();
  const int64_t refused = all.map.refused();
  all.map.see(ids, counts);
  auto* const rows = static_cast<std::byte*>(value_.mutable_data_ptr());
  for (const auto& [id, row] : all.map.take_fresh()) {
    variables::fill_first_rows(all.options, {&id, 1}, dtype_, static_cast<std::size_t>(width_),
                               rows + static_cast<std::size_t>(row) * row_bytes_);
    for (auto& [name, set] : slots_) {
      for (std::size_t s = 0; s < set.values.size(); ++s) {
        dtype_ == kFloat32 ? fill_row<float>(set.values[s], row, width_, set.initial[s])
                           : fill_row<double>(set.values[s], row, width_, set.initial[s]);
      }
    }
  }
  return all.map.refused() - refused;
}

void StoredParameter::read_ids(std::span<const int64_t> ids, std::byte* to) {
  const base::MutexLock lock(mutex_);
  const StoredTable& all = table();
  const auto* const from = static_cast<const std::byte*>(value_.const_data_ptr());
  std::byte* flag = to + ids.size() * row_bytes_;
  for (const int64_t id : ids) {
    const int64_t row = all.map.find(id);
    const bool has_row = row != variables::IdMap::kNoRow;
    *flag++ = static_cast<std::byte>(has_row);
    if (has_row) {
      std::memcpy(to, from + static_cast<std::size_t>(row) * row_bytes_, row_bytes_);
    } else {
      std::memset(to, 0, row_bytes_);
    }
    to += row_bytes_;
  }
}

void StoredParameter::update_ids(const UpdateStep& step, std::span<const int64_t> ids,
                                 bool others_too, PayloadReader& gradient) {
  const at::NoGradGuard no_grad;
  const Tensor given = received(static_cast<int64_t>(ids.size()), gradient);
  const runtime::FlushDenormals flush;
  const base::MutexLock lock(mutex_);
  const StoredTable& all = table();
  check_slots(step);
  // An id that has lost its row meanwhile has nothing to train.
  std::vector<std::pair<int64_t, int64_t>> known;  // row, and which id it is
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = all.map.find(ids[i]);
    if (row != variables::IdMap::kNoRow) known.emplace_back(row, static_cast<int64_t>(i));
  }
  std::sort(known.begin(), known.end());
  std::vector<int64_t> rows, which;
  for (const auto& [row, i] : known) {
    rows.push_back(row);
    which.push_back(i);
  }
  if (width_ == 0 || (rows.empty() && !others_too)) return;
  const auto count = static_cast<int64_t>(which.size());
  rpc::Payload in_order;
  append_bytes(in_order, at::index_select(given, 0, from_vector(which, {count})));
  PayloadReader numbers("[ps] ", in_order);
  apply_rows(step, {0, rows_}, rows, others_too, numbers);
}

TablePage StoredParameter::table_page(uint64_t first, uint64_t most) {
  const base::MutexLock lock(mutex_);
  return table().page(first, most);
}

void StoredParameter::restore_table(uint64_t total, uint64_t of_rows, uint64_t first,
                                    const std::vector<int64_t>& part) {
  const base::MutexLock lock(mutex_);
  table().restore(total, of_rows, first, part);
}

std::vector<std::pair<std::string, uint64_t>> StoredParameter::slot_sets() {
  const base::MutexLock lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> out;
  for (const auto& [name, set] : slots_) out.emplace_back(name, set.values.size());
  return out;
}

}  // namespace cohort::internal::coordinator
