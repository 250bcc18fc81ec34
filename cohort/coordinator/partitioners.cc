// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/partitioners.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>

#include "cohort/base/check.h"

namespace cohort {
namespace {

int64_t bytes_of(const Shape& shape, DType dtype) {
  return c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<int64_t> first_axis(const Shape& shape, int64_t parts) {
  std::vector<int64_t> out(shape.size(), 1);
  if (!out.empty()) out[0] = std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, shape[0]));
  return out;
}

}  // namespace

Partitioner fixed_shards_partitioner(int num_shards) {
  COHORT_CHECK_ARG(num_shards > 0, "[fixed_shards_partitioner] expected 1 shard or more, got ",
                   num_shards);
  return [num_shards](const Shape& shape, DType) { return first_axis(shape, num_shards); };
}

Partitioner min_size_partitioner(MinSizePartitionerOptions options) {
  COHORT_CHECK_ARG(options.min_shard_bytes > 0 && options.max_shards > 0,
                   "[min_size_partitioner] expected min_shard_bytes and max_shards of 1 or more, "
                   "got ",
                   options.min_shard_bytes, " and ", options.max_shards);
  return [options](const Shape& shape, DType dtype) {
    const int64_t parts = ceil_div(bytes_of(shape, dtype), options.min_shard_bytes);
    return first_axis(shape, std::min<int64_t>(parts, options.max_shards));
  };
}

Partitioner max_size_partitioner(MaxSizePartitionerOptions options) {
  COHORT_CHECK_ARG(options.max_shard_bytes > 0 && options.max_shards.value_or(1) > 0,
                   "[max_size_partitioner] expected max_shard_bytes and max_shards of 1 or more, "
                   "got ",
                   options.max_shard_bytes, " and ", options.max_shards.value_or(1));
  return [options](const Shape& shape, DType dtype) {
    const int64_t rows = shape.empty() ? 1 : std::max<int64_t>(1, shape[0]);
    const int64_t row_bytes = std::max<int64_t>(1, bytes_of(shape, dtype) / rows);
    const int64_t rows_per_shard = std::max<int64_t>(1, options.max_shard_bytes / row_bytes);
    const int64_t parts = ceil_div(rows, rows_per_shard);
    return first_axis(shape, std::min<int64_t>(parts, options.max_shards.value_or(1 << 30)));
  };
}

namespace internal::coordinator {

std::vector<int64_t> split_sizes(int64_t rows, int64_t parts) {
  COHORT_CHECK_ARG(parts > 0, "[split_sizes] expected 1 part or more, got ", parts);
  std::vector<int64_t> out(static_cast<std::size_t>(parts), rows / parts);
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows % parts); ++i) ++out[i];
  return out;
}

int64_t shards_of(const Partitioner& partitioner, const Shape& shape, DType dtype,
                  const std::string& name) {
  if (!partitioner || shape.empty() || shape[0] < 1) return 1;
  const std::vector<int64_t> parts = partitioner(shape, dtype);
  const bool one_axis =
      parts.size() == shape.size() && parts[0] > 0 &&
      std::all_of(parts.begin() + 1, parts.end(), [](int64_t n) { return n == 1; });
  COHORT_CHECK_ARG(one_axis, "[variable] expected the partitioner to give ", shape.size(),
                   " numbers for \"", name, "\" of shape ", bracketed(shape),
                   ", the parts of its first axis and 1 for each other one, got ",
                   bracketed(parts));
  return std::min(parts[0], shape[0]);
}

}  // namespace internal::coordinator
}  // namespace cohort
