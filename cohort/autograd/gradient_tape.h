// SPDX-License-Identifier: Apache-2.0
//
// GradientTape: records what a model computes, and differentiates it.
//
//   GradientTape tape;
//   Tensor loss = compute_average_loss(loss_fn(y, model(x, {.training = true})), {...});
//   optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
//
// It uses LibTorch's autograd: the tape turns recording on for its lifetime, the graph is
// LibTorch's own. Cohort's layers write the gradients of the sources straight into the gradient
// arena that the optimizer reads; see layer_node.h for that contract.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/variables/gradients_and_variables.h"
#include "cohort/variables/variable.h"

namespace cohort {

/// What a source that the target does not depend on gets. TF: tf.UnconnectedGradients.
enum class UnconnectedGradients { kNone, kZero };

struct TapeOptions {
  bool persistent = false;               ///< gradient() may be called several times.
  bool watch_accessed_variables = true;  ///< false: only what watch() names gets gradients.
};

struct GradientOptions {
  Tensor output_gradients = {};  ///< Weights of a target that is no scalar; default: ones.
  UnconnectedGradients unconnected_gradients = UnconnectedGradients::kNone;
};

/// Records operations on this thread until gradient() (or its end, if persistent).
/// A tape inside a tape records the inner gradient() too, for second derivatives. A tape around
/// strategy.run records all replicas: gradient() then sums what each contributes through its copy.
/// Threads: bound to the thread and the replica that made it. TF: tf.GradientTape.
class [[nodiscard]] GradientTape {
 public:
  explicit GradientTape(TapeOptions options = {});
  ~GradientTape();
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  /// For tapes with watch_accessed_variables = false: gradient() knows this variable, too.
  void watch(const Variable& v);
  /// `x` becomes a handle whose operations are recorded. Errors: InvalidArgument for integers.
  void watch(Tensor& x);

  /// d target / d sources, in the order of the sources; a non-scalar target counts as its sum.
  /// Errors: FailedPrecondition at the second call of a tape that is not persistent, and in a
  /// replica for a tape that was made outside of run.
  Gradients gradient(const Tensor& target, std::span<const Variable> sources,
                     const GradientOptions& options = {});
  Tensor gradient(const Tensor& target, const Variable& source,
                  const GradientOptions& options = {});
  Tensor gradient(const Tensor& target, const Tensor& source, const GradientOptions& options = {});
  std::vector<Tensor> gradient(const Tensor& target, std::span<const Tensor> sources,
                               const GradientOptions& options = {});
  /// gradient(loss, {v, w}).
  Gradients gradient(const Tensor& target, std::initializer_list<Variable> sources,
                     const GradientOptions& options = {}) {
    return gradient(target, std::span(sources.begin(), sources.size()), options);
  }
  std::vector<Tensor> gradient(const Tensor& target, std::initializer_list<Tensor> sources,
                               const GradientOptions& options = {}) {
    return gradient(target, std::span(sources.begin(), sources.size()), options);
  }

  /// Stops recording for its lifetime. TF: tape.stop_recording().
  class [[nodiscard]] Pause {
   public:
    explicit Pause(GradientTape& tape);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const bool before_;
  };

  /// Forgets what was watched and whether gradient() was called, and records again.
  void reset();

 private:
  std::vector<Tensor> run_backward(const Tensor& target, std::span<const Tensor> inputs,
                                   const GradientOptions& options, bool keep_graph,
                                   bool create_graph);
  bool begin_gradient();
  void open();
  void close();
  bool watches(const Variable& v) const;
  void check_place() const;

  const TapeOptions options_;
  const void* const thread_;
  const int replica_;
  bool recording_before_ = false;
  bool is_open_ = false;
  bool spent_ = false;
  std::vector<Variable> watched_;
};

/// Scales all gradients down so that their joint L2 norm is at most `norm`: in place where nobody
/// else holds them, else as new tensors. Cost: where gradients are a GPU's, all of them are scaled,
/// by 1 if need be, and the host waits for nothing. TF: tf.clip_by_global_norm.
Gradients clip_by_global_norm(Gradients gradients, double norm);

}  // namespace cohort
