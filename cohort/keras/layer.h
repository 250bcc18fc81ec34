// SPDX-License-Identifier: Apache-2.0
//
// Layers: the handle that programs pass around, and the base class to write one.
//
//   struct Scale : keras::LayerBase {
//     Variable gain;
//     void build(const Shape& in) override {
//       gain = add_weight({.name = "gain", .shape = {in.back()}, .initializer = "ones"});
//     }
//     Tensor call(const Tensor& x, const keras::CallArgs&) override { return x * gain; }
//   };
//   keras::Sequential model({keras::Dense(64), std::make_shared<Scale>()});
//
// A layer whose options have fields (see fields.h) can be written into a file and read again:
//
//   struct ShiftOptions {
//     double offset = 0;
//     keras::DTypePolicy dtype = {};
//     std::string name = {};
//     bool trainable = true;
//     static void fields(auto& c, auto&& f) { f("offset", c.offset); }
//   };
//   struct ShiftLayer : keras::LayerImpl<ShiftOptions> {
//     using LayerImpl::LayerImpl;
//     Tensor call(const Tensor& x, const keras::CallArgs&) override { return x + config().offset; }
//   };
//   using Shift = keras::Handle<ShiftLayer>;
//   COHORT_REGISTER_SERIALIZABLE("my_package", ShiftLayer);
//
// A layer of several inputs, or with several outputs, takes and gives nests:
//
//   struct SumLayer : keras::LayerImpl<SumOptions, keras::NestLayer> {
//     using LayerImpl::LayerImpl;
//     Element call_nest(const Element& in, const keras::CallArgs&) override {
//       return in[0].tensor() + in[1].tensor();
//     }
//   };
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/handle.h"
#include "cohort/base/mutex.h"
#include "cohort/data/core/element.h"
#include "cohort/keras/constraints.h"
#include "cohort/keras/dtype_policy.h"
#include "cohort/keras/initializers.h"
#include "cohort/keras/keras_tensor.h"
#include "cohort/keras/regularizers.h"
#include "cohort/keras/serializable.h"
#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort {
class Trackable;
class TrackedObject;
struct TrackedParts;
}  // namespace cohort

namespace cohort::keras::internal {
struct AddedLoss;
}

namespace cohort::keras {

class Layer;
class LayerBase;

/// A layer as files see it.
struct WeightGroup {
  std::string path = {};   ///< "layers/dense_1"; empty: the layer that was asked.
  std::string layer = {};  ///< The layer's name.
  std::vector<Variable> weights = {};
};

/// Arguments of a call besides its input.
struct CallArgs {
  bool training = false;
  /// Which steps count: bool [b, t], a nest like the inputs. Empty: the mask that the inputs carry
  /// from the layers that made them, if any.
  Element mask = {};
  Element initial_state = {};  ///< Of recurrent layers. Is not handed on to layers inside.
  /// Of attention layers, as the next two: which queries see which values, bool [b, tq, tv].
  Element attention_mask = {};
  bool use_causal_mask = false;          ///< A query sees no later position.
  bool return_attention_scores = false;  ///< The output is {output, scores}.
};

struct WeightOptions {
  std::string name = {};
  Shape shape = {};
  DType dtype = DType::Undefined;  ///< Undefined: what the layer's policy keeps weights in.
  Initializer initializer = "glorot_uniform";
  Regularizer regularizer = {};
  Constraint constraint = {};
  bool trainable = true;
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kMean;
};

/// What a layer requires of its inputs. TF: keras.InputSpec.
struct InputSpec {
  std::optional<int64_t> rank = {};
  std::optional<int64_t> min_rank = {};
  int64_t axis = -1;                 ///< Negative counts from the end.
  std::optional<int64_t> size = {};  ///< Of `axis`.
};

/// Derive to write a layer. The object is shared by all replicas: call() runs on all their threads
/// at once and keeps state only in variables. Movable, checkpoints follow it; use of what was moved
/// from is FailedPrecondition. TF: keras.layers.Layer.
class LayerBase : public Serializable {
 public:
  using Kind = LayerBase;
  static constexpr const char* kKind = "Layer";
  /// What every layer's config begins with.
  static void base_fields(auto& c, auto&& f) {
    f("name", c.name);
    f("trainable", c.trainable);
    f("dtype", c.dtype);
  }

  explicit LayerBase(std::string name = {});  ///< Empty: "dense_1".
  ~LayerBase() override;
  LayerBase(const LayerBase&) = delete;
  LayerBase& operator=(const LayerBase&) = delete;

  /// Makes the weights; runs once, cross-replica, in the scope the layer is used in.
  /// Shapes: input_shape[0] is kUnknownDim.
  virtual void build(const Shape& input_shape);
  virtual Tensor call(const Tensor& input, const CallArgs& args) = 0;
  /// Shapes: in and out with kUnknownDim for the batch. Default: the input's.
  virtual Shape compute_output_shape(const Shape& input_shape) const;

  /// The same for several inputs or outputs, or for names or strings. Default: the one tensor's;
  /// of several inputs build_nest makes nothing.
  /// Errors: InvalidArgument for several inputs to a layer that takes one.
  virtual void build_nest(const ElementSpec& inputs);
  virtual Element call_nest(const Element& inputs, const CallArgs& args);
  /// Default: compute_output_shape, in the type that the layer computes in.
  virtual ElementSpec compute_output_spec(const ElementSpec& inputs) const;

  /// Whether the layer handles masks. Where it does not, they end at it.
  virtual bool supports_masking() const { return false; }
  /// The outputs' masks, bool [b, t], a nest like them; nothing: no output has one. `mask` is the
  /// inputs'. Asked where supports_masking(). Default: `mask`.
  virtual Element compute_mask(const Element& inputs, const Element& mask) const;
  /// Whether Keras's call takes several inputs as arguments of their own, call(query, value), and
  /// not as one list: how configs of models have them.
  virtual bool inputs_are_arguments() const { return false; }
  /// What the layer declares by itself (InputLayer), so that a model can build before data comes.
  virtual std::optional<Shape> declared_input_shape() const { return {}; }
  /// False: this class never has weights (Dropout), so that a model is whole without a call of it.
  virtual bool may_have_weights() const { return true; }
  /// For summary() and default names. Default: the C++ class's name, without namespaces.
  std::string class_name() const override;
  /// What a config of the whole keeps so that a layer is built as it is: {"input_shape": [...]};
  /// null before that, and of classes that need none. TF: Layer.get_build_config.
  virtual Config get_build_config() const;
  /// With its class, and how it was built. Errors: as get_config().
  virtual Config serialize() const;

  /// call() after building on the first use. Order: the first call in a replica is a merge point.
  /// Errors: InvalidArgument for inputs that do not fit. What build() and call() throw of Cohort's
  ///         errors and LibTorch's arrives as Cohort's, with the layer's path and class and the
  ///         input added.
  Tensor operator()(const Tensor& input, const CallArgs& args = {});
  Element operator()(const Element& inputs, const CallArgs& args = {});
  /// Builds now, cross-replica, as Keras does: where all sizes but the batch's are known, and there
  /// are sub-layers that build() left to the first call, by a call on two rows of zeros, in
  /// floatx() or else int64. Does nothing the second time.
  void ensure_built(const Shape& input_shape);
  /// The same for several inputs; sizes that vary are kUnknownDim.
  void ensure_built_for(const ElementSpec& inputs);
  bool built() const { return stage_.load(std::memory_order_acquire) != Stage::kNew; }

  /// Lists of the layer, valid until it changes: no copy per step. Weights of sub-layers count,
  /// those of a layer with several parents once; trainable if they are so by way of one of them.
  std::span<const Variable> variables() const;
  std::span<const Variable> trainable_variables() const;
  std::span<const Variable> non_trainable_variables() const;
  /// Sum of the trainable weights' penalties; undefined without regularizers.
  Tensor regularization_loss() const;
  /// What this layer and its sub-layers added by add_loss, and their activity regularizers' sums,
  /// in the last call of the outermost layer on this thread. TF: Layer.losses, without the
  /// weights' penalties.
  std::vector<Tensor> added_losses() const;
  /// What the layer computes in and keeps its weights in: where it was given none, what was set
  /// when it was made.
  const DTypePolicy& dtype_policy() const { return policy_; }

  bool trainable() const { return trainable_; }
  /// Freezes or thaws this layer and its sub-layers, from the next step on. An optimizer trains
  /// what was thawed when it was built: to train more, compile() with a new one.
  void set_trainable(bool on);
  /// As given, else the class in snake case, numbered within the process from the second on: fixed
  /// when the first handle to the layer is made.
  const std::string& name() const COHORT_NO_THREAD_SAFETY_ANALYSIS;
  void set_name(std::string name);
  /// Internal: whether the name is its class's, with a number of this process.
  bool is_named_by_class() const;
  /// In the order they were added.
  const std::vector<Layer>& sub_layers() const { return sub_layers_; }
  /// The path ("block/dense") of one that has no weights yet, for only a call of the layer it is in
  /// says which, and there was none; empty: there is none.
  std::string waiting_sub_layer() const;
  /// Internal: what the call with zeros (see ensure_built) threw, of this layer or one below;
  /// empty: none was made, or it went well.
  std::string zeros_error() const;

  /// The weights and what else changes, for a Checkpoint, which does not keep the layer alive. A
  /// layer that is restored before it is built gets its weights when it is.
  std::shared_ptr<Trackable> trackable() const;

  /// Each weight once, with its path in files of weights, which is Keras's in .weights.h5:
  /// "layers/dense_1/vars/0". It depends on the program alone; see weight_groups().
  std::vector<std::pair<std::string, Variable>> weight_paths() const;
  /// Each weight once, with names to read: "block/dense_1/kernel". The parts are given names, or
  /// classes and their order, as in checkpoints.
  std::vector<std::pair<std::string, Variable>> weight_names() const;
  /// This layer and those below it, each once, with their paths in files as Keras lays them out: a
  /// sub-layer has the name that track() was given ("cell"), others are in "layers", each by its
  /// class and its number among the same class there ("layers/dense_1").
  std::vector<WeightGroup> weight_groups() const;

  /// "<Dense name=dense, built=True>", as Python; a model, too.
  friend std::ostream& operator<<(std::ostream& out, const LayerBase& layer);

 protected:
  /// Whether a config of the whole says what shape the layer was built for.
  virtual bool has_build_config() const { return may_have_weights(); }
  /// Where the layer is, for those that refer to it: it may move. Null when it has ended.
  using Place = std::shared_ptr<LayerBase*>;
  /// Replicas are at rest. Errors: FailedPrecondition for what was moved from, and for a layer that
  /// is moved into one of its own sub-layers.
  LayerBase(LayerBase&& other) noexcept(false);
  LayerBase& operator=(LayerBase&& other) noexcept(false);
  /// After steps that call sub-layers instead of a built layer: what these use is there.
  void set_called();
  /// Inside build(), as ensure_built() and calls run it: not in a direct call of build().
  bool is_being_built() const { return weights_state_ == Weights::kBeingMade; }
  /// Errors: FailedPrecondition for a layer that was moved from.
  void check_not_moved(const char* operation) const;
  const Place& place() const { return place_; }
  /// Weights and sub-layers; override to add state that is no weight.
  virtual TrackedParts tracked_parts() const;
  /// To be called when tracked_parts() has more than before, but for what build() makes.
  void tracked_parts_grown() const;
  /// Makes a variable named "layer/weight"; for build(), or for the constructor where the shape
  /// does not depend on the input.
  Variable add_weight(const WeightOptions& options);
  /// Tracks a sub-layer and returns it. The name is the layer's own, and that of its path in files.
  template <std::derived_from<Layer> L>
  L add(std::string name, L layer);
  /// `place`: what files call the sub-layer, in Keras the attribute that it is ("cell"), whatever
  /// its own name is; "cells/": it is one in a list of that name; empty: one of those in "layers".
  void track(Layer layer, std::string place = {});
  /// What files keep of this layer itself, in Keras's order. Default: its own weights, those made
  /// as trainable first.
  virtual std::vector<Variable> stored_weights() const;
  /// Whether files have all sub-layers in "layers", as models do, but for those with a place that
  /// Keras comes to before.
  virtual bool is_list_of_layers() const { return false; }
  /// Inside call(): a scalar that joins the loss of the model that is trained, as a mean over the
  /// replicas. What is said outside of a call is not kept. TF: Layer.add_loss.
  void add_loss(const Tensor& loss);
  /// Internal: added_losses() with what they are.
  void each_added_loss(
      cohort::internal::base::FunctionRef<void(const internal::AddedLoss&)> visit) const;
  /// A penalty on what call() returns, which joins the loss; for constructors.
  void set_activity_regularizer(Regularizer regularizer);
  /// For constructors.
  void set_dtype_policy(const DTypePolicy& policy) { policy_ = policy.settled(); }
  /// False: inputs are left as they are, and weights, whatever the policy says.
  void set_autocast(bool on) { autocasts_ = on; }
  /// What every call checks from now on; for build(). Replicas must be at rest.
  void set_input_spec(const InputSpec& spec) { input_spec_ = spec; }

 private:
  struct OwnWeight {
    std::string name;
    Variable variable;
    Regularizer regularizer;
    bool trainable = true;
  };
  struct Lists {
    std::vector<Variable> all, trainable, frozen;
    std::vector<const LayerBase*> penalized;  // trainable, with regularizers
  };
  void check_input(const Tensor& input) const;
  void check_input(const Element& inputs) const;
  Tensor call_as_is(const Tensor& input, const CallArgs& args) { return call(input, args); }
  Element call_as_is(const Element& inputs, const CallArgs& args) {
    return call_nest(inputs, args);
  }
  /// A call with all that may come with it: building, dtypes, masks, penalties.
  template <class Input>
  Input full_call(const Input& given, const CallArgs& args);
  bool is_plain_call(const CallArgs& args) const {
    return stage_.load(std::memory_order_acquire) == Stage::kPlain && !args.mask.has_value();
  }
  bool hand_on_mask(const Element& inputs, const Element& mask, const Element& outputs) const;
  void warn_of_lost_mask(const Element& mask) const;
  void penalize(const Element& outputs);
  void build_in_context(const ElementSpec& inputs, bool call_follows);
  void build_once(const ElementSpec& inputs);
  void build_by_a_call(const ElementSpec& inputs);
  /// For lists of what is below: those of all layers are made anew.
  static void structure_changed();
  /// What a checkpoint of the parent calls this layer: its given name, else its class's.
  std::string tracked_name() const;
  /// What "layers" has of this layer's class: "max_pooling2d".
  std::string stored_class() const;
  void end() COHORT_NO_THREAD_SAFETY_ANALYSIS;
  void take(LayerBase& other) COHORT_NO_THREAD_SAFETY_ANALYSIS;
  struct Paths;
  void collect_names(const std::string& prefix, Paths& paths) const;
  struct Groups;
  void collect_groups(const std::string& path, Groups& groups) const;
  /// This layer and those below it, each once, and whether it is trainable.
  using Family = std::vector<std::pair<const LayerBase*, bool>>;
  void collect(Family& family, bool parent_trainable) const;
  Lists make_lists() const;
  const Lists& lists() const COHORT_NO_THREAD_SAFETY_ANALYSIS;
  void renew_lists(uint64_t version) const;

  enum class Weights { kNone, kBeingMade, kMade };
  enum class Stage : uint8_t {
    kNew,
    kBuilt,
    kCalled,
    kPlain,  ///< Called, and a call is call() and nothing else, unless something comes with it.
  };

  Place place_;  // null: moved from
  bool trainable_ = true;
  Weights weights_state_ = Weights::kNone;
  std::string zeros_error_;
  std::vector<OwnWeight> weights_;
  std::vector<Layer> sub_layers_;
  std::vector<std::string> places_;  // of sub_layers_ in files
  std::vector<Layer> replaced_;      // had the layer that was moved here
  InputSpec input_spec_;
  ElementSpec build_spec_;  // of a built layer
  DTypePolicy policy_ = DTypePolicy().settled();
  bool autocasts_ = true;
  DType cast_to_ = DType::Undefined;  // of a built layer; undefined: inputs stay as they are
  bool is_mixed_ = false;             // weights are kept in another type
  Regularizer activity_regularizer_;
  mutable std::atomic<bool> warned_of_mask_{false};

  std::recursive_mutex
      build_mutex_;  // of builds in no replica; they nest, which clang cannot check
  std::atomic<Stage> stage_{Stage::kNew};

  mutable cohort::internal::base::Mutex name_mutex_;
  mutable std::string name_ COHORT_GUARDED_BY(name_mutex_);
  mutable bool named_by_class_ COHORT_GUARDED_BY(name_mutex_) = false;
  // Null: nobody asked.
  mutable std::shared_ptr<TrackedObject> tracked_ COHORT_GUARDED_BY(name_mutex_);
  mutable std::atomic<bool> name_fixed_{false};  // then name_ is constant

  mutable cohort::internal::base::Mutex lists_mutex_;
  mutable Lists lists_ COHORT_GUARDED_BY(lists_mutex_);
  mutable std::atomic<uint64_t> lists_version_{0};  // of the process's structure; 0: never made
};

/// Shared handle to a layer; a copy is the same layer.
class Layer {
 public:
  template <std::derived_from<LayerBase> L>
  Layer(std::shared_ptr<L> layer) : layer_(std::move(layer)) {  // NOLINT: implicit by design
    use("").name();
  }

  Tensor operator()(const Tensor& input, const CallArgs& args = {}) const {
    return use()(input, args);
  }
  /// Of several inputs or outputs: layer({a, b}).
  Element operator()(const Element& inputs, const CallArgs& args = {}) const {
    return use()(inputs, args);
  }
  /// In a functional model: builds the layer and returns the symbolic output.
  /// Errors: InvalidArgument for shapes that do not fit; what build() throws.
  KerasTensor operator()(const KerasTensor& inputs, const SymbolicArgs& args = {}) const;
  /// Errors, of all: FailedPrecondition for an empty handle.
  LayerBase& base() const { return use(); }
  const std::string& name() const { return use().name(); }
  std::span<const Variable> variables() const { return use().variables(); }
  std::span<const Variable> trainable_variables() const { return use().trainable_variables(); }
  bool trainable() const { return use().trainable(); }
  void set_trainable(bool on) const { use().set_trainable(on); }
  std::shared_ptr<Trackable> trackable() const { return use().trackable(); }
  /// The options that make the same layer. Errors: Unimplemented as Serializable::get_config.
  Config get_config() const { return use().get_config(); }
  /// With its class: what a model's config has of it.
  Config serialize() const { return use().serialize(); }
  /// Of what serialize() or Keras wrote. Errors: InvalidArgument for a class that is not known, or
  ///         what it cannot be made with. TF: keras.layers.deserialize.
  static Layer deserialize(const Config& config);
  /// As the layer; "<Layer, empty handle>".
  friend std::ostream& operator<<(std::ostream& out, const Layer& layer);

 protected:
  Layer() = default;
  LayerBase& use(const char* operation = __builtin_FUNCTION()) const {
    return *cohort::internal::base::held(layer_, "Layer", operation);
  }
  std::shared_ptr<LayerBase> layer_;
};

template <std::derived_from<Layer> L>
L LayerBase::add(std::string name, L layer) {
  layer.base().set_name(name);
  track(layer, std::move(name));
  return layer;
}

/// Base of layers of several inputs or outputs, which override call_nest.
class NestLayer : public LayerBase {
 public:
  using LayerBase::LayerBase;
  Tensor call(const Tensor& input, const CallArgs& args) final {
    return call_nest(Element(input), args).tensor();
  }
  Element call_nest(const Element& inputs, const CallArgs& args) override = 0;
};

/// A layer with options: C has the fields of the class, and as members `name`, `trainable` and
/// `dtype`, which every layer has, and perhaps `activity_regularizer`. Its config, a file's
/// included, comes of them. A class that derives says `using LayerImpl::LayerImpl;`.
template <class C, std::derived_from<LayerBase> Base = LayerBase>
class LayerImpl : public Base {
 public:
  using Options = C;
  explicit LayerImpl(C config)
      : Base(config.name), config_(internal::with_settled_policy(std::move(config))) {
    this->set_dtype_policy(config_.dtype);
    if constexpr (requires { config_.activity_regularizer; }) {
      this->set_activity_regularizer(config_.activity_regularizer);
    }
    if (!config_.trainable) this->set_trainable(false);
  }

  const C& config() const { return config_; }
  Config get_config() const override {
    C now = config_;
    now.name = this->name();
    now.trainable = this->trainable();
    return internal::full_config<LayerBase>(now);
  }

 private:
  const C config_;
};

/// The handle of a class with options: Shift shift({.offset = 2}).
template <std::derived_from<LayerBase> L>
class Handle : public Layer {
 public:
  explicit Handle(typename L::Options options = {})
      : Layer(std::make_shared<L>(std::move(options))) {}
  L& layer() const { return static_cast<L&>(base()); }
};

namespace internal {
template <>
ClassTable& class_table<LayerBase>();

template <class C>
requires requires(C& c) {
  c.name;
  c.trainable;
  c.dtype;
}
struct KindOf<C> {
  using type = LayerBase;
};
}  // namespace internal

/// Starts the numbers in the names of layers anew. TF: keras.utils.clear_session.
void clear_session();

}  // namespace cohort::keras
