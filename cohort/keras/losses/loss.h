// SPDX-License-Identifier: Apache-2.0
//
// Loss: the handle that compile() and custom loops use, and the base class to write one.
//
//   keras::Loss loss = "mse";
//   keras::Loss own([](const Tensor& y, const Tensor& p) { return (y - p).abs().mean(-1); });
//   Tensor value = loss(y_true, y_pred, sample_weight);
#pragma once

#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "cohort/base/callable.h"
#include "cohort/keras/serializable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// How per-example values become the loss. TF: the `reduction` argument of keras.losses.
enum class Reduction {
  kSumOverBatchSize,      ///< Sum of weighted values / number of values.
  kSum,                   ///< Sum of weighted values.
  kMean,                  ///< The same as kSumOverBatchSize, as in Keras 3.
  kMeanWithSampleWeight,  ///< Sum of weighted values / sum of weights.
  kNone,                  ///< The weighted values.
};

/// By name: "sum_over_batch_size".
template <>
struct ConfigValue<Reduction> {
  static Config write(Reduction value);
  static Reduction read(const Config& config);
};

/// Derive to write a loss. Threads: call() runs on all replicas' threads at once: no own state.
class LossBase : public Serializable {
 public:
  using Kind = LossBase;
  static constexpr const char* kKind = "Loss";
  static void base_fields(auto& c, auto&& f) {
    f("name", c.name);
    f("reduction", c.reduction);
  }

  explicit LossBase(std::string name = "loss", Reduction reduction = Reduction::kSumOverBatchSize)
      : name_(std::move(name)), reduction_(reduction) {}
  LossBase(const LossBase&) = delete;
  LossBase& operator=(const LossBase&) = delete;

  /// Per-example values. Shapes: y_pred's without its last axis.
  virtual Tensor call(const Tensor& y_true, const Tensor& y_pred) = 0;

  /// Of a loss that leaves some of the values of call() out of its means: bool, where they count.
  /// Undefined: all do. TF: the mask that a Keras loss gives to what call() returns.
  virtual Tensor counted(const Tensor& /*y_true*/, const Tensor& /*y_pred*/,
                         const Tensor& /*values*/) const {
    return {};
  }
  /// Whether counted() may say something. Default: it does not.
  virtual bool leaves_out() const { return false; }

  /// scale * (the reduction of call() with weights); kNone gives the scaled values.
  /// A batch without examples gives 0, and gradients of 0. Losses with a fused path override it.
  /// Errors: InvalidArgument for weights that do not fit the values.
  virtual Tensor reduced(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                         double scale);

  const std::string& name() const { return name_; }
  Reduction reduction() const { return reduction_; }
  std::string class_name() const override;

 private:
  const std::string name_;
  const Reduction reduction_;
};

/// A loss with options: C has the fields of the class, and `name` and `reduction` as members.
template <class C>
class LossImpl : public LossBase {
 public:
  using Options = C;
  /// `standard_name` is for options without one.
  explicit LossImpl(C config, const char* standard_name = "loss")
      : LossBase(config.name.empty() ? standard_name : config.name, config.reduction),
        config_(std::move(config)) {}
  const C& config() const { return config_; }
  Config get_config() const override {
    C now = config_;
    now.name = name();
    return internal::full_config<LossBase>(now);
  }

 private:
  const C config_;
};

/// Handle to a loss; a copy is the same loss. Threads: immutable.
class Loss {
 public:
  Loss() = default;  ///< None.
  /// "mse", "sparse_categorical_crossentropy", ... with Keras's defaults (so from_logits is false).
  /// Errors: InvalidArgument that lists the known names.
  Loss(const char* name);         // NOLINT: implicit by design
  Loss(const std::string& name);  // NOLINT
  template <std::derived_from<LossBase> L>
  Loss(std::shared_ptr<L> loss) : loss_(std::move(loss)) {}  // NOLINT
  /// Per-example values of (y_true, y_pred), and how to reduce them. Where the ranks of the two
  /// differ by a trailing axis of 1, the function gets both with it, or both without: [b] and
  /// [b, 1] arrive as [b, 1] twice. TF: Keras does the same for functions in compile().
  template <class F>
  requires(!std::derived_from<F, Loss> &&
           std::is_invocable_r_v<Tensor, F, const Tensor&, const Tensor&>)
      Loss(F per_example, Reduction reduction = Reduction::kSumOverBatchSize)  // NOLINT
      : loss_(from_function(
            cohort::internal::base::checked_function("[loss]", std::move(per_example)),
            reduction)) {}

  explicit operator bool() const { return loss_ != nullptr; }

  /// The reduced loss. Shapes: a scalar; with kNone the values'. sample_weight: as the values, or
  /// broadcasting to them. What the mask that y_pred carries leaves out does not count.
  /// Errors: InvalidArgument for shapes or labels that do not fit; in a custom loop with several
  ///         replicas for a mean: it would be the local batch's (use kNone or kSum, and divide by
  ///         the global batch size). TF: the same ValueError; Keras 3 silently takes that mean.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;

  /// What fit() calls: scale * the loss, in one autograd node where there is one, with no check of
  /// the replicas. Cost: 3 to 5 us for sparse cross entropy of 32 x 10.
  Tensor reduced(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                 double scale) const {
    return base().reduced(y_true, y_pred, sample_weight, scale);
  }

  const std::string& name() const { return base().name(); }
  Reduction reduction() const { return base().reduction(); }
  /// Errors: FailedPrecondition for an empty handle.
  LossBase& base() const;
  /// The options that make the same loss. Errors: Unimplemented for a function.
  Config get_config() const { return base().get_config(); }
  /// The name that it was given by, else its class and config; null of none. Errors: as get_config.
  Config serialize() const;
  /// Of what serialize() or Keras wrote. Errors: InvalidArgument. TF: keras.losses.deserialize.
  static Loss deserialize(const Config& config);
  /// "<Loss name=mean_squared_error, reduction=sum_over_batch_size>".
  friend std::ostream& operator<<(std::ostream& out, const Loss& loss);

 private:
  using Function = std::function<Tensor(const Tensor&, const Tensor&)>;
  static std::shared_ptr<LossBase> from_function(Function per_example, Reduction reduction);

  std::shared_ptr<LossBase> loss_;
  std::string given_name_;  // of one that was given by name
};

namespace internal {
template <>
ClassTable& class_table<LossBase>();

template <class C>
requires requires(C& c) {
  c.name;
  c.reduction;
}
struct KindOf<C> {
  using type = LossBase;
};
}  // namespace internal
}  // namespace cohort::keras
