// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/exchanged_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace cohort::internal::variables {
namespace {

Shape shape_of_rows(const Variable& variable, std::size_t count) {
  Shape shape = variable.shape();
  shape[0] = static_cast<int64_t>(count);
  return shape;
}

std::byte* data_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

// Positions of the rows [first, last) among ascending ones.
Range positions(const std::vector<int64_t>& rows, int64_t first, int64_t last) {
  const auto at = [&](int64_t row) {
    return static_cast<std::size_t>(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
  };
  return {at(first), at(last)};
}

}  // namespace

// A local gradient that is dense on one replica and rows on another is one of all rows.
RowSum ExchangedRows::all_rows(Posts posts, std::size_t variable) const {
  RowSum out{
      std::vector<int64_t>(static_cast<std::size_t>(layout_.variables()[variable].shape()[0])),
      sum_of(layout_, posts, variable)};
  std::iota(out.rows.begin(), out.rows.end(), int64_t{0});
  return out;
}

RowSum ExchangedRows::own_rows(Posts posts, std::size_t variable) const {
  if (!is_by_rows(posts, variable)) return all_rows(posts, variable);
  std::vector<const RowSum*> parts;
  for (const Post& post : posts) {
    if (const RowSum* rows = post.rows_of(variable)) parts.push_back(rows);
  }
  return sum_rows(parts, 0, layout_.variables()[variable].shape()[0]);
}

void ExchangedRows::begin(Posts posts) {
  own_.clear();
  tables_.clear();
  for (const Post& post : posts) {
    for (const auto& [variable, rows] : post.rows) {
      if (!own_.contains(variable)) own_.emplace(variable, own_rows(posts, variable));
    }
  }
}

std::map<std::size_t, int64_t> ExchangedRows::counts() const {
  std::map<std::size_t, int64_t> out;
  for (const auto& [variable, rows] : own_) {
    out[variable] = static_cast<int64_t>(rows.rows.size());
  }
  return out;
}

void ExchangedRows::exchange(Posts posts, const WorkerAgreement& agreement,
                             const std::vector<bool>& usual) {
  for (std::size_t v = 0; v < usual.size(); ++v) {
    const bool by_rows = agreement.has_rows(v) || (usual[v] && agreement.is_present(v));
    if (!by_rows) continue;
    tables_.try_emplace(v);
    if (!own_.contains(v) && has_gradient(posts, v)) own_.emplace(v, all_rows(posts, v));
  }
  if (tables_.empty()) return;
  exchange_ids(agreement);
  exchange_values(agreement);
}

void ExchangedRows::exchange_ids(const WorkerAgreement& agreement) {
  std::vector<collectives::Communicator::Pending> pending;
  for (auto& [variable, table] : tables_) {
    const int64_t all = layout_.variables()[variable].shape()[0];
    table.ids.resize(static_cast<std::size_t>(communicator_.size()));
    std::vector<collectives::Bytes> pieces;
    for (int w = 0; w < communicator_.size(); ++w) {
      auto& ids = table.ids[static_cast<std::size_t>(w)];
      ids.resize(static_cast<std::size_t>(agreement.rows(w, variable, all)));
      if (w == communicator_.rank() && own_.contains(variable)) ids = own_.at(variable).rows;
      pieces.push_back(collectives::bytes_of(ids));
    }
    pending.push_back(communicator_.start_all_gather(pieces, {.tag = variable}));
  }
  for (auto& one : pending) one.wait();
  for (auto& [variable, table] : tables_) {
    for (const auto& ids : table.ids) table.rows.insert(table.rows.end(), ids.begin(), ids.end());
    std::sort(table.rows.begin(), table.rows.end());
    table.rows.erase(std::unique(table.rows.begin(), table.rows.end()), table.rows.end());
  }
}

Range ExchangedRows::slice_of(std::size_t variable, int worker) const {
  const Range here = layout_.range_of(variable);
  const auto numel = static_cast<std::size_t>(layout_.variables()[variable].impl().numel());
  const Range share = shares_.share(shares_.region_of(variable), layout_.run_of(variable), worker)
                          .intersect({here.begin, here.begin + numel});
  if (share.empty()) return {};
  return {share.begin - here.begin, share.end - here.begin};
}

ExchangedRows::RowRange ExchangedRows::needed_by(std::size_t variable, int worker) const {
  if (everywhere_) return {0, layout_.variables()[variable].shape()[0]};
  const Range slice = slice_of(variable, worker);
  if (slice.empty()) return {};
  const std::size_t width = layout_.row_width(variable);
  return {static_cast<int64_t>(slice.begin / width),
          static_cast<int64_t>((slice.end + width - 1) / width)};
}

void ExchangedRows::exchange_values(const WorkerAgreement& agreement) {
  std::map<std::size_t, std::vector<RowSum>> parts;  // [worker]
  std::vector<collectives::Communicator::Pending> pending;
  for (auto& [variable, table] : tables_) {
    const Variable& v = layout_.variables()[variable];
    const std::size_t row_bytes = layout_.row_width(variable) * c10::elementSize(v.dtype());
    const RowRange mine = needed_by(variable, communicator_.rank());
    std::vector<collectives::ConstBytes> to;
    std::vector<collectives::Bytes> from;
    for (int w = 0; w < communicator_.size(); ++w) {
      const auto& ids = table.ids[static_cast<std::size_t>(w)];
      const Range rows = positions(ids, mine.first, mine.last);
      RowSum& part = parts[variable].emplace_back();
      part.rows.assign(ids.begin() + static_cast<std::ptrdiff_t>(rows.begin),
                       ids.begin() + static_cast<std::ptrdiff_t>(rows.end));
      part.values = cohort::empty(shape_of_rows(v, rows.size()), v.dtype());
      from.emplace_back(data_of(part.values), rows.size() * row_bytes);
      const RowRange theirs = needed_by(variable, w);
      const auto own = own_.find(variable);
      const Range sent =
          own != own_.end() ? positions(own->second.rows, theirs.first, theirs.last) : Range{};
      to.emplace_back(sent.empty() ? nullptr : data_of(own->second.values) + sent.begin * row_bytes,
                      sent.size() * row_bytes);
    }
    pending.push_back(communicator_.start_all_to_all(to, from, {.tag = variable}));
  }
  for (auto& one : pending) one.wait();
  for (auto& [variable, table] : tables_) {
    std::vector<const RowSum*> some;
    for (int w = 0; w < communicator_.size(); ++w) {
      const RowSum& part = parts[variable][static_cast<std::size_t>(w)];
      if (agreement.has_gradient(w, variable)) some.push_back(&part);
    }
    const RowRange mine = needed_by(variable, communicator_.rank());
    table.sum = sum_rows(some, mine.first, mine.last);
  }
}

double ExchangedRows::squares_of(std::size_t variable) const {
  const RowSum& sum = tables_.at(variable).sum;
  if (sum.rows.empty()) return 0;
  const auto* const values = static_cast<const std::byte*>(sum.values.const_data_ptr());
  return layout_.run_of(variable).sum_of_squares({values}, 0, 0,
                                                 static_cast<std::size_t>(sum.values.numel()));
}

std::size_t ExchangedRows::place_among(const std::vector<int64_t>& rows, std::size_t variable,
                                       std::size_t element) const {
  const std::size_t width = layout_.row_width(variable);
  const auto row = static_cast<int64_t>(element / width);
  const auto found = std::lower_bound(rows.begin(), rows.end(), row);
  const auto before = static_cast<std::size_t>(found - rows.begin()) * width;
  return found != rows.end() && *found == row ? before + element % width : before;
}

void ExchangedRows::for_each_row(
    const Table& table, std::size_t variable, Range elements,
    base::FunctionRef<void(Range elements, std::size_t place)> visit) const {
  const std::size_t width = layout_.row_width(variable);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::size_t begin = static_cast<std::size_t>(table.rows[i]) * width;
    const Range part = elements.intersect({begin, begin + width});
    if (!part.empty()) visit(part, i * width + (part.begin - begin));
  }
}

void ExchangedRows::update(const update_rules::Rule& rule, const UpdaterOptions& options,
                           double weight_decay,
                           base::FunctionRef<double(std::size_t variable)> scale, int live_set,
                           SlotPlace slot) {
  for (auto& [key, value] : tables_) {
    const std::size_t variable = key;
    Table& table = value;  // clang 14 captures no bindings
    const UpdateRun& run = layout_.run_of(variable);
    const std::size_t run_index = layout_.run_index_of(variable);
    const std::size_t begin = layout_.offset_in_run(variable);
    const std::size_t bytes = run.element_size;
    const Range mine = slice_of(variable, communicator_.rank());
    const DType dtype = layout_.variables()[variable].dtype();
    const std::size_t first = place_among(table.rows, variable, mine.begin);
    const auto count = static_cast<int64_t>(place_among(table.rows, variable, mine.end) - first);
    const std::size_t width = layout_.row_width(variable);
    table.fresh = cohort::empty({static_cast<int64_t>(table.rows.size() * width)}, dtype);
    table.slots.clear();
    for (int s = 0; s < layout_.slot_count(); ++s)
      table.slots.push_back(cohort::empty({count}, dtype));
    if (count == 0) continue;
    for_each_row(table, variable, mine, [&](Range part, std::size_t place) {
      const std::size_t element = begin + part.begin;
      runtime::copy_memory(runtime::host_device(), data_of(table.fresh) + place * bytes,
                           run.device(0), run.parameters(0) + element * bytes, part.size() * bytes);
      for (int s = 0; s < layout_.slot_count(); ++s) {
        std::memcpy(data_of(table.slots[static_cast<std::size_t>(s)]) + (place - first) * bytes,
                    slot(s, live_set, run_index, element), part.size() * bytes);
      }
    });
    const std::byte* const gradient =
        data_of(table.sum.values) + place_among(table.sum.rows, variable, mine.begin) * bytes;
    update_rules::UpdateOptions how = update_options(options, run, weight_decay);
    how.gradient_scale = scale(variable);
    RangeUpdate call{.dtype = dtype,
                     .parameters = data_of(table.fresh) + first * bytes,
                     .sources = {&gradient, 1},
                     .begin = 0,
                     .end = static_cast<std::size_t>(count)};
    for (std::size_t s = 0; s < table.slots.size(); ++s) call.slots[s] = data_of(table.slots[s]);
    update_kernels(runtime::host_device()).update(call, rule, how);
  }
}

void ExchangedRows::gather() {
  std::vector<collectives::Communicator::Pending> pending;
  for (auto& [variable, table] : tables_) {
    const std::size_t bytes = layout_.run_of(variable).element_size;
    std::vector<collectives::Bytes> pieces;
    for (int w = 0; w < communicator_.size(); ++w) {
      const Range theirs = slice_of(variable, w);
      const std::size_t first = place_among(table.rows, variable, theirs.begin);
      const std::size_t last = place_among(table.rows, variable, theirs.end);
      pieces.emplace_back(data_of(table.fresh) + first * bytes, (last - first) * bytes);
    }
    pending.push_back(communicator_.start_all_gather(pieces, {.tag = variable}));
  }
  for (auto& one : pending) one.wait();
}

void ExchangedRows::adopt(int replica) const {
  for (const auto& [variable, table] : tables_) {
    const UpdateRun& run = layout_.run_of(variable);
    const std::size_t bytes = run.element_size;
    const std::size_t begin = layout_.offset_in_run(variable);
    const std::byte* const fresh = static_cast<const std::byte*>(table.fresh.const_data_ptr());
    const auto numel = static_cast<std::size_t>(layout_.variables()[variable].impl().numel());
    for_each_row(table, variable, {0, numel}, [&](Range part, std::size_t place) {
      runtime::copy_memory(run.device(replica),
                           run.parameters(replica) + (begin + part.begin) * bytes,
                           runtime::host_device(), fresh + place * bytes, part.size() * bytes);
    });
  }
}

void ExchangedRows::adopt_slots(SlotPlace slot) const {
  for (const auto& [key, value] : tables_) {
    const std::size_t variable = key;
    const Table& table = value;
    const std::size_t run = layout_.run_index_of(variable);
    const std::size_t bytes = layout_.runs()[run].element_size;
    const std::size_t begin = layout_.offset_in_run(variable);
    const Range mine = slice_of(variable, communicator_.rank());
    const std::size_t first = place_among(table.rows, variable, mine.begin);
    for_each_row(table, variable, mine, [&](Range part, std::size_t place) {
      for (int s = 0; s < layout_.slot_count(); ++s) {
        const std::byte* const from =
            data_of(table.slots[static_cast<std::size_t>(s)]) + (place - first) * bytes;
        for (const int set : {0, 1}) {
          std::memcpy(slot(s, set, run, begin + part.begin), from, part.size() * bytes);
        }
      }
    });
  }
}

}  // namespace cohort::internal::variables
