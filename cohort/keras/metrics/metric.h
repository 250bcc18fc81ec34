// SPDX-License-Identifier: Apache-2.0
//
// Metric: the handle that compile() and custom loops use, and the base class to write one.
//
//   struct Positives : keras::MetricBase {
//     Variable count = add_variable({}, "count");
//     void update_state(const Tensor& y, const Tensor&, const Tensor&) override {
//       count.assign_add(y.gt(0).sum());
//     }
//     Tensor result() override { return count.value(); }
//   };
//   keras::Metric metric = std::make_shared<Positives>();
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/base/handle.h"
#include "cohort/base/mutex.h"
#include "cohort/keras/serializable.h"
#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort {
class Trackable;
}

namespace cohort::keras {

/// Whether more of a value is better: what `mode = "auto"` of EarlyStopping and ModelCheckpoint
/// asks for. TF: a metric's `_direction`.
enum class Direction { kUnknown, kUp, kDown };

/// The type in the config of a metric: what Keras computes in. Here sums are float64 whatever it
/// is.
class MetricDType {
 public:
  MetricDType() = default;  ///< "float32".
  /// Errors: InvalidArgument for a type that does not exist.
  MetricDType(const std::string& name);                              // NOLINT: implicit by design
  MetricDType(const char* name) : MetricDType(std::string(name)) {}  // NOLINT
  const std::string& name() const { return name_; }
  bool is_whole() const { return name_.find("int") != std::string::npos; }
  bool operator==(const MetricDType&) const = default;

 private:
  std::string name_ = "float32";
};
template <>
struct ConfigValue<MetricDType> {
  static Config write(const MetricDType& dtype) { return dtype.name(); }
  static MetricDType read(const Config& config);
};

/// Derive to write a metric. Its state lies in variables that every replica keeps for itself and
/// that are summed when read cross-replica; make them under the scope of the strategy.
/// Threads: update_state() runs on all replicas' threads at once and touches variables only.
class MetricBase : public Serializable {
 public:
  using Kind = MetricBase;
  static constexpr const char* kKind = "Metric";
  static void base_fields(auto& c, auto&& f) {
    f("name", c.name);
    if constexpr (requires { c.dtype; }) {
      f("dtype", c.dtype);
    } else {
      f.constant("dtype", "float32");
    }
  }

  explicit MetricBase(std::string name = "metric")
      : name_(name.empty() ? "metric" : std::move(name)) {}
  MetricBase(const MetricBase&) = delete;
  MetricBase& operator=(const MetricBase&) = delete;

  /// Runs with recording off. sample_weight may be undefined.
  virtual void update_state(const Tensor& y_true, const Tensor& y_pred,
                            const Tensor& sample_weight) = 0;
  virtual Tensor result() = 0;
  /// True for one that gives masked steps the weight 0: the means of a function, as in Keras, where
  /// all other metrics count masked steps like any.
  virtual bool heeds_masks() const { return false; }
  /// True for a metric of values, which come as y_pred: keras::Mean, Sum.
  virtual bool takes_values() const { return false; }
  /// Sets every variable to zero; override for other beginnings.
  virtual void reset_state();
  virtual Direction direction() const { return Direction::kUnknown; }
  /// Makes state whose shape is that of the data, for a class whose constructor has called
  /// wait_for_shapes(). Runs once, cross-replica: by compile()'s model when it sees the first
  /// batch, else at the first update. Shapes: of targets and predictions; only the last axes are
  /// fixed.
  virtual void build(const Shape& /*y_true*/, const Shape& /*y_pred*/) {}
  bool waits_for_shapes() const { return waits_.load(std::memory_order_acquire); }
  /// Builds now, if it waits. Order: in a replica a merge point.
  void ensure_built(const Shape& y_true, const Shape& y_pred);

  std::string class_name() const override;
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  const std::vector<Variable>& variables() const { return variables_; }

 protected:
  /// Zeros, kOnRead, kSum, "metric/name". float64 by default: a count stays exact, a long epoch's
  /// sum precise. TF: add_weight of keras.metrics.Metric, in float32.
  Variable add_variable(Shape shape, const std::string& name, DType dtype = kFloat64);
  /// For constructors: see build().
  void wait_for_shapes() { waits_.store(true, std::memory_order_release); }

 private:
  std::string name_;
  std::vector<Variable> variables_;
  std::atomic<bool> waits_{false};
  cohort::internal::base::Mutex
      build_mutex_;  // one build at a time, of those who are in no replica
};

/// A metric with options, on a base that has its state: C has the fields of the class, and `name`
/// as a member.
template <class C, std::derived_from<MetricBase> Base = MetricBase>
class MetricImpl : public Base {
 public:
  using Options = C;
  explicit MetricImpl(C config) : Base(config.name), config_(std::move(config)) {}
  const C& config() const { return config_; }
  Config get_config() const override {
    C now = config_;
    now.name = this->name();
    return internal::full_config<MetricBase>(now);
  }

 private:
  const C config_;
};

class Loss;

/// Handle to a metric; a copy is the same metric. A name or a function is no metric yet: compile()
/// makes it, in the scope of its model, when it sees the first shapes.
class Metric {
 public:
  using Function = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;

  /// "accuracy", "mse", "sparse_top_k_categorical_accuracy", ...
  /// Errors: InvalidArgument that lists the known names.
  Metric(const char* name);         // NOLINT: implicit by design
  Metric(const std::string& name);  // NOLINT
  template <std::derived_from<MetricBase> M>
  Metric(std::shared_ptr<M> metric)  // NOLINT
      : metric_(cohort::internal::base::held(std::move(metric), "MetricBase", "[metric]")) {}
  /// The mean of a value per example, under a name; see also MeanMetricWrapper. TF: Keras takes
  /// functions in compile(), and calls the metric by the function's name.
  template <class F>
  requires(!std::derived_from<F, Metric> && !std::derived_from<F, Loss> &&
           std::is_invocable_r_v<Tensor, F, const Tensor&, const Tensor&>)
      Metric(F function, std::string name = "function")  // NOLINT
      : deferred_(std::move(name)),
        function_(cohort::internal::base::checked_function("[metric]", std::move(function))) {}

  /// The mean of a loss's value per example, by the loss's name; its reduction does not count.
  /// TF: Keras takes losses in compile(), and gives batches the same weight whatever their size.
  /// Errors: InvalidArgument for one with ignore_class, and for an empty handle.
  template <std::derived_from<Loss> L>
  Metric(const L& loss) : Metric(of_loss(loss)) {}  // NOLINT

  /// Adds a batch; an empty one changes nothing.
  /// In a replica: to its own state, no communication.
  /// Errors: InvalidArgument in a replica for a metric made outside the strategy's scope, and
  ///         cross-replica for one of several replicas; FailedPrecondition for a name.
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;
  /// Of a keras::Mean or Sum: adds values. Errors: InvalidArgument for metrics of labels and
  /// predictions.
  void update_state(const Tensor& values) const;
  /// Cross-replica: over all replicas. In a replica: this replica's so far.
  Tensor result() const;
  /// Cross-replica: on all replicas.
  void reset_state() const;

  const std::string& name() const { return metric_ ? metric_->name() : deferred_; }
  /// Of a name: what the metric will say.
  Direction direction() const;
  std::vector<Variable> variables() const { return base().variables(); }
  /// The state, for a Checkpoint, which keeps the variables alive. Errors: as base().
  std::shared_ptr<Trackable> trackable() const;
  /// True for a name or a function that resolve() has to make a metric of.
  bool is_name() const { return metric_ == nullptr; }
  /// True for a name, and for a metric that waits for the shapes of the data.
  bool needs_resolving() const { return is_name() || metric_->waits_for_shapes(); }
  /// The metric that a name means for targets and predictions of these shapes, newly made in the
  /// current scope and called by the name as given; a metric is itself, and built. "accuracy" is
  /// binary for predictions of one column, sparse categorical for labels of lower rank or one
  /// column, and categorical otherwise.
  Metric resolve(const Shape& y_true, const Shape& y_pred) const;
  /// Errors: FailedPrecondition for a name.
  MetricBase& base() const;
  /// The options that make the same metric.
  /// Errors: as base(); Unimplemented for a class that does not override
  ///         get_config().
  Config get_config() const { return base().get_config(); }
  /// A name as it is, else the class and the config. Errors: Unimplemented, as get_config().
  Config serialize() const;
  /// Of what serialize() or Keras wrote. Errors: InvalidArgument. TF: keras.metrics.deserialize.
  static Metric deserialize(const Config& config);
  /// "<Metric name=accuracy>".
  friend std::ostream& operator<<(std::ostream& out, const Metric& metric);

 protected:
  /// The metric, once it is sure that its state here is the calling replica's own.
  MetricBase& writable() const;

 private:
  static Metric of_loss(const Loss& loss);

  std::shared_ptr<MetricBase> metric_;
  std::string deferred_;
  Function function_;  // that deferred_ is the name of; empty: a name of Keras
};

namespace internal {
template <>
ClassTable& class_table<MetricBase>();
}  // namespace internal
}  // namespace cohort::keras
