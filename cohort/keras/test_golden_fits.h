// SPDX-License-Identifier: Apache-2.0
//
// For tests: fit and evaluate of real Keras on one replica (golden/fits.json, which
// golden/write_fits.py draws), and the same under any strategy. Uneven batches, replicas without
// rows, masks, weights of samples and classes, several outputs, penalties, constraints: all of it
// is to be the same.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/scope_exit.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/model.h"
#include "cohort/keras/test_golden.h"
#include "cohort/strategy/strategy.h"

namespace cohort::keras::testing {

inline Tensor fit_tensor(const Config& config) {
  if (config.is_null()) return {};
  Shape shape;
  for (const Config& size : config.at("shape").list()) shape.push_back(size.integer());
  std::vector<double> values;
  for (const Config& x : config.at("data").list()) values.push_back(x.number());
  return from_vector(values, shape).to(ConfigValue<DType>::read(config.at("dtype")));
}

inline std::vector<Tensor> fit_tensors(const Config& list) {
  std::vector<Tensor> all;
  for (const Config& one : list.list()) all.push_back(fit_tensor(one));
  return all;
}

inline data::Element fit_element(const Config& list) {
  const std::vector<Tensor> all = fit_tensors(list);
  if (all.size() == 1) return all[0];
  return data::Element::tuple({all.begin(), all.end()});
}

inline std::vector<double> numbers_in(const Config& value) {
  if (!value.is_list()) return {value.number()};
  std::vector<double> all;
  for (const Config& one : value.list()) all.push_back(one.number());
  return all;
}

/// One fit of real Keras's, with its data.
class FitCase {
 public:
  explicit FitCase(const Config& config)
      : config_(config), wide_(config.text("dtype") == "float64") {}

  DType dtype() const { return wide_ ? kFloat64 : kFloat32; }
  /// Whether the optimizer was given it.
  bool sets(const std::string& option) const {
    const Config& optimizer = config_.at("compile").at("optimizer");
    return optimizer.is_object() && !optimizer.at("config").at(option).is_null();
  }

  /// fit and evaluate have Keras's numbers. floatx() is dtype() meanwhile.
  void replay(const Strategy& strategy) const {
    const auto scope = strategy.scope();
    const auto model = model_from_config(config_.at("model"));
    model->set_weights(fit_tensors(config_.at("weights")));
    model->compile_from_config(config_.at("compile"));
    const data::Dataset batches = data();
    FitOptions options = {.epochs = static_cast<int>(config_.integer("epochs")),
                          .verbose = Verbose::kSilent};
    if (const Config& classes = config_.at("class_weight"); classes.is_object()) {
      for (const auto& [label, weight] : classes.members()) {
        options.class_weight[std::stoll(label)] = weight.number();
      }
    }
    const History history = model->fit(batches, options);
    for (const auto& [name, epochs] : config_.at("history").members())
      expect_epochs(history, name, epochs);
    const Logs logs = model->evaluate(batches, {.verbose = Verbose::kSilent});
    for (const auto& [name, value] : config_.at("evaluated").members()) {
      expect_near("evaluated " + name, logs.value(name), numbers_in(value));
    }
    const std::vector<Tensor> after = fit_tensors(config_.at("after"));
    const std::vector<Tensor> weights = model->get_weights();
    ASSERT_EQ(weights.size(), after.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      const Tensor flat = after[i].to(kFloat64).reshape({-1});
      expect_near("weight " + model->variables()[i].name(), weights[i],
                  {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()});
    }
  }

 private:
  data::Dataset data() const {
    std::vector<data::Element> parts = {fit_element(config_.at("x")), fit_element(config_.at("y"))};
    if (!config_.at("weight").is_null()) parts.push_back(fit_tensor(config_.at("weight")));
    return data::Dataset::from_tensor_slices(data::Element::tuple(parts))
        .batch(config_.integer("batch_size"));
  }

  void expect_epochs(const History& history, const std::string& name, const Config& epochs) const {
    ASSERT_TRUE(history.contains(name)) << name;
    for (std::size_t e = 0; e < epochs.list().size(); ++e) {
      double mean = 0;  // a history has the mean of a metric with several numbers
      const std::vector<double> all = numbers_in(epochs.list()[e]);
      for (const double x : all) mean += x / static_cast<double>(all.size());
      expect_near("epoch " + std::to_string(e) + " " + name, scalar(history.at(name)[e], kFloat64),
                  {mean});
    }
  }

  void expect_near(const std::string& what, const Tensor& got,
                   const std::vector<double>& want) const {
    const Tensor exact = from_vector(want, {static_cast<int64_t>(want.size())});
    const Tensor values = got.detach().to(kFloat64).reshape({-1});
    ASSERT_EQ(values.numel(), exact.numel()) << what;
    const double off = ((values - exact).abs() / (exact.abs() + 0.1)).max().item<double>();
    EXPECT_LE(off, wide_ ? 2e-6 : 1e-4) << what << ": " << values << "\nfor " << exact;
  }

  const Config& config_;
  const bool wide_;
};

/// replay(fit) of every case. COHORT_FITS names another file.
template <class Replay>
void replay_all_fits(const std::string& golden_folder, const Replay& replay) {
  const char* const other = std::getenv("COHORT_FITS");
  const Config cases = read_golden(other != nullptr ? other : golden_folder + "/fits.json");
  const DType before = floatx();
  const cohort::internal::base::ScopeExit back([before] { set_floatx(before); });
  for (const Config& one : cases.list()) {
    SCOPED_TRACE(one.text("name"));
    const FitCase fit(one);
    set_floatx(fit.dtype());
    try {
      replay(fit);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace cohort::keras::testing
