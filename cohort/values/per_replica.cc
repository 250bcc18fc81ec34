// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/per_replica.h"

#include <algorithm>
#include <ostream>

#include "cohort/base/check.h"

namespace cohort::internal::values {

void check_components(const char* operation, std::size_t size, int replicas) {
  COHORT_CHECK_ARG(size == static_cast<std::size_t>(replicas), "[", operation, "] expected ",
                   replicas, " values, got ", size);
}

void throw_not_one_value(std::size_t size) {
  if (size == 0) {
    throw FailedPrecondition("[per_replica] expected a value, got an empty PerReplica or Mirrored");
  }
  throw FailedPrecondition(str_cat(
      "[per_replica] expected one value in cross-replica context, got ", size,
      " different ones, one for each replica; use strategy.reduce or strategy.gather to make "
      "one of them, or strategy.local_results to see them all"));
}

void throw_out_of_range(const char* operation, std::size_t index, std::size_t size) {
  throw Error(ErrorCode::kOutOfRange, str_cat("[", operation, "] expected a local replica in [0, ",
                                              size, "), got ", index));
}

Device device_of_component(const char* operation, const DeviceList& devices, std::size_t index,
                           std::size_t size) {
  if (index >= size) throw_out_of_range(operation, index, size);
  COHORT_CHECK_STATE(devices != nullptr, "[", operation,
                     ".device] expected a value that a strategy made, got one that the program "
                     "made itself, which says nothing of devices");
  return (*devices)[std::min(index, devices->size() - 1)];
}

void print_text(std::ostream& out, std::string_view text) { out << text; }

void print_quoted(std::ostream& out, std::string_view text) {
  out << '\'';
  for (const char c : text) {
    if (c == '\'' || c == '\\') out << '\\';
    out << c;
  }
  out << '\'';
}

}  // namespace cohort::internal::values
