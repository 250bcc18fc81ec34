// SPDX-License-Identifier: Apache-2.0
//
// For tests: what real Keras's layers compute (golden/layers/*.json), and a comparison of it with
// layers on any device, which says what differs as text, so that one run shows all of it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/mutex.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/test_golden.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/strategy/strategy.h"

namespace cohort::keras::testing {

struct LayerCase {
  std::string name;
  Config config;
  friend std::ostream& operator<<(std::ostream& out, const LayerCase& c) { return out << c.name; }
};

inline std::vector<LayerCase> layer_cases(const std::string& golden_folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder + "/layers")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<LayerCase> all;
  for (const auto& file : files) {
    const Config cases = read_golden(file.string());
    for (const auto& [name, config] : cases.members()) {
      all.push_back({file.stem().string() + "_" + name, config});
    }
  }
  return all;
}

inline Shape shape_in(const Config& tensor) {
  Shape shape;
  for (const Config& size : tensor.at("shape").list()) shape.push_back(size.integer());
  return shape;
}
inline Tensor tensor_in(const Config& tensor) {
  const DType dtype = ConfigValue<DType>::read(tensor.at("dtype"));
  std::vector<double> values;
  for (const Config& value : tensor.at("values").list()) {
    values.push_back(value.is_bool() ? value.boolean() : value.number());
  }
  return from_vector<double>(values, shape_in(tensor)).to(dtype);
}

/// May exchange the tensor.
using OnTensor = std::function<void(Tensor&)>;
inline data::Element element_in(
    const Config& nest, const OnTensor& each = [](Tensor&) {}) {
  if (nest.is_null()) return {};
  if (nest.is_list()) {
    std::vector<data::Element> parts;
    for (const Config& part : nest.list()) parts.push_back(element_in(part, each));
    return data::Element::tuple(std::move(parts));
  }
  if (const Config* named = nest.find("named"); named != nullptr) {
    std::vector<std::pair<std::string, data::Element>> parts;
    for (const auto& [name, part] : named->members()) {
      parts.emplace_back(name, element_in(part, each));
    }
    return data::Element::named(std::move(parts));
  }
  if (nest.text("dtype") == "string") {
    return {ConfigValue<std::vector<std::string>>::read(nest.at("values")), shape_in(nest)};
  }
  Tensor tensor = tensor_in(nest);
  each(tensor);
  return tensor;
}
/// Those of a nest, in order; no strings.
inline void tensors_of(const data::Element& nest, std::vector<Tensor>& out) {
  if (!nest.has_value() || nest.is_string()) return;
  if (!nest.is_tuple()) return out.push_back(nest.tensor());
  for (std::size_t i = 0; i < nest.size(); ++i) tensors_of(nest[i], out);
}
inline void flatten(const Config& nest, Config::List& out) {
  if (!nest.is_list()) return out.push_back(nest);
  for (const Config& part : nest.list()) flatten(part, out);
}

/// In Keras's order: a wrapper has weights of its layer among its own there.
inline std::vector<Variable> weights_of(const Layer& layer, const Config& golden) {
  std::vector<Variable> left(layer.variables().begin(), layer.variables().end()), ordered;
  for (const Config& weight : golden.at("weights").list()) {
    const auto named = std::ranges::find_if(
        left, [&](const Variable& v) { return v.name().ends_with("/" + weight.text("name")); });
    if (named == left.end()) break;
    ordered.push_back(*named);
    left.erase(named);
  }
  ordered.insert(ordered.end(), left.begin(), left.end());
  return ordered;
}
/// Learns from what Keras's layer did. False: that one learnt nothing.
inline bool adapt(const Layer& layer, const Config& golden) {
  const Config* data = golden.find("adapt");
  if (data == nullptr) return false;
  const data::Element all = element_in(*data);
  data::Element batches = all;
  if (data->is_list()) {
    data::Dataset joined = data::Dataset::from_tensors(all[0]);
    for (std::size_t i = 1; i < all.size(); ++i) {
      joined = joined.concatenate(data::Dataset::from_tensors(all[i]));
    }
    batches = joined;
  }
  dynamic_cast<AdaptingLayer&>(layer.base()).adapt(batches);
  return true;
}

/// One case on one device, by every replica of the strategy. Threads: of one thread.
class LayerOnDevice {
 public:
  LayerOnDevice(const LayerCase& of, const Strategy& strategy, const Device& device)
      : golden_(of.config), strategy_(strategy), device_(device) {}

  /// Every difference in a line of its own; empty: there is none. `least`: differences below it are
  /// rounding.
  std::string differences(double least) {
    least_ = least;
    try {
      run();
    } catch (const std::exception& e) {
      const std::string text = e.what();
      note("throws: ", text.substr(0, text.find('\n')));
    }
    const cohort::internal::base::MutexLock lock(mutex_);
    return problems_.str();
  }

 private:
  Tensor there(const Tensor& x) const { return cohort::internal::runtime::tensor_on(device_, x); }
  data::Element on_device(
      const char* name, const OnTensor& each = [](Tensor&) {}) const {
    return element_in(golden_.at(name), [&](Tensor& x) {
      x = there(x);
      each(x);
    });
  }
  data::Element call(const Layer& layer, const data::Element& inputs, bool training) const {
    return layer(inputs, {.training = training,
                          .mask = on_device("mask"),
                          .initial_state = on_device("initial_state")});
  }
  // Replicas call it at the same time.
  template <class... Parts>
  void note(const Parts&... parts) {
    const cohort::internal::base::MutexLock lock(mutex_);
    ((problems_ << "  ") << ... << parts) << '\n';
  }
  void compare(const std::string& what, const Tensor& got, const Config& golden) {
    if (!got.defined()) return note(what, ": undefined");
    const Tensor want = tensor_in(golden);
    if (shape_of(got) != shape_of(want) || got.scalar_type() != want.scalar_type()) {
      return note(what, ": ", got.toString(), got.sizes(), " for ", want.toString(), want.sizes());
    }
    if (want.numel() == 0) return;
    const Tensor exact = want.to(kFloat64);
    const double largest = std::max(exact.abs().max().item<double>(), 0.2);
    const double off = (got.to(at::kCPU, kFloat64) - exact).abs().max().item<double>() / largest;
    const double most = std::max(golden_.number("tolerance"), least_);
    if (!(off <= most)) note(what, ": off by ", off, ", at most ", most);
  }

  void run() {
    const Scope scope = strategy_.scope();
    const Layer layer = Layer::deserialize(golden_.at("layer"));
    adapt(layer, golden_);
    strategy_.run([&] { call(layer, on_device("inputs"), false); });
    const Config::List& weights = golden_.at("weights").list();
    const std::vector<Variable> variables = weights_of(layer, golden_);
    for (std::size_t i = 0; i < std::min(weights.size(), variables.size()); ++i) {
      variables[i].assign(tensor_in(weights[i].at("value")));
    }
    strategy_.run([&] { step(layer, variables); });
    const Config& updated = golden_.at("updated");
    for (std::size_t i = 0; updated.is_list() && i < updated.list().size(); ++i) {
      compare(variables[i].name(), variables[i].value(), updated.list()[i]);
    }
  }

  void step(const Layer& layer, const std::vector<Variable>& variables) {
    GradientTape tape({.persistent = true});
    std::vector<Tensor> inputs;
    const data::Element nest = on_device("inputs", [&](Tensor& x) {
      if (!x.is_floating_point()) return;
      tape.watch(x);
      inputs.push_back(x);
    });
    const data::Element outputs = call(layer, nest, golden_.at("training").boolean());
    std::vector<Tensor> got;
    tensors_of(outputs, got);
    Config::List want;
    flatten(golden_.at("outputs"), want);
    if (outputs.has_value() && outputs.is_string()) return;
    for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
      compare(str_cat("output ", i), got[i].detach(), want[i]);
    }
    std::erase_if(got, [](const Tensor& y) { return !y.is_floating_point(); });
    Tensor sum = there(zeros({}, kFloat32));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Tensor cotangent = there(tensor_in(golden_.at("cotangents").list().at(i)));
      sum = sum + (there(got[i]).to(kFloat32) * cotangent).sum();
    }
    const Config::List& to_inputs = golden_.at("input_gradients").list();
    for (std::size_t i = 0; i < to_inputs.size(); ++i) {
      if (to_inputs[i].is_null()) continue;
      compare(str_cat("gradient of input ", i), tape.gradient(sum, inputs.at(i)), to_inputs[i]);
    }
    const Config::List& to_weights = golden_.at("weight_gradients").list();
    for (std::size_t i = 0; i < to_weights.size(); ++i) {
      if (to_weights[i].is_null()) continue;
      compare("gradient of " + variables[i].name(), tape.gradient(sum, variables[i]),
              to_weights[i]);
    }
  }

  const Config& golden_;
  const Strategy& strategy_;
  const Device device_;
  double least_ = 0;
  cohort::internal::base::Mutex mutex_;
  std::ostringstream problems_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::keras::testing
