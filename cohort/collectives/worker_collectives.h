// SPDX-License-Identifier: Apache-2.0
//
// Tensors of all workers of a job become one: on top of a communicator what local_reduce.h is in
// one process. One thread of each worker calls, with what its replicas have.
//
//   Tensor total = reduce_across(communicator, "[strategy.reduce] ", ReduceOp::kSum, local_values);
//
// Order: each worker reduces its replicas' values in their order, then workers are reduced in rank
// order; a mean is divided by the number of all values at the end. So W workers of one replica have
// the bits of one process with W. Joined values are in the order of all replicas.
//
// What workers have to agree on (shapes, dtypes, names) is compared first. If it differs, all of
// them throw the same error, which names both workers. Each function is a turn of the communicator,
// or part of one: inside of a turn the communicator goes on after such an error.
// With one worker these are the local functions, and ask nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/options.h"
#include "cohort/runtime/tensor.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal::collectives {

class Communicator;

/// Errors: FailedPrecondition "expected the same <what> on every worker, got <text> on worker 0 and
///         <text> on worker 1".
void check_same_on_workers(Communicator& communicator, const char* operation, const char* what,
                           const std::string& text);

/// Shapes: equal. `what`: what they are of, which workers have to agree on, too.
/// Errors: as check_same_on_workers() and reduce_in_order().
Tensor reduce_across(Communicator& communicator, const char* operation, ReduceOp op,
                     std::span<const Tensor> values, const std::string& what = {});

/// Joins tensors along an axis. Shapes: equal but for `axis`. `sizes`, if given, gets those along
/// it, one for each worker. Errors: as check_same_on_workers() and check_joinable().
Tensor gather_across(Communicator& communicator, const char* operation, const Tensor& value,
                     int64_t axis, std::vector<int64_t>* sizes = nullptr,
                     const std::string& what = {});

/// Errors: as check_same_on_workers() and join_slices().
IndexedSlices join_across(Communicator& communicator, const char* operation, ReduceOp op,
                          std::span<const IndexedSlices> values);

/// Worker `root`'s value, in memory of its own; itself with one worker. `what`: what it is of.
/// Errors: FailedPrecondition as check_same_on_workers(), for shapes and dtypes.
Tensor broadcast_across(Communicator& communicator, const char* operation, const std::string& what,
                        const Tensor& value, int root = 0);

/// The bytes of all workers, one after the other. Order: as many on every worker.
std::vector<std::byte> gather_bytes(Communicator& communicator, const char* operation,
                                    std::span<const std::byte> here);

/// The texts of all workers, in their order; they may be of any lengths.
std::vector<std::string> gather_texts(Communicator& communicator, const char* operation,
                                      const std::string& here);

/// Divides a sum, in place and in a row, as reduce_range() does for a kMean.
void divide_by_count(const Tensor& total, double count);

/// The sum of a number of each worker.
int64_t sum_across(Communicator& communicator, int64_t here);

}  // namespace cohort::internal::collectives
