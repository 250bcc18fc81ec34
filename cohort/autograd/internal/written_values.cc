// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/internal/written_values.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::autograd {
namespace {

/// Of "... by an inplace operation: [CPUFloatType [2, 3]] is at version 4; expected ...".
struct Written {
  std::string type = {};   // "CPUFloatType"
  std::string shape = {};  // "[2, 3]"
  int64_t numel = 1;
  int64_t version = 0;
  bool was_computed = false;  // a view of a variable, maybe, but no variable
};

constexpr std::size_t kMostNames = 3;

std::optional<Written> written_of(const std::string& text) {
  static const std::regex said(
      R"(modified by an inplace operation: \[(\S+) (\[[^\]]*\])\](.*) is at version (\d+);)");
  std::smatch found;
  if (!std::regex_search(text, found, said)) return {};
  Written out{.type = found[1], .shape = found[2], .version = std::stoll(found[4])};
  out.was_computed = found[3].str().find("which is output") != std::string::npos;
  std::istringstream sizes(out.shape.substr(1));
  for (std::string size; std::getline(sizes, size, ',');) {
    if (size != "]") out.numel *= std::atoll(size.c_str());  // a scalar has none
  }
  return out;
}

bool is_like(const Tensor& component, const Written& written) {
  return component._version() == written.version && component.toString() == written.type;
}

bool may_be(variables::VariableImpl& variable, const Written& written) {
  if (variable.numel() != written.numel) return false;
  if (current_replica() >= 0) return is_like(variable.leaf().tensor, written);
  for (int r = 0; r < variable.leaf_count(); ++r) {
    if (is_like(variable.leaf_of(r).tensor, written)) return true;
  }
  return false;
}

// LibTorch says what the value was like, not whose it was; and a view of a variable, which may have
// another shape, has its version.
std::string what_was(const Written& written, std::span<const Variable> sources) {
  std::vector<const variables::VariableImpl*> found;
  bool is_sure = !written.was_computed;
  for (const Variable& v : sources) {
    if (!may_be(v.impl(), written)) continue;
    found.push_back(&v.impl());
    is_sure = is_sure && bracketed(v.shape()) == written.shape;
  }
  if (found.size() == 1 && is_sure) {
    return str_cat("variable ", variables::label(*found[0]), " of shape ", written.shape);
  }
  std::string out = str_cat("a tensor of shape ", written.shape);
  for (std::size_t i = 0; i < std::min(found.size(), kMostNames); ++i) {
    const char* const first = found.size() == 1 ? ", perhaps of variable " : ", perhaps of one of ";
    out += str_cat(i == 0 ? first : ", ", variables::label(*found[i]));
  }
  if (found.size() > kMostNames) out += str_cat(" and ", found.size() - kMostNames, " others");
  return out;
}

}  // namespace

void throw_if_written(const char* operation, const c10::Error& error,
                      std::span<const Variable> sources) {
  const std::optional<Written> written = written_of(error.what_without_backtrace());
  if (!written) return;
  throw FailedPrecondition(
      str_cat(operation, "expected values as they were when the target was computed, got ",
              what_was(*written, sources),
              ", which was written since; call gradient() before writes (assign, "
              "apply_gradients), or compute the target again after them"));
}

}  // namespace cohort::internal::autograd
