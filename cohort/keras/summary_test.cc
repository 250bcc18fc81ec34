// SPDX-License-Identifier: Apache-2.0
//
// What summary() prints beside what real Keras prints: golden/summaries.json.
#include "cohort/keras/summary.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cohort/keras/model.h"
#include "cohort/keras/test_golden.h"

namespace cohort::keras {
namespace {

bool is_on(const Config& options, const char* name) {
  const Config* value = options.find(name);
  return value != nullptr && value->boolean();
}

TEST(Summary, PrintsWhatKerasPrints) {
  const Config golden = testing::read_golden(COHORT_GOLDEN "/summaries.json");
  const char* before = std::getenv("COLUMNS");
  const std::string columns = before == nullptr ? "" : before;
  for (const Config& one : golden.at("summaries").list()) {
    const std::string name = one.at("model").text();
    const auto model = model_from_json(golden.at("models").at(name).to_json());
    const Config& options = one.at("options");
    ::setenv("COLUMNS", std::to_string(one.at("columns").integer()).c_str(), 1);
    EXPECT_EQ(model->summary_text({.expand_nested = is_on(options, "expand_nested"),
                                   .show_trainable = is_on(options, "show_trainable")}),
              one.at("text").text())
        << name << options.to_json();
  }
  columns.empty() ? ::unsetenv("COLUMNS") : ::setenv("COLUMNS", columns.c_str(), 1);
}

TEST(Summary, WritesShapesOfColumns) {
  EXPECT_EQ(internal::column_shape_text({kUnknownDim}), "(None)");
  EXPECT_EQ(internal::column_shape_text({}), "()");
}

}  // namespace
}  // namespace cohort::keras
