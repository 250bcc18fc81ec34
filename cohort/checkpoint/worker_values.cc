// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/worker_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cohort/base/check.h"

namespace cohort::internal::checkpoint {
namespace {

std::string own_path(const std::string& path, int rank) { return str_cat(path, "/worker_", rank); }

std::string bytes_in(const Tensor& value) {
  const Tensor row = value.contiguous();
  return {static_cast<const char*>(row.const_data_ptr()), row.nbytes()};
}

// Of the dtype and shape of `like`, but for how long a single axis is.
Tensor tensor_of(const std::string& bytes, const Tensor& like) {
  Shape shape = shape_of(like);
  const std::size_t width = like.element_size();
  if (shape.size() == 1) shape[0] = static_cast<int64_t>(bytes.size() / width);
  Tensor out = empty(shape, like.scalar_type());
  COHORT_CHECK(out.nbytes() == bytes.size(), "workers have values of unlike shapes");
  if (!bytes.empty()) std::memcpy(out.mutable_data_ptr(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

std::string lines_of(const ObjectGraph& graph) {
  if (graph.group == nullptr) return {};
  std::string out;
  for (const LiveValue& live : graph.values) {
    out += str_cat("\"", join(live.paths, "\", \""), "\": ", dtype_name(live.value.dtype),
                   live.value.shape ? bracketed(*live.value.shape) : std::string("[any]"));
    if (live.value.is_spread()) out += str_cat(" in ", live.value.pieces.size(), " pieces");
    out += '\n';
  }
  return out;
}

Tensor read_checked(const std::string& path, DType dtype, const std::optional<Shape>& shape,
                    const std::function<Tensor()>& read) {
  Tensor value = read().detach();
  const bool fits = value.scalar_type() == dtype && (!shape || *shape == shape_of(value));
  COHORT_CHECK(fits, "\"", path, "\" has another type or shape than it said");
  return value;
}

void put_value(SavingGroup* group, const std::string& path, const Tensor& mine,
               std::map<std::string, Tensor>& out) {
  if (group == nullptr) {
    out[path] = mine;
    return;
  }
  const std::vector<std::string> all = group->gather(bytes_in(mine));
  const bool same = std::all_of(all.begin(), all.end(), [&](const auto& x) { return x == all[0]; });
  if (same) {
    out[path] = mine;
    return;
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    out[own_path(path, static_cast<int>(rank))] = tensor_of(all[rank], mine);
  }
}

void choose_own(const ObjectGraph& graph, const SavingGroup* group, const std::string& source,
                bool allow_partial, std::map<std::string, Tensor>& saved) {
  const int rank = group == nullptr ? 0 : group->rank();
  const int size = group == nullptr ? 1 : group->size();
  for (const LiveValue& live : graph.values) {
    const std::string& path = live.paths.front();
    if (saved.contains(path)) continue;
    int count = 0;
    while (saved.contains(own_path(path, count))) ++count;
    if (count == 0) continue;
    COHORT_CHECK_ARG(count == size || allow_partial, "[checkpoint.restore] expected \"", path,
                     "\" in ", source, " to be of ", size, size == 1 ? " worker" : " workers",
                     ", got a value for each of ", count,
                     ": it was different on each (a position in data of its own), so as many "
                     "workers have to restore it; RestoreOptions::allow_partial restores the rest");
    if (count == size) saved[path] = saved.at(own_path(path, rank));
    for (int other = 0; other < count; ++other) saved.erase(own_path(path, other));
  }
}

SavedValues from_chief(SavingGroup* group, SavedValues saved) {
  if (group == nullptr) return saved;
  saved.tensors = from_chief(group, std::move(saved.tensors));
  saved.aliases = from_chief(group, saved.aliases);
  std::map<std::string, std::string> unfinished;
  for (const std::string& path : saved.unfinished) unfinished[path];
  saved.unfinished.clear();
  for (const auto& entry : from_chief(group, unfinished)) saved.unfinished.insert(entry.first);
  return saved;
}

}  // namespace cohort::internal::checkpoint
