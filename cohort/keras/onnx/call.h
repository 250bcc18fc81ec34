// SPDX-License-Identifier: Apache-2.0
//
// A call of a layer that becomes nodes of an ONNX model. Internal.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"
#include "cohort/keras/onnx/writer.h"

namespace cohort::keras {
class Model;
}

namespace cohort::keras::internal::onnx {

/// A tensor of the model, and which steps of it count: a bool value, or empty where all do.
struct Value {
  std::string name;
  data::TensorSpec spec = {};
  std::string mask = {};
};
using Values = std::vector<Value>;
/// One value.
Values only(std::string name, std::string mask = {});

/// What a call is told besides its inputs.
struct Told {
  Values initial_state = {};
  Values attention_mask = {};
  bool use_causal_mask = false;
};

class Exporter;

/// Errors, of all that need what ONNX or Cohort's exporter does not have: Unimplemented with the
/// layer's name and class.
struct Call {
  Exporter& exporter;
  Writer& g;
  const LayerBase& layer;
  Config config;  ///< The layer's.
  Values in;
  Told told = {};

  /// The i-th input, as float32.
  std::string x(std::size_t i = 0) const;
  const Shape& shape(std::size_t i = 0) const { return in.at(i).spec.shape; }
  std::size_t rank(std::size_t i = 0) const { return shape(i).size(); }
  /// The layer's weight of this name; has_weight: whether there is one.
  Tensor tensor(const std::string& weight) const;
  bool has_weight(const std::string& weight) const;
  std::string weight(const std::string& name) const { return g.constant(tensor(name), name); }
  /// A number or numbers of the config; `count` times where it is one.
  std::vector<int64_t> numbers(const char* name, std::size_t count) const;
  /// Whether channels are the first axis behind the batch.
  bool channels_first() const;
  /// Of these axes, as the config has them, each from 0 on, ascending.
  std::vector<int64_t> axes(const char* name) const;
  [[noreturn]] void refuse(const std::string& what) const;
};

/// x with the sizes of `to`; at most one of those behind the batch may be unknown.
std::string reshape(const Call& c, const std::string& x, const Shape& to);
std::string transpose(const Call& c, const std::string& x, const std::vector<int64_t>& order);
/// [b, ..., channels] from [b, channels, ...], and back.
std::string channels_to_front(const Call& c, const std::string& x, std::size_t rank);
std::string channels_to_back(const Call& c, const std::string& x, std::size_t rank);
/// x[..., begin:end, ...] along one axis.
std::string slice(const Call& c, const std::string& x, int64_t axis, int64_t begin, int64_t end,
                  int64_t step = 1);
/// [b, t, ...] as [b * t, ...], and back; `like` has the first two axes.
std::string join_steps(const Call& c, const std::string& x);
std::string split_steps(const Call& c, const std::string& x, const std::string& like);
/// An activation as configs have it.
std::string activate(const Call& c, const Config& activation, const std::string& x);
/// Of any call's layer: the weight that ends with this name.
Tensor weight_of(const LayerBase& layer, const std::string& name);

/// Turns a call into nodes: the outputs' names, and masks where `knows_masks`. Their types the
/// exporter asks the layer for.
struct Conversion {
  Values (*convert)(const Call&) = nullptr;
  bool knows_masks = false;  ///< False: as the layer, none or the input's.
  bool keeps_type = false;   ///< Of the input, whatever the layer computes in.
};
using Conversions = std::map<std::string, Conversion>;  // by Keras's class

void add_activations(Conversions& all);
void add_core(Conversions& all);
void add_reshaping(Conversions& all);
void add_convolutions(Conversions& all);
void add_pooling(Conversions& all);
void add_normalizations(Conversions& all);
void add_merging(Conversions& all);
void add_recurrent(Conversions& all);
void add_attention(Conversions& all);
void add_preprocessing(Conversions& all);
/// Of a functional model's nodes that are no layers: see internal/operation.h.
Values convert_operation(const Call& c, const data::TensorSpec& output);

/// Exports a model, layer by layer. Threads: bound to one.
class Exporter {
 public:
  Exporter();
  /// Nodes of one layer, or of a model in it. Errors: Unimplemented, as Call.
  Values convert(const LayerBase& layer, const Values& in, const Told& told = {});
  Writer& writer() { return g_; }

 private:
  Values convert_call(const Call& call);
  Values convert_drawing(const Model& model, const Values& in);

  Writer g_;
  Conversions conversions_;
};

}  // namespace cohort::keras::internal::onnx
