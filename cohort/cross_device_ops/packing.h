// SPDX-License-Identifier: Apache-2.0
//
// How many tensors are reduced as few packs. A pack is a list of segments, so that a reduction
// works where the tensors lie.
//
//   const Packer packer = Packer::concat_and_split({7, 3}, 3);       // 3, 3 and 4 elements
//   for (const Pack& pack : packer.packs()) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
/// HierarchicalCopyAllReduce (num_packs).
class Packer {
 public:
  /// All elements in a row, cut into `num_packs` packs of floor(total / num_packs) elements; the
  /// last one takes what is left. 0: no packing, a pack for each tensor.
  /// Errors: InvalidArgument if num_packs or a size is negative.
  static Packer concat_and_split(std::span<const int64_t> sizes, int num_packs);
  static Packer concat_and_split(std::initializer_list<int64_t> sizes, int num_packs) {
    return concat_and_split(std::span(sizes.begin(), sizes.size()), num_packs);
  }

  const std::vector<Pack>& packs() const { return packs_; }
  /// Elements of a pack.
  int64_t size(std::size_t pack) const;

 private:
  std::vector<Pack> packs_;
};

}  // namespace cohort
