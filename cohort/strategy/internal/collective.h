// SPDX-License-Identifier: Apache-2.0
//
// Collectives of a replica context over all leaves of a nest at once.
#pragma once

#include <bit>
#include <cstddef>
#include <deque>
#include <span>
#include <type_traits>
#include <vector>

#include "cohort/collectives/group_collectives.h"
#include "cohort/strategy/internal/reduce.h"
#include "cohort/values/nest.h"

namespace cohort {
class StrategyExtended;
}

namespace cohort::internal::strategy {

/// Reduces all leaves at one merge point, differentiable for tensors; through the CrossDeviceOps
/// that the user gave the strategy, if any. Errors: as all_reduce_leaves.
void all_reduce_together(StrategyExtended& strategy, ReduceOp op,
                         std::span<const collectives::CollectiveLeaf> leaves,
                         const CommunicationOptions& options,
                         const collectives::CollectiveOrigin& origin = {});
/// Joins all leaves at one merge point, differentiable. Errors: as all_gather_leaves.
void all_gather_together(StrategyExtended& strategy, int64_t axis,
                         std::span<const collectives::CollectiveLeaf> leaves,
                         const collectives::CollectiveOrigin& origin = {});

/// "int64" or "double": the same on every machine, whatever C++ calls it there.
template <class N>
constexpr const char* number_type() {
  if constexpr (std::is_same_v<N, bool>) {
    return "bool";
  } else if constexpr (std::is_floating_point_v<N>) {
    return sizeof(N) == 4 ? "float" : sizeof(N) == 8 ? "double" : "long double";
  } else {
    constexpr const char* kSigned[] = {"int8", "int16", "int32", "int64"};
    constexpr const char* kUnsigned[] = {"uint8", "uint16", "uint32", "uint64"};
    const std::size_t size = std::bit_width(sizeof(N)) - 1;
    return std::is_signed_v<N> ? kSigned[size] : kUnsigned[size];
  }
}

/// The leaves of a nest and of the nest that the results go to.
class LeafPairs {
 public:
  /// `out`: a copy of `in`. Errors: InvalidArgument for text.
  template <class T>
  LeafPairs(const T& in, T& out) {
    const std::vector<values::LeafRef> sources = values::leaf_refs(in);
    leaves_.reserve(sources.size());
    std::size_t next = 0;
    for_each_leaf(out, [&]<class Leaf>(Leaf& leaf) {
      leaves_.push_back(pair(*static_cast<const Leaf*>(sources[next++].leaf), leaf));
    });
  }
  LeafPairs(const LeafPairs&) = delete;
  LeafPairs& operator=(const LeafPairs&) = delete;

  std::span<const collectives::CollectiveLeaf> leaves() const { return leaves_; }
  /// Puts results where they cannot be assigned to directly. Once, at the end.
  void finish() {
    for (GradientResult& result : gradients_) {
      *result.out = result.is_sparse ? Gradient(result.slices) : Gradient(result.dense);
    }
  }

 private:
  using Kind = collectives::CollectiveLeaf::Kind;
  struct GradientResult {
    Gradient* out;
    bool is_sparse;
    Tensor dense = {};
    IndexedSlices slices = {};
  };

  collectives::CollectiveLeaf pair(const Tensor& in, Tensor& out) {
    return {.kind = Kind::kTensor, .in = &in, .out = &out};
  }
  collectives::CollectiveLeaf pair(const IndexedSlices& in, IndexedSlices& out) {
    return {.kind = Kind::kSlices, .in = &in, .out = &out};
  }
  collectives::CollectiveLeaf pair(const Gradient& in, Gradient& out) {
    if (!in.has_value()) return {};
    gradients_.push_back({.out = &out, .is_sparse = in.is_sparse()});
    GradientResult& result = gradients_.back();
    return in.is_sparse() ? pair(in.slices(), result.slices) : pair(in.dense(), result.dense);
  }
  template <class N>
  requires(std::is_arithmetic_v<N>) collectives::CollectiveLeaf pair(const N& in, N& out) {
    return {.kind = Kind::kNumber,
            .in = &in,
            .out = &out,
            .reduce =
                [](ReduceOp op, std::span<const void* const> values, void* result) {
                  std::vector<const N*> typed;
                  for (const void* value : values) typed.push_back(static_cast<const N*>(value));
                  *static_cast<N*>(result) = reduce_numbers<N>(op, typed);
                },
            .bytes = sizeof(N),
            .type = number_type<N>()};
  }
  collectives::CollectiveLeaf pair(const std::string&, std::string&) {
    throw InvalidArgument(
        "[replica_context] expected tensors, indexed slices, gradients or numbers in a collective, "
        "got text");
  }

  std::vector<collectives::CollectiveLeaf> leaves_;
  std::deque<GradientResult> gradients_;  // they stay where they are
};

}  // namespace cohort::internal::strategy
