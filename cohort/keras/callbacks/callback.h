// SPDX-License-Identifier: Apache-2.0
//
// Callbacks: functions that fit, evaluate and predict call at their epochs and steps.
//
//   struct Print : keras::CallbackBase {
//     void on_epoch_end(int epoch, keras::Logs& logs) override {
//       std::printf("epoch %d: loss %g\n", epoch, logs.number("loss"));
//     }
//   };
//   model.fit(data, {.epochs = 3, .callbacks = {std::make_shared<Print>()}});
//
// Order in fit: on_train_begin; for each epoch on_epoch_begin, for each execution (one step, or
// steps_per_execution of them) on_train_batch_begin and on_train_batch_end, then the validation's
// on_test_begin, on_test_batch_begin and ..._end, on_test_end, then on_epoch_end; at last
// on_train_end. Several callbacks are called in the order of the list, the history and the
// progress bar after them.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/handle.h"
#include "cohort/keras/callbacks/logs.h"

namespace cohort::keras::internal {
class FitPosition;
enum class FitMoment;
}  // namespace cohort::keras::internal

namespace cohort::keras {

class LayerBase;
class Model;

/// Derive and override what is of interest. Epochs and steps count from 0.
/// Order: called in cross-replica context, while no replica runs.
/// Errors: what a hook throws leaves fit; on_train_end is then not called, but on_failure.
/// Threads: called by the thread that called fit.
class CallbackBase {
 public:
  virtual ~CallbackBase() = default;

  virtual void on_train_begin() {}
  virtual void on_train_end() {}
  virtual void on_epoch_begin(int /*epoch*/) {}
  /// Loss, metrics and, under val_..., those of the validation. What is added is in the history,
  /// and seen by the callbacks that follow.
  virtual void on_epoch_end(int /*epoch*/, Logs& /*logs*/) {}
  /// The execution's first step.
  virtual void on_train_batch_begin(int64_t /*step*/) { no_batch_begin_ = true; }
  /// The execution's last step, and the means of the epoch so far.
  virtual void on_train_batch_end(int64_t /*step*/, Logs& /*logs*/) { no_batch_end_ = true; }
  virtual void on_test_begin() {}
  virtual void on_test_end(Logs& /*logs*/) {}
  virtual void on_test_batch_begin(int64_t /*step*/) {}
  virtual void on_test_batch_end(int64_t /*step*/, Logs& /*logs*/) {}
  virtual void on_predict_begin() {}
  virtual void on_predict_end() {}
  virtual void on_predict_batch_begin(int64_t /*step*/) {}
  virtual void on_predict_batch_end(int64_t /*step*/) {}

  /// fit, evaluate or predict ends with an exception, which is rethrown after this: close what a
  /// begin has opened. An exception of its own is logged.
  virtual void on_failure() {}

  /// What BackupAndRestore saves of this callback, for another process; restore_state gets it after
  /// on_train_begin of a fit that goes on.
  virtual std::string save_state() { return {}; }
  virtual void restore_state(std::string_view /*state*/) {}
  /// False for a callback that needs hooks of batches, which a ParameterServerStrategy cannot call.
  /// Default: false for a class that overrides hooks of the batches of fit or evaluate.
  /// TF: the opposite of Callback._implements_train_batch_hooks, or _supports_tf_logs.
  virtual bool works_without_batches() const { return !has_batch_hooks_; }
  /// Internal: where fit is; see fit_position.h.
  virtual void on_fit_position(internal::FitPosition&, internal::FitMoment) {}

  /// Internal: whose training this watches, wherever that model moves.
  void set_model(Model* model);

  /// Internal: false once the hooks of batches have shown that nobody overrides them. What they
  /// print must not run into the progress bar.
  bool may_print_in_batches() const { return !(no_batch_begin_ && no_batch_end_); }

 protected:
  /// Errors: FailedPrecondition before fit, evaluate or predict, and when the model has ended.
  Model& model() const;

 private:
  friend class Callback;
  /// Whether C, or a class between, has hooks of its own for batches. One that is not accessible is
  /// one of its own.
  template <class C>
  static constexpr bool overrides_batch_hooks() {
    using Begin = void (CallbackBase::*)(int64_t);
    using End = void (CallbackBase::*)(int64_t, Logs&);
    constexpr bool kHasNone = requires {
      requires std::same_as<decltype(&C::on_train_batch_begin), Begin>;
      requires std::same_as<decltype(&C::on_train_batch_end), End>;
      requires std::same_as<decltype(&C::on_test_batch_begin), Begin>;
      requires std::same_as<decltype(&C::on_test_batch_end), End>;
    };
    return !kHasNone;
  }

  std::shared_ptr<LayerBase*> place_;
  bool no_batch_begin_ = false;
  bool no_batch_end_ = false;
  bool has_batch_hooks_ = false;
};

/// Handle to a callback; a copy is the same callback.
class Callback {
 public:
  template <std::derived_from<CallbackBase> C>
  Callback(std::shared_ptr<C> callback) : callback_(std::move(callback)) {  // NOLINT: implicit
    if (callback_ != nullptr && CallbackBase::overrides_batch_hooks<C>()) {
      callback_->has_batch_hooks_ = true;
    }
  }

  /// Errors: FailedPrecondition for an empty handle.
  CallbackBase& base() const { return *cohort::internal::base::held(callback_, "Callback", ""); }

 protected:
  Callback() = default;
  std::shared_ptr<CallbackBase> callback_;
};

}  // namespace cohort::keras

namespace cohort::keras::internal {

/// Several callbacks as one: every hook of each, in order.
class CallbackList {
 public:
  CallbackList() = default;
  CallbackList(const std::vector<keras::Callback>& callbacks, keras::Model& model);
  void add(const keras::Callback& callback, keras::Model& model);

  /// list.call(&CallbackBase::on_epoch_begin, epoch);
  template <class... P, class... A>
  void call(void (keras::CallbackBase::*hook)(P...), A&&... args) const {
    for (const keras::Callback& callback : callbacks_) (callback.base().*hook)(args...);
  }
  bool empty() const { return callbacks_.empty(); }
  bool may_print_in_batches() const;
  void tell_of_failure() const noexcept;

 private:
  std::vector<keras::Callback> callbacks_;
};

/// Tells callbacks of an exception that ends its lifetime.
class [[nodiscard]] FailureWatch {
 public:
  explicit FailureWatch(const CallbackList& callbacks)
      : callbacks_(callbacks), before_(std::uncaught_exceptions()) {}
  ~FailureWatch() {
    if (std::uncaught_exceptions() > before_) callbacks_.tell_of_failure();
  }
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

 private:
  const CallbackList& callbacks_;
  const int before_;
};

}  // namespace cohort::keras::internal
