// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/update_kernels.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cohort/base/check.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/variables/rounded_update.h"

namespace cohort::internal::variables {
namespace {

template <class T>
c10::SmallVector<const T*, 8> typed(std::span<const std::byte* const> sources) {
  c10::SmallVector<const T*, 8> from;
  for (const std::byte* source : sources) from.push_back(reinterpret_cast<const T*>(source));
  return from;
}

template <class T, class Update>
update_rules::Target<T> target_of(const Update& update) {
  update_rules::Target<T> target;
  target.param = reinterpret_cast<T*>(update.parameters);
  for (std::size_t s = 0; s < update.slots.size(); ++s) {
    target.slots[s] = reinterpret_cast<T*>(update.slots[s]);
  }
  return target;
}

// An element is read from and written to memory in the time of so many operations; its new value is
// the same in any range.
constexpr double kOperationsOfElement = 50;

int threads_for(std::size_t elements) {
  return runtime::threads_worth(kOperationsOfElement * static_cast<double>(elements),
                                runtime::intra_op_threads());
}

template <class T>
void update_some_rows(const RowsUpdate& table, const update_rules::Rule& rule, std::size_t begin,
                      std::size_t end, const update_rules::UpdateOptions& how) {
  const T* const gradients = reinterpret_cast<const T*>(table.gradients) + begin * table.width;
  apply_rows<T>(rule, target_of<T>(table), gradients, table.rows.subspan(begin, end - begin),
                table.width, how);
}

template <class T>
void update_part(const RangeUpdate& range, const update_rules::Rule& rule, std::size_t begin,
                 std::size_t end, const update_rules::UpdateOptions& how) {
  update_rules::Target<T> target = target_of<T>(range);
  target.from_param = reinterpret_cast<const T*>(range.from_parameters);
  for (std::size_t s = 0; s < range.from_slots.size(); ++s) {
    target.from_slots[s] = reinterpret_cast<const T*>(range.from_slots[s]);
  }
  const auto from = typed<T>(range.sources);
  apply_elements<T>(rule, target, {from.data(), from.size()}, begin, end, how);
}

template <class T>
double squares(std::span<const std::byte* const> sources, std::size_t begin, std::size_t end) {
  const auto from = typed<T>(sources);
  return squares_of_elements<T>({from.data(), from.size()}, begin, end);
}

template <class T>
void block_squares(std::span<const std::byte* const> sources, std::size_t size, std::size_t first,
                   std::span<double> out) {
  const auto from = typed<T>(sources);
  block_squares_of_elements<T>({from.data(), from.size()}, size, first, out);
}

struct WrittenRule {
  update_rules::Rule rule;
  update_rules::UpdateOptions how;
};
static_assert(std::is_trivially_copyable_v<WrittenRule>);

class CpuUpdateKernels final : public UpdateKernels {
 public:
  std::size_t rule_bytes() const override { return sizeof(WrittenRule); }
  void write_rule(DType, const update_rules::Rule& rule, const update_rules::UpdateOptions& how,
                  std::byte* out) const override {
    const WrittenRule written{rule, how};
    std::memcpy(out, &written, sizeof written);
  }

  void update(const RangeUpdate& range, const update_rules::Rule& rule,
              const update_rules::UpdateOptions& how) override {
    if (range.rule_at == nullptr) return update_by(range, rule, how);
    WrittenRule written;
    std::memcpy(&written, range.rule_at, sizeof written);
    update_by(range, written.rule, written.how);
  }

  void update_by(const RangeUpdate& range, const update_rules::Rule& rule,
                 const update_rules::UpdateOptions& how) const {
    const auto part = [&](std::size_t begin, std::size_t end) {
      with_trained_type(range.dtype,
                        [&]<class T>(T) { update_part<T>(range, rule, begin, end, how); });
    };
    const std::size_t size = range.end - range.begin;
    const int threads = threads_for(size);
    if (threads == 1) return part(range.begin, range.end);
    constexpr std::size_t kAlignment = 1024;
    const auto pieces = static_cast<std::size_t>(2 * threads);
    const std::size_t step = (size / pieces / kAlignment + 1) * kAlignment;
    runtime::run_pieces(static_cast<int>(pieces), [&](int piece) {
      const std::size_t begin = range.begin + step * static_cast<std::size_t>(piece);
      if (begin < range.end) part(begin, std::min(begin + step, range.end));
    });
  }

  void update_rows(const RowsUpdate& table, const update_rules::Rule& rule,
                   const update_rules::UpdateOptions& how) override {
    const auto part = [&](std::size_t begin, std::size_t end) {
      with_trained_type(table.dtype,
                        [&]<class T>(T) { update_some_rows<T>(table, rule, begin, end, how); });
    };
    const std::size_t count = table.rows.size();
    const int threads = threads_for(count * table.width);
    if (threads == 1) return part(0, count);
    const auto pieces = static_cast<std::size_t>(2 * threads);
    runtime::run_pieces(static_cast<int>(pieces), [&](int piece) {
      const auto p = static_cast<std::size_t>(piece);
      part(count * p / pieces, count * (p + 1) / pieces);
    });
  }

  double sum_of_squares(DType dtype, std::span<const std::byte* const> sources, std::size_t begin,
                        std::size_t end) override {
    return with_trained_type(dtype, [&]<class T>(T) { return squares<T>(sources, begin, end); });
  }

  void block_square_sums(DType dtype, std::span<const std::byte* const> sources, std::size_t size,
                         std::size_t first, std::span<double> out) override {
    with_trained_type(dtype, [&]<class T>(T) { block_squares<T>(sources, size, first, out); });
  }
};

runtime::ByDeviceType<UpdateKernels>& table() {
  static CpuUpdateKernels for_cpus;
  static runtime::ByDeviceType<UpdateKernels> kernels(&for_cpus, "update_kernels");
  return kernels;
}

}  // namespace

UpdateKernels& update_kernels(const Device& device) {
  UpdateKernels* const found = table().find(device.at_device().type());
  if (found != nullptr) return *found;
  throw Unimplemented(str_cat("[optimizer] expected variables on CPUs, got ", device.short_name(),
                              ": this build updates nothing there"));
}

UpdateKernels* exchange_update_kernels(c10::DeviceType type, UpdateKernels* kernels) {
  return table().exchange(type, kernels);
}

}  // namespace cohort::internal::variables
