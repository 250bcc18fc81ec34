// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: the handle that compile() and custom loops use, and the base class to write one.
//
//   struct SignDescent : keras::OptimizerBase {
//     void update(const Variable& w, const Gradient& g) override {
//       w.assign_sub(Tensor(g).sign() * learning_rate());
//     }
//   };
//   keras::Optimizer optimizer = std::make_shared<SignDescent>();
//   optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
#pragma once

#include <atomic>
#include <concepts>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/keras/optimizers/learning_rate.h"
#include "cohort/runtime/meeting.h"
#include "cohort/variables/gradients_and_variables.h"
#include "cohort/variables/variable.h"

namespace cohort {
class GradientTape;
class Trackable;
class TrackedObject;
struct TrackedParts;
namespace internal::variables {
class FinalGradients;
}  // namespace internal::variables
namespace keras::internal {
class GradientAccumulator;
template <class T>
class HostNumbers;
}  // namespace keras::internal
}  // namespace cohort

namespace cohort::keras {

struct ApplyOptions {
  /// Every replica applies its own gradients to its own copies, e.g. because they were reduced
  /// already. Where gradients differ the replicas' copies and slots diverge, and stay different.
  /// Errors: Unimplemented where replicas share one copy of the variables (central storage).
  bool skip_gradients_aggregation = false;
};

/// What every optimizer can do around its rule, as Keras 3 defines it.
struct OptimizerOptions {
  int gradient_accumulation_steps = 1;  ///< So many calls of apply_gradients are one update.
  bool use_ema = false;                 ///< Keep moving averages of the variables, over updates.
  double ema_momentum = 0.99;
  /// Put the averages into the variables after every so many updates; see finalize_variable_values.
  std::optional<int> ema_overwrite_frequency = {};
};

/// What an optimizer keeps for one of its variables.
struct SlotVariable {
  Variable variable;
  std::size_t owner = 0;  ///< Index of the variable it is kept for.
  std::string name = {};  ///< "momentum"
};

/// Derive to write an own rule. Threads: apply_gradients() runs on all replicas' threads at once.
class OptimizerBase : public Serializable {
 public:
  using Kind = OptimizerBase;
  static constexpr const char* kKind = "Optimizer";
  /// What the config of every optimizer of Keras begins with.
  static void base_fields(auto& c, auto&& f) {
    f("name", c.name);
    f("learning_rate", c.learning_rate);
    f("weight_decay", c.weight_decay);
    f("clipnorm", c.clipnorm);
    f("global_clipnorm", c.global_clipnorm);
    f("clipvalue", c.clipvalue);
    f("use_ema", c.use_ema);
    f("ema_momentum", c.ema_momentum);
    f("ema_overwrite_frequency", c.ema_overwrite_frequency);
    f.constant("loss_scale_factor", nullptr);
    f.nullable("gradient_accumulation_steps", c.gradient_accumulation_steps, 1);
    f.extra("exclude_from_weight_decay", c.exclude_from_weight_decay, {});
    if constexpr (requires { c.lazy_rows; }) f.extra("lazy_rows", c.lazy_rows, false);
  }

  /// Errors: InvalidArgument for numbers of steps below 1, a momentum outside [0, 1], or a learning
  ///         rate that is negative, NaN or infinite (a schedule's, when a step takes it).
  explicit OptimizerBase(LearningRate learning_rate = 0.001, std::string name = "optimizer",
                         const OptimizerOptions& options = {});
  ~OptimizerBase() override;
  OptimizerBase(const OptimizerBase&) = delete;
  OptimizerBase& operator=(const OptimizerBase&) = delete;

  /// Updates one variable, on each replica's thread its own component alone, which assign() writes
  /// without communication, by the reduced gradient, which is its own, too. Recording is off. What
  /// one throws, all throw, and weights and slots stay as they were (not on servers, which write).
  virtual void update(const Variable& variable, const Gradient& gradient) = 0;

  /// As Optimizer's functions of the same names; for what `gradients` alone holds see FusedUpdate.
  void build(std::span<const Variable> variables);
  bool built() const { return built_.load(std::memory_order_acquire); }
  virtual void apply_gradients(const Gradients& gradients, const ApplyOptions& options);
  virtual void minimize(const Tensor& loss, std::span<const Variable> variables,
                        GradientTape& tape);
  virtual Tensor scale_loss(const Tensor& loss) const { return loss; }
  virtual void finalize_variable_values();
  /// For SwapEMAWeights, cross-replica: exchanges the variables with their averages, unless that is
  /// done already. Before the first update nothing is done.
  /// Errors: FailedPrecondition without use_ema; Unimplemented where servers keep the variables.
  virtual void swap_averages(bool into_model);
  virtual bool model_has_averages() const { return model_has_averages_; }
  /// Says so of values that a file brought.
  virtual void note_model_has_averages(bool it_has) { model_has_averages_ = it_has; }
  virtual const Variable& iterations() const;
  virtual double learning_rate() const;
  /// Whether a schedule decides on the rate.
  virtual bool has_schedule() const { return rate_.is_schedule(); }
  virtual void set_learning_rate(double rate);
  virtual std::vector<Variable> variables() const;
  /// The optimizer that this one is around, which Keras's files have once more by itself; null:
  /// none. The same as long as this one lives.
  virtual const OptimizerBase* wrapped() const { return nullptr; }
  /// What Keras's files have of an optimizer, in their order: the count of calls, the rate unless a
  /// schedule decides, averages, sums, slots. Valid as long as the optimizer; none before build().
  std::vector<Variable> stored_variables() const;
  std::shared_ptr<Trackable> trackable() const;
  const std::string& name() const { return name_; }
  std::string class_name() const override;

 protected:
  /// Makes slots, once, cross-replica, in the scope of the variables' strategy.
  virtual void on_build(std::span<const Variable> variables);
  /// One step's work after the checks. Default: reduces, then calls update() per variable.
  virtual void apply(const Gradients& gradients, const ApplyOptions& options);
  /// All gradients of a step, in build()'s order, before update() gets each; undefined: none. On
  /// the threads that call update().
  virtual void see_gradients(const std::vector<Tensor>& /*gradients*/) {}
  virtual std::vector<SlotVariable> slot_variables() const;
  /// Slots in the order of Keras's files, with what else these have. Default: slot_variables().
  virtual std::vector<Variable> stored_slots() const;
  /// What checkpoints see. Default: rate, count and slots.
  virtual TrackedParts tracked_parts() const;
  /// build(), by the first call of apply_gradients() that all replicas make.
  void ensure_built(const Gradients& gradients);
  /// Those of slot_variables() with these names, in its order.
  std::vector<Variable> slots_named(const std::vector<std::string>& names) const;
  /// Who wants to be told of gradients that apply() will be given as a backward pass leaves them;
  /// null: nobody. See Updater::expect_gradients().
  virtual cohort::internal::variables::FinalGradients* expect_gradients() { return nullptr; }

  /// Which of build()'s variables this is, or is a component of. For slots.
  /// Errors: InvalidArgument for another variable.
  std::size_t index_of(const Variable& variable) const;
  /// A variable of `like`'s dtype, and its shape unless another is given, equal on all replicas,
  /// for on_build().
  Variable add_slot(const Variable& like, const std::string& name, double initial = 0,
                    const std::optional<Shape>& shape = {});
  /// As given, or the rate that set_learning_rate() has set.
  LearningRate current_rate() const { return rate_.is_schedule() ? rate_ : learning_rate(); }
  std::span<const Variable> trained() const { return trained_; }
  /// "name/owner_kernel_what": how Keras calls what an optimizer keeps for a variable.
  std::string state_name(const Variable& owner, const std::string& what) const;
  /// learning_rate(), of this class, where a step that is recorded asks for it in each start.
  double rate_now() const;
  /// The step that is being made: `iterations` before it, from the calling replica's copy.
  int64_t step() const { return calls() / options_.gradient_accumulation_steps; }
  /// Whether an update depends on step(). Where it does not, parameter servers are not asked for
  /// it.
  virtual bool needs_step() const { return true; }
  int replicas() const { return replicas_; }

 private:
  struct CountBeforeBuild;
  void check_gradients(const Gradients& gradients);
  /// Errors: Unimplemented for options that need the variables in this process.
  void check_remote() const;
  void make_counters();
  void make_kept();
  /// The calling replica's count of calls.
  int64_t& calls() const;
  bool accumulate(const Gradients& gradients);
  void count_call();
  class Step;
  /// One update: in a replica as its strategy says. Whether all replicas made it together.
  bool make_step(const Gradients& gradients, const ApplyOptions& options);
  /// Errors: Unimplemented where replicas have no copies of their own.
  void check_own_copies(const Gradients& gradients) const;
  void apply_to_shared(const std::vector<Tensor>& sums);
  std::vector<Tensor> sum_over_replicas(cohort::internal::runtime::Brought<Gradients> all) const;
  void average(int64_t updates_before);
  /// Of the variables with constraints, in their order, ahead of a step.
  struct Touched {
    std::vector<bool> given;         // whether the call has a gradient
    std::vector<uint64_t> versions;  // of the calling replica's copies
  };
  Touched touched_by(const Gradients& gradients) const;
  uint64_t version_of(std::size_t variable) const;
  /// Those that the step has a gradient for, or has written.
  std::vector<std::size_t> to_constrain(const Touched& touched) const;
  void constrain(std::vector<std::size_t> due, bool together, bool updates);
  void tracked_parts_grown();
  /// Calls work(replica) where that replica's copies may be written: on its thread, or once with
  /// all replicas waiting (a merge point) where they share one copy.
  template <class Work>
  void on_own_copies(const Work& work);
  /// work(weight, average) for every copy of every variable that has an average here.
  template <class Work>
  void for_each_copy(const Work& work);

  const std::string name_;
  const LearningRate rate_;
  std::atomic<double> constant_rate_;
  std::atomic<bool> built_{false};
  std::atomic<bool> warned_{false};
  const OptimizerOptions options_;
  int replicas_ = 1;
  bool shares_parameters_ = false;  // one copy for all replicas
  bool is_remote_ = false;          // other processes keep the variables, and count with us
  Variable calls_;
  std::shared_ptr<internal::HostNumbers<int64_t>> host_calls_;  // null: calls_ has them
  Variable iterations_;  // calls_, unless several calls are one update or it is not built
  std::shared_ptr<internal::GradientAccumulator> accumulator_;
  std::vector<Variable> averages_;
  bool model_has_averages_ = false;  // and averages_ the weights
  std::vector<SlotVariable> kept_;   // averages and sums, as Keras lists them
  std::vector<Variable> trained_;
  std::vector<std::vector<Variable>> components_;  // [variable][replica]
  std::vector<SlotVariable> slots_;
  std::vector<std::size_t> constrained_;
  const std::shared_ptr<TrackedObject> tracked_;
  const std::shared_ptr<CountBeforeBuild> count_;
  std::unordered_map<const cohort::internal::variables::VariableImpl*, std::size_t> index_;
};

namespace internal {
struct Nothing {
  Nothing() = delete;
};
/// Of SGD's template <IsNothing N = Nothing> explicit SGD(std::initializer_list<N>) : SGD() {}, by
/// which SGD({}) is SGD(): `{}` could as well stand for an SGD that is to be copied. A template,
/// for a list of Nothing itself could by GCC 12 also be made of {.a = 0, .b = 5}, as of a pointer
/// and a length.
template <class N>
concept IsNothing = std::same_as<N, Nothing>;
}  // namespace internal

/// Handle to an optimizer; a copy is the same optimizer.
class Optimizer {
 public:
  Optimizer() = default;  ///< None.
  /// "adam", "sgd", "rmsprop", "adamw", "adagrad", "adadelta", "adamax", "nadam", "ftrl", "lion",
  /// "lamb", "adafactor" or "muon", with Keras's defaults. Errors: InvalidArgument that lists them.
  Optimizer(const char* name);         // NOLINT: implicit by design
  Optimizer(const std::string& name);  // NOLINT
  template <std::derived_from<OptimizerBase> O>
  Optimizer(std::shared_ptr<O> optimizer) : optimizer_(std::move(optimizer)) {}  // NOLINT

  explicit operator bool() const { return optimizer_ != nullptr; }

  /// Makes `iterations` and the slots, where the variables live. The first apply_gradients does it
  /// with its variables otherwise. Cross-replica. Does nothing the second time.
  /// Errors: InvalidArgument for variables of several strategies; FailedPrecondition in the scope
  ///         of another one than theirs.
  void build(std::span<const Variable> variables) const { base().build(variables); }
  void build(std::initializer_list<Variable> variables) const {
    build(std::span(variables.begin(), variables.size()));
  }

  /// Sums the gradients over replicas (in replica order: the same bits every time), clips, applies
  /// the rule, then the variables' constraints, and counts one iteration. Variables without a
  /// gradient stay as they are, with one warning.
  /// With gradient_accumulation_steps n, the first n - 1 of n calls only add to the replica's own
  /// sums; the n-th takes the mean over the n calls as the gradient (a call that brought none
  /// counts as zero). A failed run drops what was summed. Constraints hold after every call, as in
  /// Keras (on parameter servers after every update), for the variables that it has a gradient
  /// for or updates.
  /// A strategy may decide otherwise how the replicas' gradients update (its do_apply_gradients).
  /// Order: a merge point (when accumulating, the n-th call only, and every one where replicas
  /// share a variable that has a constraint): every replica comes, or none.
  /// Nothing is written before all have come.
  /// Errors: InvalidArgument if all gradients are none, or for variables it was not built with;
  ///         FailedPrecondition cross-replica with several replicas.
  /// Cost: gradients that the caller keeps (a variable that is not moved in, a handle or a view of
  ///       one) may cost a second meeting, after which they may be written.
  void apply_gradients(Gradients gradients, ApplyOptions options = {}) const {
    // By value: what the caller keeps has another handle then, by which the update sees it.
    base().apply_gradients(gradients, options);
  }

  /// apply_gradients(tape.gradient(loss, variables)), and nothing in between, so that with several
  /// workers gradients travel while the backward pass still computes others: buckets of
  /// CommunicationOptions::bytes_per_pack leave as soon as all of their gradients are there, from
  /// the variables that were made last on. The numbers are the same, bit by bit. fit() does it.
  /// Not ahead of the pass's end: in the first step; with gradient_accumulation_steps, clipnorm or
  /// global_clipnorm; where the backward pass itself has collectives; what a variable gets by rows
  /// and whole at once, or what hooks of the program change.
  /// Order: as apply_gradients(); all replicas of all workers, or none.
  /// Errors: as tape.gradient() and apply_gradients(). TF: minimize(loss, var_list, tape).
  void minimize(const Tensor& loss, std::span<const Variable> variables, GradientTape& tape) const {
    base().minimize(loss, variables, tape);
  }
  void minimize(const Tensor& loss, std::initializer_list<Variable> variables,
                GradientTape& tape) const {
    minimize(loss, std::span(variables.begin(), variables.size()), tape);
  }

  /// The loss whose gradients apply_gradients() takes: multiplied by the scale of a
  /// LossScaleOptimizer, else as it is. minimize() does it itself.
  Tensor scale_loss(const Tensor& loss) const { return base().scale_loss(loss); }

  /// Updates made so far: int64. Before it is built the number that it will begin with: what a
  /// checkpoint restored, or what is assigned, else 0.
  const Variable& iterations() const { return base().iterations(); }
  /// The rate of the next call; schedules see the number of calls, as in Keras 3.
  double learning_rate() const { return base().learning_rate(); }
  /// While replicas are at rest. Errors: FailedPrecondition for a schedule; InvalidArgument for a
  ///         negative, NaN or infinite rate.
  void set_learning_rate(double rate) const { base().set_learning_rate(rate); }
  /// With use_ema: puts the moving averages into the variables; else nothing. fit() ends with it.
  /// Cross-replica.
  void finalize_variable_values() const { base().finalize_variable_values(); }
  /// The count of calls, moving averages, accumulated sums ("..._gradient_accumulator"), then
  /// slots, e.g. "adam/dense_kernel_momentum". Sums and slots are read and assigned cross-replica
  /// only.
  std::vector<Variable> variables() const { return base().variables(); }
  /// The count, the rate (unless a schedule decides) and the slots, for a Checkpoint, which does
  /// not keep the optimizer alive. One that is restored before it is built gets them when it is.
  std::shared_ptr<Trackable> trackable() const { return base().trackable(); }
  const std::string& name() const { return base().name(); }
  /// Errors: FailedPrecondition for an empty handle.
  OptimizerBase& base() const;
  /// The options that make the same optimizer, at its present rate. Errors: Unimplemented for a
  ///         schedule that is a function, and for a class that does not say it.
  Config get_config() const { return base().get_config(); }
  /// With its class; null of none. Errors: as get_config().
  Config serialize() const;
  /// A name, or what serialize() or Keras wrote. Errors: InvalidArgument.
  /// TF: keras.optimizers.deserialize.
  static Optimizer deserialize(const Config& config);
  /// "<Optimizer name=adam, learning_rate=0.001>": the rate of the next call.
  friend std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer);

 private:
  std::shared_ptr<OptimizerBase> optimizer_;
};

namespace internal {
template <>
ClassTable& class_table<OptimizerBase>();

template <class C>
requires requires(C& c) {
  c.learning_rate;
  c.clipnorm;
  c.exclude_from_weight_decay;
}
struct KindOf<C> {
  using type = OptimizerBase;
};
}  // namespace internal
}  // namespace cohort::keras
