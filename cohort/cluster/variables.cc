// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdlib>

#include "cohort/base/check.h"
#include "cohort/cluster/internal/variables.h"

namespace cohort::internal::cluster {

std::optional<std::string> job_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return {};
  return text;
}

std::string needed_variable(const char* name, const char* hint) {
  const auto text = job_variable(name);
  COHORT_CHECK_STATE(text, "[cluster_resolver] ", name, " not found in environment. ", hint);
  return *text;
}

int whole_number(const std::string& what, const std::string& text, int least) {
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  COHORT_CHECK_ARG(error == std::errc() && rest == text.data() + text.size() && number >= least,
                   "[cluster_resolver] expected ", what, " to be a whole number of at least ",
                   least, ", got \"", text, "\"");
  return number;
}

}  // namespace cohort::internal::cluster
