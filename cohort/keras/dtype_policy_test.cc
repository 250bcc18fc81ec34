// SPDX-License-Identifier: Apache-2.0
//
// Layers keep the policy under which they were made: what Keras 3.15 says of the same programs.
#include "cohort/keras/dtype_policy.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/scope_exit.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

template <class Make>
auto made_under(const DTypePolicy& policy, Make make) {
  set_dtype_policy(policy);
  const cohort::internal::base::ScopeExit back([] { set_dtype_policy({}); });
  return make();
}

std::string policy_in(const Config& config) { return config.at("dtype").at("config").text("name"); }

// What a config, and so a file, has of the layer and of those in it.
std::vector<std::string> policies_in(const Config& config) {
  std::vector<std::string> all;
  if (config.is_list()) {
    for (const Config& part : config.list()) {
      for (std::string& name : policies_in(part)) all.push_back(std::move(name));
    }
  }
  if (!config.is_object()) return all;
  const Config* dtype = config.find("dtype");
  if (dtype != nullptr && dtype->is_object()) all.push_back(policy_in(config));
  for (const auto& [name, part] : config.members()) {
    for (std::string& inner : policies_in(part)) all.push_back(std::move(inner));
  }
  return all;
}

// Both ways: the policy when the layer is built does not matter.
TEST(DTypePolicy, IsThatOfTheMomentWhenALayerIsMade) {
  const Dense mixed = made_under("mixed_bfloat16", [] { return Dense(8); });
  EXPECT_EQ(mixed(ones({2, 3})).scalar_type(), kBFloat16);
  EXPECT_EQ(mixed.variables()[0].dtype(), kFloat32);
  EXPECT_EQ(policy_in(mixed.get_config()), "mixed_bfloat16");

  const Dense plain(8);
  const Tensor y = made_under("mixed_bfloat16", [&] { return plain(ones({2, 3})); });
  EXPECT_EQ(y.scalar_type(), kFloat32);
  EXPECT_EQ(made_under("mixed_bfloat16", [&] { return policy_in(plain.get_config()); }), "float32");

  const Dense wide = made_under("float64", [] { return Dense(8); });
  EXPECT_EQ(wide(ones({2, 3})).scalar_type(), kFloat64);
  EXPECT_EQ(wide.variables()[0].dtype(), kFloat64);
}

// Keras writes of this class the type of its variables alone.
TEST(DTypePolicy, OfADiscretizationIsItsVariables) {
  const Config config = made_under("mixed_bfloat16", [] {
    return Discretization({.bin_boundaries = {{1.0, 2.0}}}).get_config();
  });
  EXPECT_EQ(config.text("dtype"), "float32");
}

TEST(DTypePolicy, ThatALayerNamesComesFirst) {
  const Dense given = made_under("mixed_bfloat16", [] { return Dense(8, {.dtype = "float32"}); });
  EXPECT_EQ(given(ones({2, 3})).scalar_type(), kFloat32);
  EXPECT_EQ(policy_in(given.get_config()), "float32");
}

TEST(DTypePolicy, FloatxIsThatOfTheMomentToo) {
  const Dense layer(2);
  set_floatx(kFloat64);
  const cohort::internal::base::ScopeExit back([] { set_floatx(kFloat32); });
  layer(ones({1, 2}));
  EXPECT_EQ(layer.variables()[0].dtype(), kFloat32);
}

// Of layers that are made inside of others, then or when these are built.
TEST(DTypePolicy, IsHandedOnToLayersInside) {
  struct Case {
    const char* name;
    Layer layer;
    std::size_t inside;
  };
  const auto layers = made_under("mixed_bfloat16", [] {
    return std::vector<Case>{
        {"LSTM", LSTM(3), 1},
        {"RNN", RNN({LSTMCell(3), GRUCell(2)}), 3},
        {"Bidirectional", Bidirectional(GRU(3)), 4},
        {"TimeDistributed", TimeDistributed(Dense(2)), 1},
        {"SpectralNormalization", SpectralNormalization(Dense(2)), 1},
        {"MultiHeadAttention", MultiHeadAttention(2, 3), 4},
    };
  });
  for (const Case& one : layers) {
    const std::string name = one.name;
    const Layer& layer = one.layer;
    const Tensor x = ones({2, 4, 3});
    const bool is_attention = name == "MultiHeadAttention";
    const bool is_dense = name == "SpectralNormalization";
    const Element y = is_attention ? layer(Element{x, x}) : layer(Element(is_dense ? x[0] : x));
    EXPECT_EQ(y.tensor().scalar_type(), kBFloat16) << name;
    std::size_t found = 0;
    const auto look = [&](auto&& self, const LayerBase& outer) -> void {
      for (const Layer& inner : outer.sub_layers()) {
        ++found;
        EXPECT_EQ(inner.base().dtype_policy().name(), "mixed_bfloat16") << name << inner;
        self(self, inner.base());
      }
    };
    look(look, layer.base());
    EXPECT_EQ(found, one.inside) << name;
    for (const Variable& v : layer.variables()) EXPECT_EQ(v.dtype(), kFloat32) << v.name();
    for (const std::string& in : policies_in(layer.serialize())) {
      EXPECT_EQ(in, "mixed_bfloat16") << name;
    }
  }
}

// A config without a type, or with null, is made now; one with a type has that.
TEST(DTypePolicy, OfAConfigIsTheConfigs) {
  const Config config = made_under("mixed_bfloat16", [] { return Dense(3).serialize(); });
  Config without = config, null = config;
  without.set("config", Config::object({{"units", 3}}));
  null.at("config").set("dtype", nullptr);
  made_under("float64", [&] {
    EXPECT_EQ(Layer::deserialize(config).base().dtype_policy().name(), "mixed_bfloat16");
    EXPECT_EQ(Layer::deserialize(without).base().dtype_policy().name(), "float64");
    EXPECT_EQ(Layer::deserialize(null).base().dtype_policy().name(), "float64");
    return 0;
  });
}

// Of layers that are no LayerImpl, and say nothing of their weights' type.
struct ScaleByGain : LayerBase {
  Variable gain;
  void build(const Shape& in) override {
    gain = add_weight({.name = "gain", .shape = {in.back()}, .initializer = "ones"});
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x * gain; }
};

TEST(DTypePolicy, IsThatOfOwnLayers) {
  const Layer wide = made_under("float64", [] { return std::make_shared<ScaleByGain>(); });
  EXPECT_EQ(wide(ones({2, 3})).scalar_type(), kFloat64);
  EXPECT_EQ(wide.variables()[0].dtype(), kFloat64);
  const Layer mixed = made_under("mixed_bfloat16", [] { return std::make_shared<ScaleByGain>(); });
  EXPECT_EQ(mixed(ones({2, 3})).scalar_type(), kBFloat16);
  EXPECT_EQ(mixed.variables()[0].dtype(), kFloat32);
}

class DTypePolicyFile : public testing::FolderTest {};

// Keras's file has of a Sequential the policy it was made under; who reads it takes that of the
// layers, and of the model the one that is set.
TEST_F(DTypePolicyFile, HasWhatLayersWereMadeUnder) {
  const auto model = made_under("mixed_bfloat16", [] {
    return std::make_shared<Sequential>(
        std::vector<Layer>{Dense(2), Dense(1, {.dtype = kFloat32})});
  });
  model->ensure_built({kUnknownDim, 3});
  EXPECT_EQ(policies_in(model->serialize()),
            (std::vector<std::string>{"mixed_bfloat16", "mixed_bfloat16", "float32"}));
  const std::string file = path("m.keras");
  model->save(file);
  const auto back = made_under("float64", [&] { return load_model(file); });
  EXPECT_EQ(back->dtype_policy().name(), "float64");
  ASSERT_EQ(back->layers().size(), 3U);  // an InputLayer before them
  EXPECT_EQ(back->layers()[1].base().dtype_policy().name(), "mixed_bfloat16");
  EXPECT_EQ(back->layers()[2].base().dtype_policy().name(), "float32");
  EXPECT_TRUE(back->predict(ones({2, 3})).equal(model->predict(ones({2, 3}))));
}

// Whichever kernels multiply: terms of what was rounded, sums that are not.
TEST(DTypePolicy, MixedDenseMultipliesWhatItHasRounded) {
  const auto rounded = [](const Tensor& t) { return t.detach().to(kBFloat16).to(kFloat64); };
  const auto expect_near = [](const char* what, const Tensor& got, const Tensor& want) {
    const double off = (got.to(kFloat64) - want).abs().max().item<double>();
    EXPECT_LE(off, 0.01 * want.abs().max().item<double>()) << what;
  };
  set_seed(3);
  const Dense dense(33, {.activation = "relu", .dtype = "mixed_bfloat16"});
  Tensor x = random_normal({40, 3, 70});
  const Tensor share = random_normal({40, 3, 33});
  dense(x);
  const Variable kernel = dense.variables()[0], bias = dense.variables()[1];
  bias.assign(random_normal({33}));
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = dense(x);
  EXPECT_EQ(y.scalar_type(), kBFloat16);
  const Tensor rows = rounded(x).reshape({120, 70});
  const Tensor before = rows.matmul(rounded(kernel.value())) + rounded(bias.value());
  expect_near("outputs", y.detach().reshape({120, 33}), before.clamp_min(0));
  const Tensor sum = (y.to(kFloat32) * share).sum();
  const Tensor g = rounded(share).reshape({120, 33}) * y.detach().reshape({120, 33}).gt(0);
  const Tensor by_kernel = tape.gradient(sum, kernel), by_bias = tape.gradient(sum, bias);
  EXPECT_EQ(by_kernel.scalar_type(), kFloat32);
  expect_near("by kernel", by_kernel, rows.t().matmul(g));
  expect_near("by bias", by_bias, g.sum(0));
  expect_near("by inputs", tape.gradient(sum, x).reshape({120, 70}),
              g.matmul(rounded(kernel.value()).t()));
}

}  // namespace
}  // namespace cohort::keras
