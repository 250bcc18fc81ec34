// SPDX-License-Identifier: Apache-2.0
//
// What fit, evaluate and predict are told.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/callbacks/callback.h"
#include "cohort/keras/verbose.h"
#include "cohort/runtime/tensor.h"
#include "cohort/strategy/distributed_dataset.h"

namespace cohort::keras::internal {
struct DatasetRecipe;
}

namespace cohort::keras {

class DatasetCreator;

/// Batches to read: a dataset of global batches, which the model's strategy splits over its
/// replicas, one that is distributed already, or a function by which each worker makes its own.
/// Shapes: elements (x), (x, y) or (x, y, sample_weight).
class DataSource {
 public:
  DataSource(Dataset global_batches) : data_(std::move(global_batches)) {}       // NOLINT: implicit
  DataSource(DistributedDataset distributed) : data_(std::move(distributed)) {}  // NOLINT
  DataSource(const DatasetCreator& creator);                                     // NOLINT

  const Dataset* dataset() const { return std::get_if<Dataset>(&data_); }
  const DistributedDataset* distributed() const { return std::get_if<DistributedDataset>(&data_); }
  /// Internal: null for data that is no DatasetCreator's.
  const internal::DatasetRecipe* creator() const {
    const auto* const recipe = std::get_if<Recipe>(&data_);
    return recipe == nullptr ? nullptr : recipe->get();
  }

 private:
  using Recipe = std::shared_ptr<const internal::DatasetRecipe>;
  std::variant<Dataset, DistributedDataset, Recipe> data_;
};

/// Rows in memory, one element for each input: no DataSource, although an Element may be a dataset.
template <class X>
concept ArrayInput =
    std::convertible_to<const X&, Element> && !std::convertible_to<const X&, DataSource>;

/// What fit validates on: nothing; batches to read, given as a DataSource or what makes one; or
/// rows in memory, {x_val, y_val} or {x_val, y_val, weights}, which fit makes batches of, in their
/// order.
class ValidationData {
 public:
  struct Rows {
    Element x = {}, y = {};
    Tensor sample_weight = {};
  };

  ValidationData() = default;
  template <std::convertible_to<DataSource> Batches>
  ValidationData(const Batches& batches) : batches_(batches) {}  // NOLINT: implicit
  /// Shapes: equal first dimension; weights [n], or what goes with the loss of each row.
  ValidationData(Element x, Element y, Tensor sample_weight = {})
      : rows_(Rows{std::move(x), std::move(y), std::move(sample_weight)}) {}

  bool has_value() const { return batches_ || rows_; }
  explicit operator bool() const { return has_value(); }
  const DataSource* batches() const { return batches_ ? &*batches_ : nullptr; }
  const Rows* rows() const { return rows_ ? &*rows_ : nullptr; }

 private:
  std::optional<DataSource> batches_;
  std::optional<Rows> rows_;
};

/// After which epochs fit validates. Epochs count from 1 here, as in Keras.
class ValidationFreq {
 public:
  /// After every n-th. Errors: InvalidArgument unless > 0.
  ValidationFreq(int every);  // NOLINT: implicit
  /// After these, `.validation_freq = {1, 5, 20}`, as far as fit comes; an empty list: never.
  /// Errors: InvalidArgument for numbers < 1.
  ValidationFreq(std::initializer_list<int> epochs) : ValidationFreq(std::vector(epochs)) {}
  ValidationFreq(std::vector<int> epochs);  // NOLINT: implicit

  /// `epoch` counts from 0.
  bool is_due_after(int epoch) const;
  std::string to_string() const;  ///< "every 2", "[1, 5, 20]"

 private:
  int every_ = 0;  // 0: what is listed
  std::vector<int> epochs_;
};

/// What Ctrl-C does to fit after the running step.
enum class OnInterrupt {
  kThrow,   ///< Throws Interrupted, so that what follows fit is not done with half a training.
  kReturn,  ///< Calls on_train_end and returns the history so far, with `interrupted` set.
};

/// Ctrl-C ended fit, evaluate or predict after the running step. Python: KeyboardInterrupt.
class Interrupted : public Error {
 public:
  explicit Interrupted(const std::string& text) : Error(ErrorCode::kCancelled, text) {}
};

struct FitOptions {
  int epochs = 1;  ///< The number of the last one: initial_epoch .. epochs - 1 run.
  /// Of all replicas together; 32 if not given. For arrays only: datasets are batched already.
  std::optional<int64_t> batch_size = {};
  ValidationData validation_data = {};  ///< Tensors, or batches.
  std::vector<Callback> callbacks = {};
  Verbose verbose = Verbose::kAuto;
  /// Unset: all data, every epoch from its start. Set: so many steps, and the next epoch goes on
  /// where this one stopped. If the data ends before, so does the epoch, with a warning, and the
  /// next one begins at the start.
  std::optional<int64_t> steps_per_epoch = {};
  std::optional<int64_t> validation_steps = {};  ///< From the start of the data each time.
  /// Of arrays to validate on, given or split off; batch_size if not given.
  std::optional<int64_t> validation_batch_size = {};
  double validation_split = 0;  ///< The last part of arrays, taken off before they are shuffled.
  ValidationFreq validation_freq = 1;  ///< After every n-th epoch, or after those of a list.
  int initial_epoch = 0;
  bool shuffle = true;  ///< Arrays, anew in each epoch.
  /// By class: a factor of the sample weights; 1 if not named. Labels [.., n > 1] count as one-hot.
  std::map<int64_t, double> class_weight = {};
  /// For arrays only. Shapes: [n], or what goes with the loss of each row.
  Tensor sample_weight = {};
  OnInterrupt on_interrupt = OnInterrupt::kThrow;
};

struct EvaluateOptions {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> steps = {};
  std::vector<Callback> callbacks = {};
  Verbose verbose = Verbose::kAuto;
  Tensor sample_weight = {};
};

struct PredictOptions {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> steps = {};
  std::vector<Callback> callbacks = {};
  Verbose verbose = Verbose::kAuto;
};

}  // namespace cohort::keras
