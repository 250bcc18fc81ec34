// SPDX-License-Identifier: Apache-2.0
//
// Internal: the arithmetic of an update on the memory of one kind of device. CPUs have theirs: the
// functions of update_rules, by the threads that an operation of that size is worth. A kind of
// device that comes later brings its own, to the same formulas (update_rules/rules.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cohort/runtime/device_backend.h"
#include "cohort/update_rules/update.h"

namespace cohort::internal::variables {

/// Elements [begin, end) of parameters, slots and every replica's gradients; addresses are the
/// device's, of element 0. The slots that the rule does not use are null.
struct RangeUpdate {
  DType dtype = kFloat32;  ///< Or kFloat64; on CPUs also kFloat16 and kBFloat16.
  std::byte* parameters = nullptr;
  std::array<std::byte*, update_rules::kMaxSlots> slots = {};
  /// As update_rules::Target's: where the old values are; null: in place. On CPUs alone.
  const std::byte* from_parameters = nullptr;
  std::array<const std::byte*, update_rules::kMaxSlots> from_slots = {};
  std::span<const std::byte* const> sources = {};
  std::size_t begin = 0;
  std::size_t end = 0;
  /// Of the device: what write_rule() wrote, which the kernels read when they run, instead of the
  /// rule and options of the call; null: these. See recorded_rule.h.
  const std::byte* rule_at = nullptr;
};

/// Some rows of a table, each once; addresses are the device's, of the table's first element.
struct RowsUpdate {
  DType dtype = kFloat32;  ///< As RangeUpdate's.
  std::byte* parameters = nullptr;
  std::array<std::byte*, update_rules::kMaxSlots> slots = {};
  const std::byte* gradients = nullptr;  ///< Of the rows alone, one behind the other.
  std::span<const int64_t> rows = {};
  std::size_t width = 0;  ///< Elements of a row.
};

/// Threads: thread-safe, on disjoint ranges.
class UpdateKernels {
 public:
  virtual ~UpdateKernels() = default;
  /// As update_rules::fused_update: the same bits for any split into ranges. In the order of what
  /// the calling thread has started on its device.
  virtual void update(const RangeUpdate& range, const update_rules::Rule& rule,
                      const update_rules::UpdateOptions& how) = 0;
  /// Of what write_rule() writes; 0: these kernels read no rule from memory.
  virtual std::size_t rule_bytes() const { return 0; }
  /// For RangeUpdate::rule_at; kind of rule and dtype must be those of the call there.
  virtual void write_rule(DType /*dtype*/, const update_rules::Rule& /*rule*/,
                          const update_rules::UpdateOptions& /*how*/, std::byte* /*out*/) const {}
  /// As update_rules::fused_update_rows: touches these rows alone.
  virtual void update_rows(const RowsUpdate& table, const update_rules::Rule& rule,
                           const update_rules::UpdateOptions& how) = 0;
  /// As in update_rules. Blocks: until the sums are known.
  virtual double sum_of_squares(DType dtype, std::span<const std::byte* const> sources,
                                std::size_t begin, std::size_t end) = 0;
  virtual void block_square_sums(DType dtype, std::span<const std::byte* const> sources,
                                 std::size_t size, std::size_t first, std::span<double> out) = 0;
};

/// Errors: Unimplemented for a kind of device that has none.
UpdateKernels& update_kernels(const Device& device);
/// Returns the ones before; see exchange_device_backend.
UpdateKernels* exchange_update_kernels(c10::DeviceType type, UpdateKernels* kernels);

}  // namespace cohort::internal::variables
