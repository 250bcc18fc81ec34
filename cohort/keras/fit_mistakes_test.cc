// SPDX-License-Identifier: Apache-2.0
//
// What users get wrong in fit and evaluate, and what they read.
#include <gtest/gtest.h>

#include <limits>

#include "cohort/base/error.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;

class FitMistakes : public ::testing::Test {
 protected:
  FitMistakes() : model_({InputLayer({3}), Dense(2)}) {
    model_.compile({.optimizer = "sgd", .loss = "mse"});
  }
  void fit(FitOptions options) {
    options.verbose = Verbose::kSilent;
    model_.fit(x_, y_, options);
  }

  Sequential model_;
  const Tensor x_ = ones({10, 3}), y_ = zeros({10, 2});
};

TEST_F(FitMistakes, SampleWeightsOfAnotherLength) {
  for (const int64_t rows : {7, 0}) {
    const Tensor weights = ones({rows});
    const std::string got = "got sample_weight of shape [" + std::to_string(rows) + "]";
    expect_error<InvalidArgument>({"[fit] expected sample_weight", "10 rows of x", got},
                                  [&] { fit({.sample_weight = weights}); });
    expect_error<InvalidArgument>({"[evaluate] expected sample_weight", "10 rows of x", got}, [&] {
      model_.evaluate(x_, y_, {.verbose = Verbose::kSilent, .sample_weight = weights});
    });
  }
  expect_error<InvalidArgument>({"[fit] expected sample_weight", "shape []"},
                                [&] { fit({.sample_weight = ones({})}); });
  EXPECT_NO_THROW(fit({.sample_weight = ones({10, 1})}));
}

TEST_F(FitMistakes, RowsThatDoNotFit) {
  const Tensor short_y = zeros({7, 2}), short_weight = ones({7});
  for (const char* operation : {"[train_on_batch]", "[test_on_batch]"}) {
    const auto step = [&](const Tensor& y, const Tensor& weight) {
      const bool trains = std::string_view(operation) == "[train_on_batch]";
      trains ? model_.train_on_batch(x_, y, weight) : model_.test_on_batch(x_, y, weight);
    };
    expect_error<InvalidArgument>({operation, "10 inputs and 7 labels"},
                                  [&] { step(short_y, {}); });
    expect_error<InvalidArgument>({operation, "expected sample_weight", "10 rows", "shape [7]"},
                                  [&] { step(y_, short_weight); });
  }
  expect_error<InvalidArgument>({"[fit] expected as many rows in each part of x, got 10 and 7"},
                                [&] {
                                  model_.fit(Element{x_, ones({7, 3})}, y_);
                                });
  expect_error<InvalidArgument>({"[fit] expected rows of data as x, got a scalar"},
                                [&] { model_.fit(ones({}), y_); });
  expect_error<InvalidArgument>({"[fit] expected rows of data as y, got an undefined tensor"},
                                [&] { model_.fit(x_, Tensor()); });
}

TEST_F(FitMistakes, ValidationSplitsThatLeaveNothing) {
  for (const double split : {1.0, 1.5, -0.1, std::numeric_limits<double>::quiet_NaN()}) {
    expect_error<InvalidArgument>({"[fit] expected 0 <= validation_split < 1, got"},
                                  [&] { fit({.validation_split = split}); });
  }
  expect_error<InvalidArgument>({"validation_split = 0.99", "10 rows"},
                                [&] { fit({.validation_split = 0.99}); });
  EXPECT_NO_THROW(fit({.validation_split = 0.01}));  // the last row
}

// Of what is validated on, although the step is evaluate's.
TEST_F(FitMistakes, ValidationDataOfOtherShapes) {
  const auto validate = [&](const Element& data) {
    fit({.validation_data = DataSource(Dataset::from_tensor_slices(data).batch(5))});
  };
  expect_error<InvalidArgument>({"shape [-1, 3], got [5, 2]", "(while fit validated)"}, [&] {
    validate({ones({10, 2}), y_});
  });
  expect_error<InvalidArgument>({"got no labels", "(while fit validated)"},
                                [&] { validate(Element::tuple({x_})); });
  expect_error<InvalidArgument>({"[fit, validation] expected data, got an empty dataset"}, [&] {
    fit({.validation_data = DataSource(Dataset::from_tensor_slices({x_, y_}).batch(5).take(0))});
  });
}

TEST_F(FitMistakes, ClassWeightsThatAreNoNumbers) {
  expect_error<InvalidArgument>(
      {"[fit] expected finite weights in class_weight, got nan for class 2"}, [&] {
        fit({.class_weight = {{0, 1}, {2, std::numeric_limits<double>::quiet_NaN()}}});
      });
}

}  // namespace
}  // namespace cohort::keras
