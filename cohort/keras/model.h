// SPDX-License-Identifier: Apache-2.0
//
// Model: a layer that can be compiled, trained, evaluated and used to predict.
//
//   auto scope = strategy.scope();
//   struct Net : keras::Model {
//     keras::Dense hidden = add("hidden", keras::Dense(64, {.activation = "relu"}));
//     keras::Dense out = add("out", keras::Dense(10));
//     Tensor call(const Tensor& x, const keras::CallArgs& args) override {
//       return out(hidden(x, args), args);
//     }
//   } net;
//   net.compile({.optimizer = "adam", .loss = "sparse_categorical_crossentropy"});
//   keras::History history = net.fit(train.batch(128), {.epochs = 5});
#pragma once

#include <atomic>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/keras/compile_options.h"
#include "cohort/keras/fit_options.h"
#include "cohort/keras/history.h"
#include "cohort/keras/layer.h"
#include "cohort/strategy/strategy.h"

namespace cohort::keras::internal {
class CompiledModel;
class Trainer;
}  // namespace cohort::keras::internal

namespace cohort::keras::internal {
class Graph;
}

namespace cohort::keras {

struct SummaryOptions {
  bool expand_nested = false;   ///< The layers of models in the model, too, each after "└".
  bool show_trainable = false;  ///< Y or N, "-" of what has no weights.
};

struct InputOptions {
  int64_t batch_size = kUnknownDim;
  DType dtype = floatx();  ///< Data of other types are converted.
  std::string name = {};
};

/// The symbolic input of a functional model. `shape` is without the batch.
/// TF: keras.Input.
KerasTensor Input(Shape shape, InputOptions options = {});

/// The parts of a batch; undefined where it has none.
struct XYWeight {
  Tensor x = {};
  Tensor y = {};
  Tensor sample_weight = {};
};

/// Errors: InvalidArgument unless the batch is x, (x), (x, y) or (x, y, sample_weight) of tensors.
XYWeight unpack_x_y_sample_weight(const Element& batch);

/// Remembers the strategy it was made under; its methods work inside and outside of that scope.
/// Functional models move, and classes that derive if their members do: models can be returned,
/// assigned and kept in containers, and checkpoints and callbacks go with them. An object of a
/// class that derives does not become a plain Model, which would have its layers and not its call;
/// a class that writes its own move says Model(static_cast<Model&&>(other)). Errors:
/// FailedPrecondition inside the scope of another strategy, inside of strategy.run, and for
///         a model that was moved from; to move one while its fit, evaluate or predict runs.
/// Threads: one caller at a time, but predict and predict_on_batch of a built model of the default
/// strategy, which any number may call at once. TF: keras.Model.
class Model : public LayerBase {
 public:
  /// A functional model: what lies between these, with several inputs and outputs, layers that are
  /// called more than once, and models as layers; see keras_tensor.h.
  /// Errors: InvalidArgument for tensors that no Input made, outputs that need other inputs, and
  ///         two layers of one name. TF: keras.Model(inputs, outputs).
  Model(const KerasTensor& inputs, const KerasTensor& outputs, std::string name = {});
  Model(Model&& other) noexcept(false);  // see the class
  Model& operator=(Model&& other) noexcept(false);
  template <class M>
  requires(std::derived_from<M, Model> && !std::same_as<M, Model>) Model(M&& other)  // NOLINT
  = delete;
  template <class M>
  requires(std::derived_from<M, Model> && !std::same_as<M, Model>) Model& operator=(M&&) = delete;
  ~Model() override;

  bool is_functional() const { return graph_ != nullptr; }
  /// What a functional model was made of. Errors: FailedPrecondition for another one.
  const KerasTensor& inputs() const;
  const KerasTensor& outputs() const;
  /// What losses and metrics of a functional model with several outputs are called by: the layers
  /// that give them, or the names they were given; empty for other models.
  std::vector<std::string> output_names() const;
  /// Errors: InvalidArgument that lists the layers.
  Layer get_layer(std::string_view name) const;
  Layer get_layer(int64_t index) const;  ///< Of layers().

  std::string class_name() const override;
  /// Of a functional model; a class that derives overrides one of them.
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Config get_config() const override;
  /// Of a functional model, in Keras's form. Errors: InvalidArgument; Unimplemented for arguments
  ///         of layers that are neither tensors nor `training`.
  static std::shared_ptr<Model> from_config(const Config& config);
  Config get_build_config() const override;

  /// Says how to train; again to change it. The weights stay. The optimizer's state belongs to the
  /// Optimizer: one that is passed again goes on with it, a new one starts anew.
  /// Of metrics of one name the second is "name_1" in logs, a weighted one "weighted_name".
  /// Errors: InvalidArgument for metrics of another strategy, or called as a loss is in the logs.
  void compile(CompileOptions options);

  /// Trains. Ctrl-C ends it after the running step, with the weights of that step: throws
  /// Interrupted, as Python raises KeyboardInterrupt; or, with on_interrupt = kReturn, calls
  /// on_train_end (EarlyStopping's restore_best_weights is done there) and returns the history of
  /// the epochs that ended with `interrupted` set. A second Ctrl-C acts as if fit were not there.
  /// evaluate and predict throw Interrupted, too. KERAS_MAX_EPOCHS and KERAS_MAX_STEPS_PER_EPOCH
  /// (environment) are upper bounds.
  /// Errors: FailedPrecondition before compile(), and for weights made outside of the strategy's
  ///         scope; InvalidArgument for options that contradict each other, an empty dataset, or
  ///         one without end and no steps_per_epoch. What a step or a callback throws; the weights
  ///         are those of the last whole step: what layers, loss, gradients or metrics throw on any
  ///         replica leaves weights, slots, iterations, statistics, metrics and random numbers as
  ///         they were before the step. Constraints follow the update: one that throws leaves that
  ///         step made on all replicas, and none of its variables constrained.
  History fit(const DataSource& data, const FitOptions& options = {});
  /// Arrays. Shapes: equal first dimension.
  template <ArrayInput X>  // so that options in braces after a dataset are never taken for labels
  History fit(const X& x, const Element& y, const FitOptions& options = {}) {
    return fit_arrays(x, y, options);
  }
  History fit(std::initializer_list<Element> x, const Element& y, const FitOptions& options = {}) {
    return fit_arrays(x, y, options);
  }

  /// The loss and the metrics over all data.
  Logs evaluate(const DataSource& data, const EvaluateOptions& options = {});
  template <ArrayInput X>
  Logs evaluate(const X& x, const Element& y, const EvaluateOptions& options = {}) {
    return evaluate_arrays(x, y, options);
  }
  Logs evaluate(std::initializer_list<Element> x, const Element& y,
                const EvaluateOptions& options = {}) {
    return evaluate_arrays(x, y, options);
  }

  /// The outputs for all rows, in their order; by files: step by step, in each worker by worker.
  Tensor predict(const DataSource& data, const PredictOptions& options = {});
  Tensor predict(const Tensor& x, const PredictOptions& options = {});

  /// The same for models of several inputs or outputs: a nest like the outputs.
  Element predict_nest(const DataSource& data, const PredictOptions& options = {});
  template <ArrayInput X>
  Element predict_nest(const X& x, const PredictOptions& options = {}) {
    return predict_arrays(x, options);
  }
  Element predict_nest(std::initializer_list<Element> x, const PredictOptions& options = {}) {
    return predict_arrays(x, options);
  }

  /// The outputs for one global batch, without callbacks and without a bar.
  Tensor predict_on_batch(const Element& x);
  /// The same for models of several inputs or outputs: a nest like the outputs.
  Element predict_nest_on_batch(const Element& x);

  /// One step on one global batch. Returns its loss and metrics: all metrics are reset before it.
  Logs train_on_batch(const Element& x, const Element& y, const Tensor& sample_weight = {});
  /// The same without training.
  Logs test_on_batch(const Element& x, const Element& y, const Tensor& sample_weight = {});
  void reset_metrics();

  /// What one replica does with its part of a batch; override for another way to train. Metrics in
  /// the logs, given as such ({"mae", mae}) or by compute_metrics, are shown over all replicas. Of
  /// other values those of the last step are. What compute_loss, of this model or another one, and
  /// compute_average_loss returned is a share of the batch's loss, and shares add up; so do sums
  /// and multiples of them (without recorded gradients: only sums and means). All else is the mean
  /// of the replicas, weighted by their rows. Errors, of fit: InvalidArgument for other functions
  /// of shares, say a logarithm, on several replicas.
  /// Order: metrics before the weights are updated, so that a metric that throws leaves the step
  /// undone. TF: after the update; an override may do so, but then the weights have changed.
  virtual Logs train_step(const Element& batch);
  virtual Logs test_step(const Element& batch);
  /// Shapes: [b, ...], a row for each row of the batch.
  virtual Tensor predict_step(const Element& batch);
  /// The same for predict_nest.
  virtual Element predict_nest_step(const Element& batch);

  /// This replica's share of the batch's loss, penalties of weights included: the sum over the
  /// replicas is the loss. Feeds the metric "loss".
  /// Of predictions with a mask, and of losses that leave values out (ignore_class) or divide by
  /// the sum of sample weights, it is the mean over what counts on all replicas. Order: of those,
  /// in a step of fit or evaluate on several replicas, a merge point. Errors: InvalidArgument
  /// without labels, or for another number of labels than outputs.
  Tensor compute_loss(const Tensor& x, const Tensor& y, const Tensor& y_pred,
                      const Tensor& sample_weight = {});
  /// The same for several inputs or outputs: the sum of the outputs' losses by their weights.
  Tensor compute_loss_nest(const Element& x, const Element& y, const Element& y_pred,
                           const Element& sample_weight = {});
  /// Updates the metrics. Returns the loss and all metrics, to be read after the step.
  Logs compute_metrics(const Tensor& x, const Tensor& y, const Tensor& y_pred,
                       const Tensor& sample_weight = {});

  Logs compute_metrics_nest(const Element& x, const Element& y, const Element& y_pred,
                            const Element& sample_weight = {});

  /// With class, config, how it was built, and what compile() was told, as Keras writes it. A loss
  /// that is a function leaves compile_config empty, with a warning.
  /// Errors: Unimplemented for a layer, or a class of models, that does not say what it is made
  /// with.
  Config serialize() const override;
  /// serialize() as a text; model_from_json reads it, and so does Keras. TF: Model.to_json.
  std::string to_json() const { return serialize().to_json(); }
  /// What compile() was told, as Keras writes it. Errors: as optimizer(); Unimplemented for a loss,
  /// a schedule or a metric that is a function. TF: Model.get_compile_config.
  Config get_compile_config() const;
  /// compile() as told by get_compile_config() or Keras. Errors: InvalidArgument.
  /// TF: Model.compile_from_config.
  void compile_from_config(const Config& config);

  bool compiled() const { return compiled_ != nullptr; }
  /// Errors: FailedPrecondition before compile().
  const Optimizer& optimizer() const;
  /// What compile() was given. Errors: as optimizer().
  std::vector<Metric> metrics() const;
  const Strategy& strategy() const { return strategy_; }
  /// Errors: FailedPrecondition for a model that was moved from, as all that need its layers.
  const std::vector<Layer>& layers() const;
  int64_t count_params() const;

  /// Ends fit: from a step's hook after that step, with validation and on_epoch_end.
  void stop_training() { stop_training_.store(true, std::memory_order_relaxed); }

  /// Prints the layers, their outputs' shapes and numbers of parameters; of a functional model that
  /// is no chain also what each is called with ("dense[0][1]": of its first call the second
  /// output). Of several workers the chief does. TF: Model.summary.
  void summary(const SummaryOptions& options = {}) const;
  /// What summary() prints.
  std::string summary_text(const SummaryOptions& options = {}) const;

  /// Copies of all variables' values, in the order of variables(). Errors: as set_weights.
  std::vector<Tensor> get_weights() const;
  /// Errors: InvalidArgument for another number of weights or other shapes.
  void set_weights(std::span<const Tensor> weights);
  void set_weights(std::initializer_list<Tensor> weights) {
    set_weights(std::span(weights.begin(), weights.size()));
  }

  /// Writes the values of all variables, by weight_paths() ("layers/dense_1/vars/0" for the kernel
  /// of the second Dense of a model, whatever else is in the process), to a .safetensors or
  /// .weights.h5 file: whole or not at all. The latter is Keras's, and has the optimizer's state,
  /// too, once the model is trained. What one model saved under one strategy loads into another of
  /// its kind under any other. Of several workers all call, and the chief writes, at its path.
  /// Errors: FailedPrecondition before the model is built; InvalidArgument for a path that ends
  ///         otherwise; Error with the system's reason.
  void save_weights(const std::string& path) const;
  /// Into every replica; of several workers all call, and get what the chief reads. Nothing changes
  /// unless all names, shapes and types agree; HDF5 files, whether Cohort's or Keras's, may have
  /// other types. Reads the names that earlier versions gave, too, and the weights in .keras files.
  /// The optimizer's state is loaded where the model's is built, and is of that kind.
  /// Errors: as save_weights; InvalidArgument that lists the differences; DataLoss.
  void load_weights(const std::string& path);

  /// Writes the model to a .keras file, which load_model reads here and keras.models.load_model in
  /// Python: what it consists of, how it was compiled, its weights and the state of its optimizer,
  /// which is built for that. Whole or not at all. Of several workers all call, and the chief
  /// writes, at its path. What compile() was told is left out, with a warning, where it has parts
  /// that are functions.
  /// Errors: as save_weights; Unimplemented as serialize(). TF: Model.save.
  void save(const std::string& path) const;
  /// Writes a file to predict with, without what compile() was told: a .keras file, which
  /// load_model and Keras open, or an .onnx file (operators of set 18, any batch). Whole or not at
  /// all; of several workers as save(). Errors: as save(); Unimplemented for ONNX of models that
  /// are neither Sequential nor functional, and of layers that are not written, with their class.
  /// TF: Model.export, without a SavedModel.
  void export_to(const std::string& path) const;

  /// Internal: of each of layers(), for summary() and plot_model; empty where they are not known.
  virtual std::vector<Shape> layer_output_shapes() const;

 protected:
  explicit Model(std::string name = {});
  /// A layer's, and the optimizer once the model is compiled.
  TrackedParts tracked_parts() const override;
  bool is_list_of_layers() const override { return true; }

 private:
  struct SummaryRows;
  friend class CallbackBase;
  friend class internal::Trainer;
  History fit_arrays(const Element& x, const Element& y, const FitOptions& options);
  Element predict_arrays(const Element& x, const PredictOptions& options);
  struct Parts;
  Parts parts_of(const Element& batch) const;
  Tensor with_penalties(Tensor value, const Tensor& y_pred);
  void know_outputs(const Element& y_pred);
  Logs evaluate_arrays(const Element& x, const Element& y, const EvaluateOptions& options);
  internal::CompiledModel& checked(const char* operation) const;
  /// The strategy's scope. Errors: FailedPrecondition, see the class.
  Scope enter(const char* operation) const;
  /// Unless all weights are in the strategy's replicas.
  void check_weights_made_in_scope(const char* operation) const;
  /// The same model, if nobody is at work with it.
  Model& resting();

  Strategy strategy_;
  std::unique_ptr<internal::CompiledModel> compiled_;
  std::shared_ptr<const internal::Graph> graph_;  // null: a class that derives says what is done
  std::atomic<bool> stop_training_{false};
  std::atomic<int> running_{0};  // fit, evaluate and predict
};

struct LoadModelOptions {
  bool compile = true;  ///< As the file says, with the state of its optimizer, to train on.
};

/// The model in a .keras file that Model::save or Keras wrote, or in a folder that Keras wrote
/// (zipped=False). Lives under the current strategy, under whichever it was saved. Of several
/// workers all call, and get what the chief reads. Errors: InvalidArgument, Unimplemented as
/// model_from_config, and for a file whose values are not
///         those of its model; DataLoss for a file that is damaged, or tries what no such file
///         needs; Error with the system's reason. TF: keras.models.load_model.
std::shared_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options = {});

/// The model that a config or text describes, with new weights; built where that says for what, and
/// compiled as that says. Lives under the current strategy.
/// Errors: InvalidArgument for what is no model, and for classes and options that are not known;
///         Unimplemented for what Keras has and Cohort not yet.
/// TF: keras.saving.deserialize_keras_object, keras.models.model_from_json.
std::shared_ptr<Model> model_from_config(const Config& config);
std::shared_ptr<Model> model_from_json(std::string_view text);

}  // namespace cohort::keras
