// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/fields.h"

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/internal/unknown_fields.h"

namespace cohort::keras {

Config ShapeValue::write(const std::vector<int64_t>& shape) {
  Config::List list;
  for (const int64_t size : shape) {
    if (size == -1) {
      list.emplace_back();
    } else {
      list.emplace_back(size);
    }
  }
  return list;
}

Config ShapeValue::write(const std::optional<std::vector<int64_t>>& shape) {
  return shape ? write(*shape) : Config();
}

std::vector<int64_t> ShapeValue::read(const Config& config) {
  std::vector<int64_t> shape;
  for (const Config& size : config.list()) shape.push_back(size.is_null() ? -1 : size.integer());
  return shape;
}

}  // namespace cohort::keras

namespace cohort::keras::internal {

void check_range(bool fits, int64_t value) {
  COHORT_CHECK_ARG(fits, "[config] expected a number that fits its type, got ", value);
}

void refuse_name(const Config& got, const std::vector<std::string>& known) {
  throw InvalidArgument(
      str_cat("[config] expected one of ", join(known, ", "), ", got ", got.brief()));
}

FieldReader::FieldReader(const Config& config, std::string who)
    : config_(config), who_(std::move(who)) {
  COHORT_CHECK_ARG(config.is_object(), "[", who_, ".from_config] expected named values, got ",
                   config.brief());
}

const Config* FieldReader::take(const char* name) {
  known_.emplace_back(name);
  return config_.find(name);
}

void FieldReader::rethrow(const char* name) const {
  const std::string where = str_cat("[", who_, ".from_config] ", name, ": ");
  try {
    throw;
  } catch (const Unimplemented& error) {
    throw Unimplemented(where + error.what());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(where + error.what());
  }
}

void FieldReader::constant(const char* name, const Config& value) {
  const Config* found = take(name);
  if (found == nullptr || *found == value) return;
  throw Unimplemented(str_cat("[", who_, ".from_config] expected ", name, " = ", value, ", got ",
                              found->brief(), ", which is not there yet"));
}

namespace {
thread_local bool t_unknown_fields_warn = false;
}  // namespace

UnknownFieldsWarn::UnknownFieldsWarn() : outer_(std::exchange(t_unknown_fields_warn, true)) {}
UnknownFieldsWarn::~UnknownFieldsWarn() { t_unknown_fields_warn = outer_; }
bool UnknownFieldsWarn::is_open() { return t_unknown_fields_warn; }

void FieldReader::finish() const {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : config_.members()) {
    if (std::ranges::find(known_, name) != known_.end()) continue;
    if (!UnknownFieldsWarn::is_open()) {
      unknown.push_back(name);
      continue;
    }
    // Of TensorFlow 2.13, in first layers, behind an InputLayer that says the same.
    if (name == "batch_input_shape") continue;
    COHORT_LOG(kWarning, "[", who_, ".from_config] ", name, " = ", value.brief(),
               " is not known here and left out");
  }
  COHORT_CHECK_ARG(unknown.empty(), "[", who_, ".from_config] expected only ", join(known_, ", "),
                   ", got ", join(unknown, ", "), " as well");
  COHORT_CHECK_ARG(missing_.empty(), "[", who_, ".from_config] expected ", join(missing_, ", "),
                   " to be given");
}

}  // namespace cohort::keras::internal
