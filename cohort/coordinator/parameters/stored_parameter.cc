// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/stored_parameter.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/rounded_update.h"

namespace cohort::internal::coordinator {
namespace {

// Of a gradient at a time: it stays in the core's cache between its arrival and its use.
constexpr int64_t kBlockElements = 16384;
constexpr std::size_t kMostSlotSets = 64;
// Of an answer at a time: who waits for it takes them while others are written.
constexpr std::size_t kFilledBytes = std::size_t{16} << 10;

// A number is one row.
int64_t rows_in(const Tensor& x) { return x.dim() == 0 ? 1 : x.size(0); }
std::size_t row_bytes_in(const Tensor& x) {
  const auto rows = static_cast<std::size_t>(rows_in(x));
  return rows == 0 ? 0 : x.nbytes() / rows;
}

// As read_shape() has it: of all rows.
void check_form(const variables::SlotForm& form, int64_t rows) {
  constexpr int64_t kMostElements = int64_t{1} << 48;
  const int64_t most = kMostElements / std::max<int64_t>(1, rows);
  COHORT_CHECK_ARG(c10::multiply_integers(form.shape) <= most, "[ps] expected slots of at most ",
                   kMostElements, " elements, got ", rows, " times ", bracketed(form.shape));
}

bool are_like(const std::vector<variables::SlotForm>& forms) {
  return std::ranges::all_of(
      forms, [](const auto& form) { return form.kind == variables::SlotForm::Kind::kLike; });
}

Tensor loaded(const Shape& shape, DType dtype, PayloadReader& numbers) {
  Tensor out = empty(shape, dtype);
  if (out.nbytes() > 0) numbers.read(out.mutable_data_ptr(), out.nbytes());
  return out;
}

}  // namespace

StoredParameter::StoredParameter(std::string name, DType dtype, Shape shape)
    : name_(std::move(name)),
      dtype_(dtype),
      shape_(std::move(shape)),
      rows_(shape_.empty() ? 1 : shape_[0]),
      width_(rows_ == 0 ? 0 : c10::multiply_integers(shape_) / rows_),
      row_bytes_(static_cast<std::size_t>(width_) * c10::elementSize(dtype)),
      value_(empty(shape_, dtype)) {}

void StoredParameter::check_range(RowRange range) const { check_range(range, rows_); }
void StoredParameter::check_range(RowRange range, int64_t rows) const {
  COHORT_CHECK_ARG(range.first >= 0 && range.count >= 0 && range.first <= rows &&
                       range.count <= rows - range.first,
                   "[ps] expected rows of \"", name_, "\", which has ", rows, ", got ", range.count,
                   " from ", range.first, " on");
}

std::size_t StoredParameter::bytes_of(const StoredPlace& place, RowRange range) {
  const base::MutexLock lock(mutex_);
  const Tensor& x = tensor_at(place);
  check_range(range, rows_in(x));
  return static_cast<std::size_t>(range.count) * row_bytes_in(x);
}

std::size_t StoredParameter::bytes() {
  const base::MutexLock lock(mutex_);
  std::size_t sum = value_.nbytes();
  for (const auto& [name, set] : slots_) {
    for (const Tensor& slot : set.values) sum += slot.nbytes();
    sum += set.pushed.bytes();
  }
  return sum;
}

Tensor& StoredParameter::tensor_at(const StoredPlace& place) {
  if (place.slots.empty()) return value_;
  const auto found = slots_.find(place.slots);
  COHORT_CHECK_STATE(found != slots_.end(), "[ps] expected slots \"", place.slots, "\" of \"",
                     name_, "\", which have not been made");
  COHORT_CHECK_ARG(place.slot < found->second.values.size(), "[ps] expected one of ",
                   found->second.values.size(), " slots \"", place.slots, "\" of \"", name_,
                   "\", got ", place.slot);
  return found->second.values[place.slot];
}

void StoredParameter::own(Tensor& x) {
  if (x.use_count() > 1) x = x.clone();
}

void StoredParameter::own_updated(const UpdateStep& step) {
  own(value_);
  if (const auto found = slots_.find(step.slots); found != slots_.end()) {
    for (Tensor& slot : found->second.values) own(slot);
  }
}

Tensor StoredParameter::rows_of(const StoredPlace& place, RowRange range) {
  const Tensor& x = tensor_at(place);
  const int64_t rows = rows_in(x);
  check_range(range, rows);
  return x.view({rows, rows == 0 ? 0 : x.numel() / rows}).narrow(0, range.first, range.count);
}

Tensor StoredParameter::received(int64_t rows, PayloadReader& numbers) const {
  numbers.expect(static_cast<std::size_t>(rows) * row_bytes_);
  Tensor out = empty({rows, width_}, dtype_);
  numbers.read(out.mutable_data_ptr(), out.nbytes());
  return out;
}

void StoredParameter::read(const StoredPlace& place, RowRange range, std::span<std::byte> to,
                           Filled filled) {
  const base::MutexLock lock(mutex_);
  const Tensor& x = tensor_at(place);
  check_range(range, rows_in(x));
  const auto* from = static_cast<const std::byte*>(x.const_data_ptr());
  from += static_cast<std::size_t>(range.first) * row_bytes_in(x);
  const std::size_t bytes = static_cast<std::size_t>(range.count) * row_bytes_in(x);
  COHORT_CHECK_STATE(bytes == to.size(), "[ps] expected slots \"", place.slots, "\" of \"", name_,
                     "\", got others, which have been made meanwhile");
  for (std::size_t at = 0; at < bytes; at += kFilledBytes) {
    const std::size_t now = std::min(kFilledBytes, bytes - at);
    std::memcpy(to.data() + at, from + at, now);
    filled.say(at + now);
  }
}

void StoredParameter::read_rows(const std::vector<int64_t>& rows, std::byte* to, Filled filled) {
  const base::MutexLock lock(mutex_);
  check_by_numbers();
  const auto* from = static_cast<const std::byte*>(value_.const_data_ptr());
  // Rows lie anywhere: those that follow are on their way while one is copied.
  constexpr std::size_t kAhead = 16;
  std::size_t next_word = kFilledBytes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      const auto* const next = from + static_cast<std::size_t>(rows[i + kAhead]) * row_bytes_;
      __builtin_prefetch(next);
      if (row_bytes_ > 64) __builtin_prefetch(next + 64);
    }
    std::memcpy(to, from + static_cast<std::size_t>(rows[i]) * row_bytes_, row_bytes_);
    to += row_bytes_;
    if (const std::size_t done = (i + 1) * row_bytes_; done >= next_word) {
      filled.say(done);
      next_word = done + kFilledBytes;
    }
  }
}

void StoredParameter::write(const StoredPlace& place, variables::Write kind, RowRange range,
                            PayloadReader& numbers) {
  const std::size_t bytes = bytes_of(place, range);
  numbers.expect(bytes);
  const auto elements = static_cast<int64_t>(bytes / c10::elementSize(dtype_));
  const Tensor x =
      loaded({range.count, range.count == 0 ? 0 : elements / range.count}, dtype_, numbers);
  const at::NoGradGuard no_grad;
  const base::MutexLock lock(mutex_);
  own(tensor_at(place));
  Tensor to = rows_of(place, range);
  if (range.count == 0) return;
  switch (kind) {
    case variables::Write::kAssign:
      to.copy_(x);
      return;
    case variables::Write::kAdd:
      runtime::in_plain_words("[ps] ", [&] { to.add_(x); });
      return;
    case variables::Write::kSub:
      runtime::in_plain_words("[ps] ", [&] { to.sub_(x); });
      return;
  }
}

void StoredParameter::scatter(variables::Scatter kind, const std::vector<int64_t>& rows,
                              PayloadReader& values) {
  const auto count = static_cast<int64_t>(rows.size());
  const Tensor x = received(count, values);
  const Tensor indices = from_vector(rows, {count});
  const at::NoGradGuard no_grad;
  const base::MutexLock lock(mutex_);
  check_by_numbers();
  own(value_);
  Tensor to = value_.view({rows_, width_});
  variables::scatter_rows(to, kind,
                          {.values = x, .indices = indices, .dense_shape = {rows_, width_}});
}

void StoredParameter::make_slots(const std::string& set, const std::vector<double>& initial,
                                 const std::vector<variables::SlotForm>& forms, bool anew) {
  COHORT_CHECK_ARG(!set.empty(), "[ps] expected a name for the slots of \"", name_, "\", got none");
  COHORT_CHECK_ARG(initial.size() <= update_rules::kMaxSlots, "[ps] expected at most ",
                   update_rules::kMaxSlots, " slots of \"", name_, "\", got ", initial.size());
  COHORT_CHECK_ARG(forms.size() == initial.size(), "[ps] expected a form for each of ",
                   initial.size(), " slots, got ", forms.size());
  for (const variables::SlotForm& form : forms) check_form(form, rows_);
  const base::MutexLock lock(mutex_);
  const bool is_table = table_ != nullptr;
  COHORT_CHECK_STATE(!is_table || are_like(forms), "[optimizer.build] expected slots like \"",
                     name_, "\", whose rows a DynamicTable gives away, got others");
  if (anew) slots_.erase(set);
  if (const auto found = slots_.find(set); found != slots_.end()) {
    COHORT_CHECK_STATE(found->second.initial == initial && found->second.forms == forms,
                       "[optimizer.build] expected the optimizer ", "\"", set, "\" of \"", name_,
                       "\" that another process has made, with ", found->second.initial.size(),
                       " slots, got another one with ", initial.size(),
                       ", or with other first values; give it another name");
    return;
  }
  COHORT_CHECK_ARG(slots_.size() < kMostSlotSets, "[ps] expected at most ", kMostSlotSets,
                   " optimizers of \"", name_, "\", got one more");
  SlotSet made;  // there as a whole, or not at all: memory may be refused
  made.initial = initial;
  made.forms = forms;
  for (std::size_t s = 0; s < forms.size(); ++s) {
    made.values.push_back(full(variables::shape_of(forms[s], shape_), initial[s], dtype_));
  }
  slots_.emplace(set, std::move(made));
}

void StoredParameter::drop_slots(const std::string& set) {
  const base::MutexLock lock(mutex_);
  slots_.erase(set);
}

void StoredParameter::save(rpc::MessageWriter& out, rpc::Payload& numbers) {
  out.text(name_);
  out.number(wire_dtype(dtype_));
  write_shape(out, shape_);
  const base::MutexLock lock(mutex_);
  append_bytes(numbers, value_);
  out.number(slots_.size());
  for (const auto& [name, set] : slots_) {
    out.text(name);
    out.number(set.initial.size());
    for (const double number : set.initial) out.float64(number);
    for (const variables::SlotForm& form : set.forms) write_form(out, form);
    for (const Tensor& slot : set.values) append_bytes(numbers, slot);
    set.pushed.save(out, numbers);
  }
  counted_.save(out, numbers);
  out.number(table_ != nullptr ? 1 : 0);
  if (table_ != nullptr) table_->save(out, numbers);
}

std::shared_ptr<StoredParameter> StoredParameter::load(rpc::MessageReader& in,
                                                       PayloadReader& numbers) {
  std::string name = in.text();
  const DType dtype = read_dtype(in);
  const Shape shape = read_shape(in);
  const auto out = std::make_shared<StoredParameter>(std::move(name), dtype, shape);
  const base::MutexLock lock(out->mutex_);
  out->value_ = loaded(shape, dtype, numbers);
  for (uint64_t left = in.number_up_to(kMostSlotSets); left > 0; --left) {
    SlotSet& set = out->slots_[in.text()];
    set.initial.resize(in.number_up_to(update_rules::kMaxSlots));
    for (double& number : set.initial) number = in.float64();
    for (std::size_t i = 0; i < set.initial.size(); ++i) {
      set.forms.push_back(read_form(in));
      check_form(set.forms.back(), out->rows_);
    }
    for (const variables::SlotForm& form : set.forms) {
      set.values.push_back(loaded(variables::shape_of(form, shape), dtype, numbers));
    }
    set.pushed = PushSum::load(in, numbers, {out->rows_, out->width_}, dtype);
  }
  out->counted_ = PushSum::load(in, numbers, {out->rows_, out->width_}, dtype);
  if (in.number_up_to(1) == 1) out->table_ = StoredTable::load(in, numbers);
  return out;
}

void StoredParameter::check_slots(const UpdateStep& step) const {
  COHORT_CHECK_ARG(variables::is_trained(dtype_),
                   "[optimizer.apply_gradients] expected a variable of float32, float64, float16 "
                   "or bfloat16, got \"",
                   name_, "\" of ", dtype_name(dtype_));
  const auto found = slots_.find(step.slots);
  const std::size_t has = found == slots_.end() ? 0 : found->second.values.size();
  for (std::size_t s = 0; s < update_rules::kMaxSlots; ++s) {
    if (!update_rules::uses_slot(step.rule, s)) continue;
    COHORT_CHECK_STATE(s < has && found->second.values[s].sizes() == value_.sizes(),
                       "[optimizer.apply_gradients] expected slot ", s, " of \"", step.slots,
                       "\" for \"", name_, "\", as large as that, which has ", has);
  }
}

template <class T>
update_rules::Target<T> StoredParameter::target(const UpdateStep& step) {
  update_rules::Target<T> out{.param = value_.mutable_data_ptr<T>(), .slots = {}};
  if (const auto found = slots_.find(step.slots); found != slots_.end()) {
    for (std::size_t s = 0; s < found->second.values.size(); ++s) {
      out.slots[s] = found->second.values[s].mutable_data_ptr<T>();
    }
  }
  return out;
}

// Without `rows` the gradient has all elements; else zero where no row is named.
template <class T>
void StoredParameter::update_blocks(const UpdateStep& step, RowRange range,
                                    const std::vector<int64_t>* rows, PayloadReader& gradient) {
  const update_rules::Target<T> all = target<T>(step);
  const auto from = [&all](int64_t begin) {
    update_rules::Target<T> out = all;
    out.param += begin;
    for (T*& slot : out.slots) slot = slot == nullptr ? nullptr : slot + begin;
    return out;
  };
  if (rows == nullptr) {
    const auto size = static_cast<std::size_t>(range.count * width_);
    if (const T* const numbers = gradient.in_place<T>(size)) {
      const T* const sources[] = {numbers};
      return variables::apply_elements<T>(step.rule, from(range.first * width_), sources, 0, size,
                                          step.how);
    }
  }
  const int64_t block_rows = rows == nullptr ? 1 : std::max<int64_t>(1, kBlockElements / width_);
  const int64_t block = rows == nullptr ? kBlockElements : block_rows * width_;
  std::vector<T> numbers(static_cast<std::size_t>(block));
  const T* const sources[] = {numbers.data()};
  std::size_t next = 0;
  const int64_t end = (range.first + range.count) * width_;
  for (int64_t begin = range.first * width_; begin < end; begin += block) {
    const int64_t size = std::min(block, end - begin);
    if (rows == nullptr) {
      gradient.read(numbers.data(), static_cast<std::size_t>(size) * sizeof(T));
    } else {
      std::fill(numbers.begin(), numbers.end(), T{0});
      const int64_t first = begin / width_;
      for (; next < rows->size() && (*rows)[next] < first + block_rows; ++next) {
        gradient.read(numbers.data() + ((*rows)[next] - first) * width_, row_bytes_);
      }
    }
    variables::apply_elements<T>(step.rule, from(begin), sources, 0, static_cast<std::size_t>(size),
                                 step.how);
  }
}

template <class T>
void StoredParameter::update_named_rows(const UpdateStep& step, const std::vector<int64_t>& rows,
                                        PayloadReader& gradient) {
  const update_rules::Target<T> all = target<T>(step);
  const auto width = static_cast<std::size_t>(width_);
  if (const T* const numbers = gradient.in_place<T>(rows.size() * width)) {
    return variables::apply_rows<T>(step.rule, all, numbers, rows, width, step.how);
  }
  const std::size_t block =
      std::max<std::size_t>(1, static_cast<std::size_t>(kBlockElements) / width);
  std::vector<T> numbers(std::min(block, rows.size()) * width);
  for (std::size_t at = 0; at < rows.size(); at += block) {
    const std::size_t count = std::min(block, rows.size() - at);
    gradient.read(numbers.data(), count * row_bytes_);
    variables::apply_rows<T>(step.rule, all, numbers.data(), {rows.data() + at, count}, width,
                             step.how);
  }
}

void StoredParameter::update(const UpdateStep& step, RowRange range, PayloadReader& gradient) {
  check_range(range);
  gradient.expect(static_cast<std::size_t>(range.count) * row_bytes_);
  const runtime::FlushDenormals flush;
  const base::MutexLock lock(mutex_);
  check_updated(step);
  apply(step, range, gradient);
}

void StoredParameter::apply(const UpdateStep& step, RowRange range, PayloadReader& gradient) {
  own_updated(step);
  // The call stands out here, where the mutex is known to be held.
  const auto update = variables::with_trained_type(
      dtype_, []<class T>(T) { return &StoredParameter::update_blocks<T>; });
  (this->*update)(step, range, nullptr, gradient);
}

void StoredParameter::update_rows(const UpdateStep& step, RowRange range,
                                  const std::vector<int64_t>& rows, bool others_too,
                                  PayloadReader& gradient) {
  check_range(range);
  COHORT_CHECK_ARG(
      rows.empty() || (rows.front() >= range.first && rows.back() < range.first + range.count),
      "[ps] expected rows of \"", name_, "\" in [", range.first, ", ", range.first + range.count,
      "), got rows outside");
  gradient.expect(rows.size() * row_bytes_);
  if (width_ == 0) return;
  const runtime::FlushDenormals flush;
  const base::MutexLock lock(mutex_);
  check_updated(step);
  apply_rows(step, range, rows, others_too, gradient);
}

template <class T>
void StoredParameter::apply_rows_of(const UpdateStep& step, RowRange range,
                                    const std::vector<int64_t>& rows, bool others_too,
                                    PayloadReader& gradient) {
  others_too ? update_blocks<T>(step, range, &rows, gradient)
             : update_named_rows<T>(step, rows, gradient);
}

void StoredParameter::apply_rows(const UpdateStep& step, RowRange range,
                                 const std::vector<int64_t>& rows, bool others_too,
                                 PayloadReader& gradient) {
  own_updated(step);
  const auto update = variables::with_trained_type(
      dtype_, []<class T>(T) { return &StoredParameter::apply_rows_of<T>; });
  (this->*update)(step, range, rows, others_too, gradient);
}

}  // namespace cohort::internal::coordinator
