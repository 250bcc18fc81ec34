// SPDX-License-Identifier: Apache-2.0
//
// Layers against those of real Keras: golden/layers/*.json, which golden/write_layers.py writes.
// Layers are made of Keras's configs, so this is how they are read, too.
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/test_golden_layers.h"

namespace cohort::keras {
namespace {

using data::Element;
using testing::adapt;
using testing::element_in;
using testing::flatten;
using testing::LayerCase;
using testing::shape_in;
using testing::tensor_in;
using testing::tensors_of;
using testing::weights_of;
using testing::without_newer;

// Layers inside say how they were built, which here they are not yet.
Config without_builds(const Config& config) {
  if (config.is_list()) {
    Config::List list;
    for (const Config& part : config.list()) list.push_back(without_builds(part));
    return list;
  }
  if (!config.is_object()) return config;
  Config out = Config::object();
  for (const auto& [name, value] : config.members()) {
    if (name != "build_config") out.set(name, without_builds(value));
  }
  return out;
}

// Numbers within `tolerance` of the largest one, or of 0.2: sums of numbers about 1 that cancel
// out.
void expect_near(const std::string& what, const Tensor& got, const Config& golden,
                 double tolerance) {
  ASSERT_TRUE(got.defined()) << what;
  const Tensor want = tensor_in(golden);
  ASSERT_EQ(shape_of(got), shape_of(want)) << what;
  EXPECT_EQ(got.scalar_type(), want.scalar_type()) << what;
  if (want.numel() == 0) return;
  const Tensor exact = want.to(kFloat64);
  const double largest = exact.abs().max().item<double>();
  const double off = (got.to(kFloat64) - exact).abs().max().item<double>();
  EXPECT_LE(off, tolerance * std::max(largest, 0.2)) << what << ": " << got << " for " << want;
}

class GoldenLayers : public ::testing::TestWithParam<LayerCase> {
 protected:
  const Config& golden() const { return GetParam().config; }
  const Config& golden(const char* name) const { return golden().at(name); }
  double tolerance() const { return golden().number("tolerance"); }

  Element call(const Layer& layer, const Element& inputs, bool training) const {
    return layer(inputs, {.training = training,
                          .mask = element_in(golden("mask")),
                          .initial_state = element_in(golden("initial_state"))});
  }

  // Learns from what Keras's layer did, and has learnt the same.
  void learn(const Layer& layer) const {
    if (!adapt(layer, golden())) return;
    EXPECT_EQ(without_builds(layer.get_config()),
              without_builds(without_newer(golden("adapted").at("config"))));
    const Config::List& weights = golden("weights").list();
    for (std::size_t i = 0; i < std::min(weights.size(), layer.variables().size()); ++i) {
      const Variable& learnt = layer.variables()[i];
      expect_near(learnt.name(), learnt.value(), weights[i].at("value"), tolerance());
    }
  }

  // Made of Keras's config, built by a call, with Keras's weights.
  Layer make() const {
    const Layer layer = Layer::deserialize(golden("layer"));
    learn(layer);
    call(layer, element_in(golden("inputs")), false);
    const Config::List& weights = golden("weights").list();
    EXPECT_EQ(layer.variables().size(), weights.size());
    const std::vector<Variable> variables = weights_of(layer, golden());
    for (std::size_t i = 0; i < std::min(weights.size(), variables.size()); ++i) {
      const Variable& variable = variables[i];
      const std::string name = variable.name();
      EXPECT_EQ(name.substr(name.rfind('/') + 1), weights[i].text("name"));
      EXPECT_EQ(shape_of(variable.value()), shape_in(weights[i].at("value"))) << name;
      variable.assign(tensor_in(weights[i].at("value")));
    }
    return layer;
  }

  void compare_outputs(const Element& outputs) const {
    Config::List want;
    flatten(golden("outputs"), want);
    if (outputs.has_value() && outputs.is_string()) {
      EXPECT_EQ(outputs.strings(), element_in(want.at(0)).strings());
      EXPECT_EQ(outputs.spec(), element_in(want[0]).spec());
      return;
    }
    std::vector<Tensor> got;
    tensors_of(outputs, got);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      expect_near(str_cat("output ", i), got[i], want[i], tolerance());
    }
  }

  // What the outputs carry to the layers behind, and to the loss.
  void compare_masks(const Element& outputs) const {
    const Config& want = golden("output_mask");
    std::vector<Tensor> got;
    tensors_of(outputs, got);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Tensor mask = internal::mask_of(got[i]);
      const bool has = !want.is_null() && !want.list().at(i).is_null();
      ASSERT_EQ(mask.defined(), has) << "mask of output " << i;
      if (has) {
        EXPECT_TRUE(mask.equal(tensor_in(want.list()[i]))) << mask;
      }
    }
  }

  // sum(cotangent * output) over what floats.
  Tensor target(const Element& outputs) const {
    std::vector<Tensor> all;
    tensors_of(outputs, all);
    std::erase_if(all, [](const Tensor& y) { return !y.is_floating_point(); });
    Tensor sum = zeros({}, kFloat32);
    for (std::size_t i = 0; i < all.size(); ++i) {
      sum = sum + (all[i].to(kFloat32) * tensor_in(golden("cotangents").list().at(i))).sum();
    }
    return sum;
  }
};

TEST_P(GoldenLayers, HaveTheConfigOfKeras) {
  const Layer layer = Layer::deserialize(golden("layer"));
  EXPECT_EQ(layer.serialize().text("class_name"), golden("layer").text("class_name"));
  EXPECT_EQ(without_builds(layer.get_config()),
            without_builds(without_newer(golden("layer").at("config"))));
}

TEST_P(GoldenLayers, ComputeWhatKerasComputes) {
  const Layer layer = make();
  if (HasFailure()) return;
  GradientTape tape({.persistent = true});
  std::vector<Tensor> inputs;
  const Element nest = element_in(golden("inputs"), [&](Tensor& x) {
    if (!x.is_floating_point()) return;
    tape.watch(x);
    inputs.push_back(x);
  });
  const Element outputs = call(layer, nest, golden("training").boolean());
  compare_outputs(outputs);
  compare_masks(outputs);
  const Tensor sum = target(outputs);
  const auto check = [&](const std::string& what, const auto& source, const Config& want) {
    if (!want.is_null()) expect_near(what, tape.gradient(sum, source), want, tolerance());
  };
  const Config::List& to_inputs = golden("input_gradients").list();
  for (std::size_t i = 0; i < to_inputs.size(); ++i) {
    check(str_cat("gradient of input ", i), inputs.at(i), to_inputs[i]);
  }
  const Config::List& to_weights = golden("weight_gradients").list();
  const std::vector<Variable> variables = weights_of(layer, golden());
  for (std::size_t i = 0; i < to_weights.size(); ++i) {
    const Variable& variable = variables[i];
    check(str_cat("gradient of ", variable.name()), variable, to_weights[i]);
  }
  const Config& updated = golden("updated");
  for (std::size_t i = 0; updated.is_list() && i < updated.list().size(); ++i) {
    const Variable& variable = variables[i];
    expect_near(variable.name(), variable.value(), updated.list()[i], tolerance());
  }
}

// Where it does not, masks end, and the layer warns.
TEST_P(GoldenLayers, SupportMasksWhereKerasDoes) {
  static const Config known = testing::read_golden(COHORT_GOLDEN "/layer_masking.json");
  const Layer layer = Layer::deserialize(golden("layer"));
  EXPECT_EQ(layer.base().supports_masking(), known.at(GetParam().name).integer() == 1);
}

TEST_P(GoldenLayers, KnowTheirOutputShape) {
  if (golden("inputs").is_list() || golden("outputs").is_list()) GTEST_SKIP();
  const auto of_any_batch = [](Shape shape) {
    shape[0] = kUnknownDim;
    return shape;
  };
  const Layer layer = make();
  const Shape promised =
      layer.base().compute_output_shape(of_any_batch(shape_in(golden("inputs"))));
  Shape want = of_any_batch(shape_in(golden("outputs")));
  // Nobody knows the longest text before.
  const bool is_text = golden("layer").text("class_name") == "TextVectorization";
  if (is_text && promised.back() == kUnknownDim) want.back() = kUnknownDim;
  EXPECT_EQ(promised, want);
}

INSTANTIATE_TEST_SUITE_P(Keras, GoldenLayers,
                         ::testing::ValuesIn(testing::layer_cases(COHORT_GOLDEN)),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace cohort::keras
