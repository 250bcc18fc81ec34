// SPDX-License-Identifier: Apache-2.0
//
// How many tensors travel as few packs. A pack is a list of segments, so that a reduction within
// one process works where the tensors lie; gather_pack and scatter_pack are for transports that
// need one piece of memory.
//
//   const Packer packer = Packer::concat_and_split({7, 3}, 3);       // 3, 3 and 4 elements
//   for (const Pack& pack : packer.packs()) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort {

/// Elements [begin, end) of a tensor, counted in row-major order.
struct PackSegment {
  std::size_t tensor;
  int64_t begin;
  int64_t end;
  bool operator==(const PackSegment&) const = default;
};
using Pack = std::vector<PackSegment>;

/// Divides tensors among packs. Immutable. TF: the packing of NcclAllReduce and
/// HierarchicalCopyAllReduce (num_packs), and of the collective ops (bytes_per_pack).
class Packer {
 public:
  /// All elements in a row, cut into `num_packs` packs of floor(total / num_packs) elements; the
  /// last one takes what is left. 0: no packing, a pack for each tensor.
  /// Errors: InvalidArgument if num_packs or a size is negative.
  static Packer concat_and_split(std::span<const int64_t> sizes, int num_packs);
  static Packer concat_and_split(std::initializer_list<int64_t> sizes, int num_packs) {
    return concat_and_split(std::span(sizes.begin(), sizes.size()), num_packs);
  }

  /// Whole tensors, the last one first, as a backward pass yields gradients: a new pack begins when
  /// the bytes of the current one exceed `bytes_per_pack`, so all but the last are larger than
  /// that. 0: one pack of everything. A tensor without elements travels, too.
  /// Errors: InvalidArgument if bytes_per_pack is negative or numbers of sizes and bytes differ.
  static Packer by_bytes(std::span<const int64_t> sizes, std::span<const int64_t> bytes,
                         int64_t bytes_per_pack);

  const std::vector<Pack>& packs() const { return packs_; }
  /// Elements of a pack.
  int64_t size(std::size_t pack) const;

 private:
  std::vector<Pack> packs_;
};

/// The segments of a pack in one new tensor. `tensors`: of one dtype.
Tensor gather_pack(const Pack& pack, std::span<const Tensor> tensors);
/// Writes a gathered pack into the tensors, which are contiguous.
/// Errors: InvalidArgument unless it has as many elements as the segments.
void scatter_pack(const Pack& pack, const Tensor& packed, std::span<const Tensor> tensors);

}  // namespace cohort
