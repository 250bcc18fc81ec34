// SPDX-License-Identifier: Apache-2.0
//
// How large variables are cut into shards, for ParameterServerStrategy. Only the first axis is cut.
//
//   Partitioner cut = min_size_partitioner({.min_shard_bytes = 256 << 10, .max_shards = 4});
//   cut({1024, 1024}, kFloat32);   // {4, 1}: 4 shards of 256 rows
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort {

/// The number of parts of each axis of a variable of this shape. A program may write its own.
/// TF: tf.distribute.experimental.partitioners.Partitioner.
using Partitioner = std::function<std::vector<int64_t>(const Shape& shape, DType dtype)>;

/// So many shards, or as many as there are rows. Errors: InvalidArgument for less than 1.
/// TF: FixedShardsPartitioner.
Partitioner fixed_shards_partitioner(int num_shards);

struct MinSizePartitionerOptions {
  int64_t min_shard_bytes = int64_t{256} << 10;
  int max_shards = 1;
};
/// As many shards as max_shards allows, none much smaller than min_shard_bytes: TensorFlow's
/// number, by which a variable of 300 KiB has two shards of 150. Errors: InvalidArgument for
/// numbers below 1. TF: MinSizePartitioner.
Partitioner min_size_partitioner(MinSizePartitionerOptions options = {});

struct MaxSizePartitionerOptions {
  int64_t max_shard_bytes = 0;
  std::optional<int> max_shards = {};
};
/// As few shards as have at most max_shard_bytes each, or one row, and at most max_shards.
/// Errors: InvalidArgument for numbers below 1. TF: MaxSizePartitioner.
Partitioner max_size_partitioner(MaxSizePartitionerOptions options);

namespace internal::coordinator {

/// 13 rows in 5 parts: 3, 3, 3, 2, 2.
std::vector<int64_t> split_sizes(int64_t rows, int64_t parts);

/// Into how many shards the partitioner cuts a variable; 1 without one, for a single number, and
/// where there are no rows. `name`: for error texts.
/// Errors: InvalidArgument for what cuts another axis than the first, or says 0 or nothing.
int64_t shards_of(const Partitioner& partitioner, const Shape& shape, DType dtype,
                  const std::string& name);

}  // namespace internal::coordinator
}  // namespace cohort
