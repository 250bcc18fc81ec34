// SPDX-License-Identifier: Apache-2.0
//
// Steps that look at a variable as a whole, of the rows that are here.
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/stored_parameter.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/variables/rounded_update.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kWhole = "[optimizer.apply_gradients] ";

// A number is one row.
Tensor narrowed(const Tensor& x, RowRange range) {
  return x.dim() == 0 ? x : x.narrow(0, range.first, range.count);
}

/// Threads of this one's would neither flush what is next to nothing nor share the work alike on
/// all copies: they make no bits here.
struct Alone {
  const at::NoGradGuard no_grad = {};
  const runtime::FlushDenormals flush = {};
  const runtime::IntraOpThreads threads{1};
};

}  // namespace

void StoredParameter::check_whole(const WholeStep& step) const {
  check_by_numbers();
  const auto found = slots_.find(step.slots);
  COHORT_CHECK_STATE(
      found != slots_.end() && found->second.forms == variables::slot_forms(step.rule, shape_),
      kWhole, "expected slots \"", step.slots, "\" of \"", name_,
      "\" for an optimizer that looks at variables as a whole, got ",
      found == slots_.end() ? "none" : "another one's");
}

variables::WholeRows StoredParameter::whole_rows(const WholeStep& step, RowRange range) {
  const SlotSet& set = slots_.at(step.slots);
  variables::WholeRows out{narrowed(value_, range), {}};
  for (std::size_t s = 0; s < set.values.size(); ++s) {
    const bool is_shared = set.forms[s].kind == variables::SlotForm::Kind::kShared;
    out.slots.push_back(is_shared ? set.values[s] : narrowed(set.values[s], range));
  }
  return out;
}

variables::WholeGradient StoredParameter::received(const WholeStep& step, RowRange range,
                                                   bool moves_columns,
                                                   PayloadReader& numbers) const {
  check_range(range);
  COHORT_CHECK_ARG(variables::is_trained(dtype_), kWhole,
                   "expected a variable of float32, float64, float16 or bfloat16, got \"", name_,
                   "\" of ", dtype_name(dtype_));
  const DType dtype = dtype_ == kFloat64 ? kFloat64 : kFloat32;
  Shape shape = shape_;
  if (!shape.empty()) shape[0] = range.count;
  const bool is_muon = std::holds_alternative<variables::MuonStep>(step.rule);
  const bool has_means =
      std::holds_alternative<variables::AdafactorStep>(step.rule) && shape.size() >= 2;
  COHORT_CHECK_ARG(!is_muon || shape.size() == 2, kWhole, "expected a matrix for Muon, got \"",
                   name_, "\" of shape ", bracketed(shape_));
  variables::WholeGradient out;
  out.moves_columns = moves_columns;
  std::vector<std::pair<Tensor*, Shape>> parts = {{&out.gradient, shape}};
  if (is_muon) parts.emplace_back(&out.update, shape);
  if (has_means) {
    const std::vector<variables::SlotForm> forms = variables::slot_forms(step.rule, shape);
    parts.emplace_back(&out.row_means, variables::shape_of(forms[0], shape));
    parts.emplace_back(&out.column_means, variables::shape_of(forms[1], shape));
  }
  int64_t elements = 0;
  for (const auto& [to, of] : parts) elements += c10::multiply_integers(of);
  numbers.expect(static_cast<std::size_t>(elements) * c10::elementSize(dtype));
  for (auto& [to, of] : parts) {
    *to = empty(of, dtype);
    if (to->nbytes() > 0) numbers.read(to->mutable_data_ptr(), to->nbytes());
  }
  return out;
}

variables::WholeSums StoredParameter::sums(const WholeStep& step, RowRange range,
                                           bool moves_columns, PayloadReader& numbers) {
  const variables::WholeGradient by = received(step, range, moves_columns, numbers);
  const Alone alone;
  const base::MutexLock lock(mutex_);
  check_whole(step);
  return variables::sums_of(step.rule, step.weight_decay, whole_rows(step, range), by);
}

void StoredParameter::update_whole(const WholeStep& step, RowRange range, bool moves_columns,
                                   PayloadReader& numbers) {
  const variables::WholeGradient by = received(step, range, moves_columns, numbers);
  const Alone alone;
  const base::MutexLock lock(mutex_);
  check_whole(step);
  // What may throw comes first.
  const variables::WholeRows next =
      variables::stepped(step.rule, step.weight_decay, whole_rows(step, range), by);
  own(value_);
  for (Tensor& slot : slots_.at(step.slots).values) own(slot);
  const variables::WholeRows to = whole_rows(step, range);
  to.value.copy_(next.value);
  for (std::size_t s = 0; s < to.slots.size(); ++s) {
    if (next.slots[s].defined()) to.slots[s].copy_(next.slots[s]);
  }
}

}  // namespace cohort::internal::coordinator
