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

namespace cohort::internal {
namespace {

/// Of "... by an inplace operation: [CPUFloatType [2, 3]] is at version 4; expected ...".
struct Written {
  std::string shape = {};  // "[2, 3]"
  int64_t numel = 1;
  int64_t version = 0;
};

constexpr std::size_t kMostNames = 3;

std::optional<Written> written_of(const std::string& text) {
  static const std::regex said(
      R"(modified by an inplace operation: \[\S+ (\[[^\]]*\])\].* is at version (\d+);)");
  std::smatch found;
  if (!std::regex_search(text, found, said)) return {};
  Written out{.shape = found[1], .version = std::stoll(found[2])};
  std::istringstream sizes(out.shape.substr(1));
  for (std::string size; std::getline(sizes, size, ',');) {
    if (size != "]") out.numel *= std::atoll(size.c_str());  // a scalar has none
  }
  return out;
}

bool is_at_version(VariableImpl& variable, int64_t version) {
  if (current_replica() >= 0) return variable.leaf().tensor._version() == version;
  for (int r = 0; r < variable.leaf_count(); ++r) {
    if (variable.leaf_of(r).tensor._version() == version) return true;
  }
  return false;
}

// What LibTorch has saved may be a view of a variable, of another shape than its own.
std::string names_of(const Written& written, std::span<const Variable> sources) {
  std::vector<const VariableImpl*> of_its_shape, of_its_size;
  for (const Variable& v : sources) {
    if (!is_at_version(v.impl(), written.version) || v.impl().numel() != written.numel) continue;
    of_its_size.push_back(&v.impl());
    if (bracketed(v.shape()) == written.shape) of_its_shape.push_back(&v.impl());
  }
  const auto& found = of_its_shape.empty() ? of_its_size : of_its_shape;
  std::string names;
  for (std::size_t i = 0; i < std::min(found.size(), kMostNames); ++i) {
    names += str_cat(i == 0 ? "variable " : " or ", label(*found[i]));
  }
  if (found.size() > kMostNames) names += str_cat(" or ", found.size() - kMostNames, " others");
  return names;
}

}  // namespace

void throw_if_written(const char* operation, const c10::Error& error,
                      std::span<const Variable> sources) {
  const std::optional<Written> written = written_of(error.what_without_backtrace());
  if (!written) return;
  const std::string names = names_of(*written, sources);
  throw FailedPrecondition(
      str_cat(operation, "expected values as they were when the target was computed, got ",
              names.empty() ? "a tensor" : names, " of shape ", written->shape,
              ", which was written since; call gradient() ahead of writes (assign, "
              "apply_gradients), or compute the target anew behind them"));
}

}  // namespace cohort::internal
