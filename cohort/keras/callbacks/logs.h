// SPDX-License-Identifier: Apache-2.0
//
// Named values that fit, evaluate and train_on_batch report: the loss and the metrics.
//
//   void on_epoch_end(int epoch, keras::Logs& logs) override {
//     if (logs.contains("val_loss")) std::printf("%d %g\n", epoch, logs.number("val_loss"));
//   }
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// A number, a tensor, or what is read when it is asked for: a function, or a metric, which is then
/// that of all replicas.
class LogValue {
 public:
  LogValue() = default;
  LogValue(Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: implicit by design
  template <class T>
  requires std::convertible_to<const T&, Tensor> LogValue(const T& value)
      : tensor_(value) {}                                         // NOLINT
  LogValue(double number) : tensor_(scalar(number, kFloat64)) {}  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<Tensor, const F&> LogValue(F read)
      : read_(std::move(read)) {}  // NOLINT
  template <class M>
  requires requires(const M& m) {
    { m.result() } -> std::convertible_to<Tensor>;
  }
  LogValue(M metric) : read_([metric = std::move(metric)] { return metric.result(); }) {}  // NOLINT

  Tensor read() const { return read_ ? read_() : tensor_; }
  /// True for a function and a metric.
  bool is_read_anew() const { return static_cast<bool>(read_); }
  /// As it is now. Of a metric with several results the number is still their mean.
  LogValue kept() const;
  /// Errors: InvalidArgument, unless this is one number, or a metric's several: then their mean.
  double number(std::string_view name) const;

 private:
  Tensor tensor_;
  std::function<Tensor()> read_;
  bool has_mean_ = false;
};

/// Named values in a fixed order. A value is read when it is asked for: what a running epoch shows
/// changes from step to step, values() keeps it. A copy is cheap and independent.
/// Threads: thread-compatible.
class Logs {
 public:
  Logs() = default;
  Logs(std::initializer_list<std::pair<std::string, LogValue>> entries);

  /// Replaces a value, or appends one.
  void set(const std::string& name, const LogValue& value) { put({name, value}); }

  bool contains(std::string_view name) const;
  /// Of a metric with several results (one for each class) the mean, as in the progress bar.
  /// Errors: InvalidArgument that lists the names; for another value that is not one number.
  double number(std::string_view name) const;
  /// Errors: as number.
  Tensor value(std::string_view name) const;

  std::size_t size() const { return entries_ ? entries_->size() : 0; }
  bool empty() const { return size() == 0; }
  /// In order.
  std::vector<std::string> names() const;
  /// Errors: InvalidArgument, unless i < size().
  const std::string& name(std::size_t i) const { return at(i).name; }
  /// Errors: as number.
  std::size_t index(std::string_view name) const;
  double number(std::size_t i) const { return at(i).value.number(at(i).name); }

  bool is_read_anew(std::string_view name) const { return at(name).value.is_read_anew(); }

  /// The same names with what their values are now.
  Logs values() const;
  /// The same by name, as Keras prints them.
  Logs sorted() const;
  /// True if this is a copy of `other` and neither was changed since.
  bool same_as(const Logs& other) const { return entries_ == other.entries_; }

 private:
  struct Entry {
    std::string name;
    LogValue value;
  };
  const Entry* find(std::string_view name) const;
  const Entry& at(std::string_view name) const;
  const Entry& at(std::size_t i) const;
  void put(Entry entry);

  std::shared_ptr<std::vector<Entry>> entries_;  // shared by copies until one is changed
};

}  // namespace cohort::keras
