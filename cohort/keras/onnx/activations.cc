// SPDX-License-Identifier: Apache-2.0
//
// Activations, by name and as layers.
#include <cmath>
#include <numbers>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

using Activation = std::string (*)(Writer& g, const std::string& x);

std::string clipped(Writer& g, const std::string& x, double least, double most) {
  return g("Clip", {x, g.number(least), g.number(most)});
}

// x * (1 + erf(x / sqrt(2))) / 2.
std::string gelu(Writer& g, const std::string& x) {
  const std::string part =
      g("Add", {g("Erf", {g("Mul", {x, g.number(1 / std::numbers::sqrt2)})}), g.number(1)});
  return g("Mul", {g("Mul", {x, g.number(0.5)}), part});
}

std::string glu(Writer& g, const std::string& x) {
  const Names halves =
      g.node("Split", {x}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
  return g("Mul", {halves[0], g("Sigmoid", {halves[1]})});
}

std::string squareplus(Writer& g, const std::string& x) {
  const std::string root = g("Sqrt", {g("Add", {g("Mul", {x, x}), g.number(4)})});
  return g("Mul", {g("Add", {root, x}), g.number(0.5)});
}

// 0 up to -1, a parabola up to 1, then x.
std::string sparse_plus(Writer& g, const std::string& x) {
  const std::string half = g("Mul", {g("Add", {x, g.number(1)}), g.number(0.5)});
  const std::string curve = g("Where", {g("Less", {x, g.number(1)}), g("Mul", {half, half}), x});
  return g("Where", {g("LessOrEqual", {x, g.number(-1)}), g.number(0), curve});
}

const std::map<std::string, Activation>& table() {
  static const std::map<std::string, Activation> all = {
      {"celu", [](Writer& g, const std::string& x) { return g("Elu", {x}); }},
      {"elu", [](Writer& g, const std::string& x) { return g("Elu", {x}); }},
      {"exponential", [](Writer& g, const std::string& x) { return g("Exp", {x}); }},
      {"gelu", gelu},
      {"glu", glu},
      {"hard_shrink", [](Writer& g, const std::string& x) { return g("Shrink", {x}); }},
      {"hard_sigmoid",
       [](Writer& g, const std::string& x) {
         return g("HardSigmoid", {x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
       }},
      {"hard_silu", [](Writer& g, const std::string& x) { return g("HardSwish", {x}); }},
      {"hard_swish", [](Writer& g, const std::string& x) { return g("HardSwish", {x}); }},
      {"hard_tanh", [](Writer& g, const std::string& x) { return clipped(g, x, -1, 1); }},
      {"leaky_relu",
       [](Writer& g, const std::string& x) {
         return g("LeakyRelu", {x}, {{"alpha", 0.2}});
       }},
      {"linear", [](Writer&, const std::string& x) { return x; }},
      {"log_sigmoid",
       [](Writer& g, const std::string& x) { return g("Neg", {g("Softplus", {g("Neg", {x})})}); }},
      {"log_softmax", [](Writer& g, const std::string& x) { return g("LogSoftmax", {x}); }},
      {"mish",
       [](Writer& g, const std::string& x) {
         return g("Mul", {x, g("Tanh", {g("Softplus", {x})})});
       }},
      {"relu", [](Writer& g, const std::string& x) { return g("Relu", {x}); }},
      {"relu6", [](Writer& g, const std::string& x) { return clipped(g, x, 0, 6); }},
      {"selu", [](Writer& g, const std::string& x) { return g("Selu", {x}); }},
      {"sigmoid", [](Writer& g, const std::string& x) { return g("Sigmoid", {x}); }},
      {"silu",
       [](Writer& g, const std::string& x) {
         return g("Mul", {x, g("Sigmoid", {x})});
       }},
      {"soft_shrink",
       [](Writer& g, const std::string& x) {
         return g("Shrink", {x}, {{"bias", 0.5}});
       }},
      {"softmax", [](Writer& g, const std::string& x) { return g("Softmax", {x}); }},
      {"softplus", [](Writer& g, const std::string& x) { return g("Softplus", {x}); }},
      {"softsign", [](Writer& g, const std::string& x) { return g("Softsign", {x}); }},
      {"sparse_plus", sparse_plus},
      {"sparse_sigmoid",
       [](Writer& g, const std::string& x) {
         return clipped(g, g("Mul", {g("Add", {x, g.number(1)}), g.number(0.5)}), 0, 1);
       }},
      {"squareplus", squareplus},
      {"swish",
       [](Writer& g, const std::string& x) {
         return g("Mul", {x, g("Sigmoid", {x})});
       }},
      {"tanh", [](Writer& g, const std::string& x) { return g("Tanh", {x}); }},
      {"tanh_shrink",
       [](Writer& g, const std::string& x) {
         return g("Sub", {x, g("Tanh", {x})});
       }},
  };
  return all;
}

Values activation(const Call& c) { return only(activate(c, c.config.at("activation"), c.x())); }

Values relu(const Call& c) {
  const double slope = c.config.number("negative_slope"), least = c.config.number("threshold");
  const Config& most = c.config.at("max_value");
  std::string y;
  if (least == 0) {
    y = slope == 0 ? c.g("Relu", {c.x()}) : c.g("LeakyRelu", {c.x()}, {{"alpha", slope}});
  } else {
    const std::string below =
        c.g("Mul", {c.g("Sub", {c.x(), c.g.number(least)}), c.g.number(slope)});
    y = c.g("Where", {c.g("Greater", {c.x(), c.g.number(least)}), c.x(), below});
  }
  if (!most.is_null()) y = c.g("Min", {y, c.g.number(most.number())});
  return only(y);
}

Values leaky_relu(const Call& c) {
  return only(c.g("LeakyRelu", {c.x()}, {{"alpha", c.config.number("negative_slope")}}));
}
Values elu(const Call& c) {
  return only(c.g("Elu", {c.x()}, {{"alpha", c.config.number("alpha")}}));
}
Values prelu(const Call& c) { return only(c.g("PRelu", {c.x(), c.weight("alpha")})); }

// What does not count is 0, and the rest sums to 1.
Values softmax(const Call& c) {
  const int64_t axis = c.config.integer("axis");
  const std::string& mask = c.in[0].mask;
  if (mask.empty()) return only(c.g("Softmax", {c.x()}, {{"axis", axis}}));
  const std::string kept = c.g("Where", {mask, c.x(), c.g.number(-1e9)});
  const std::string y = c.g("Softmax", {kept}, {{"axis", axis}});
  return only(c.g("Where", {mask, y, c.g.number(0)}));
}

}  // namespace

std::string activate(const Call& c, const Config& activation, const std::string& x) {
  if (activation.is_null()) return x;
  const Config* of_function = activation.find("config");
  const Config& name = of_function == nullptr ? activation : *of_function;
  const auto found = name.is_text() ? table().find(name.text()) : table().end();
  if (found == table().end()) c.refuse(str_cat("with the activation ", activation));
  return found->second(c.g, x);
}

void add_activations(Conversions& all) {
  all["Activation"] = {activation};
  all["ReLU"] = {relu};
  all["LeakyReLU"] = {leaky_relu};
  all["ELU"] = {elu};
  all["PReLU"] = {prelu};
  all["Softmax"] = {softmax};
}

}  // namespace cohort::keras::internal::onnx
