// SPDX-License-Identifier: Apache-2.0
//
// A variable's pushes that are one update with others.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/stored_parameter.h"
#include "cohort/runtime/float_mode.h"

namespace cohort::internal::coordinator {

PushSum& StoredParameter::sum_of(const std::string& set) {
  const auto found = slots_.find(set);
  COHORT_CHECK_STATE(found != slots_.end(), "[optimizer.apply_gradients] expected the optimizer \"",
                     set, "\" of \"", name_, "\", which has not been made");
  return found->second.pushed;
}

PushCount StoredParameter::accumulate(const UpdateStep& step, const PushStamp& stamp,
                                      PayloadReader& gradient) {
  Tensor numbers = received(rows_, gradient);
  const runtime::FlushDenormals flush;
  const base::MutexLock lock(mutex_);
  check_updated(step);
  PushSum& sum = sum_of(step.slots);
  if (!sum.takes(stamp)) return {.step = sum.step(), .is_late = true};
  sum.add(std::move(numbers), step.how.gradient_scale);
  return note_push(sum, step, stamp);
}

PushCount StoredParameter::accumulate_rows(const UpdateStep& step, const PushStamp& stamp,
                                           const std::vector<int64_t>& rows, bool others_too,
                                           PayloadReader& gradient) {
  const Tensor numbers = received(static_cast<int64_t>(rows.size()), gradient);
  const runtime::FlushDenormals flush;
  const base::MutexLock lock(mutex_);
  check_updated(step);
  PushSum& sum = sum_of(step.slots);
  if (!sum.takes(stamp)) return {.step = sum.step(), .is_late = true};
  sum.add({rows, numbers}, step.how.gradient_scale, others_too);
  return note_push(sum, step, stamp);
}

PushCount StoredParameter::note_push(PushSum& sum, const UpdateStep& step, const PushStamp& stamp) {
  sum.note_last(step);
  if (sum.is_complete(stamp.needed)) apply_sum(sum);
  return {.step = sum.step()};
}

void StoredParameter::complete_update(const std::string& set) {
  const runtime::FlushDenormals flush;
  const base::MutexLock lock(mutex_);
  PushSum& sum = sum_of(set);
  if (sum.last()) apply_sum(sum);
}

// The rule, and what is around it, are those of the last push; each one's own scale (a norm to clip
// by) is in the sum.
void StoredParameter::apply_sum(PushSum& sum) {
  UpdateStep mean = *sum.last();
  mean.how.gradient_scale = 1.0 / static_cast<double>(sum.count());
  const RowRange all{0, rows_};
  const Tensor dense = sum.dense_of(rows_);
  const Tensor& numbers = dense.defined() ? dense : sum.rows().values;
  rpc::Payload bytes;
  if (numbers.defined()) append_bytes(bytes, numbers);
  PayloadReader in("[ps] ", bytes);
  if (dense.defined()) {
    apply(mean, all, in);
  } else if (width_ > 0) {
    apply_rows(mean, all, sum.rows().rows, sum.others_too(), in);
  }
  sum.begin_next();
}

PushCount StoredParameter::count_push(const PushStamp& stamp) {
  COHORT_CHECK_ARG(dtype_ == kInt64 && shape_.empty(),
                   "[ps] expected an integer of int64 that counts updates, got \"", name_, "\"");
  const at::NoGradGuard no_grad;
  const base::MutexLock lock(mutex_);
  if (!counted_.takes(stamp)) return {.step = counted_.step(), .is_late = true};
  counted_.add();
  if (counted_.is_complete(stamp.needed)) count_update();
  return {.step = counted_.step()};
}

void StoredParameter::count_update() {
  own(value_);
  *value_.mutable_data_ptr<int64_t>() += 1;
  counted_.begin_next();
}

uint64_t StoredParameter::complete_count() {
  COHORT_CHECK_ARG(dtype_ == kInt64 && shape_.empty(),
                   "[ps] expected an integer of int64 that counts updates, got \"", name_, "\"");
  const at::NoGradGuard no_grad;
  const base::MutexLock lock(mutex_);
  if (counted_.count() > 0) count_update();
  return counted_.step();
}

std::size_t StoredParameter::room_for_push(const std::string& set,
                                           std::optional<std::size_t> named) {
  const base::MutexLock lock(mutex_);
  return sum_of(set).room_for(named, row_bytes_, static_cast<std::size_t>(rows_));
}

uint64_t StoredParameter::push_step() {
  const base::MutexLock lock(mutex_);
  return counted_.step();
}

}  // namespace cohort::internal::coordinator
