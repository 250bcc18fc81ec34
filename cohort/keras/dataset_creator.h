// SPDX-License-Identifier: Apache-2.0
//
// DatasetCreator: data for fit that each worker makes for itself.
//
//   Dataset make_data(const InputContext& context, int64_t batch) {
//     return examples()
//         .shard(context.num_input_pipelines, context.input_pipeline_id)
//         .shuffle(10000)
//         .repeat()
//         .batch(context.get_per_replica_batch_size(batch));
//   }
//   COHORT_REGISTER_FUNCTION(make_data);   // at namespace scope: workers call it by its name
//
//   model.fit(keras::DatasetCreator(make_data, 64), {.epochs = 3, .steps_per_epoch = 200});
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/keras/fit_options.h"

namespace cohort::keras::internal {

/// How the dataset of a DatasetCreator is made, here and elsewhere.
struct DatasetRecipe {
  std::function<Dataset(const InputContext&)> make = {};
  cohort::internal::coordinator::AnyFunction function =
      nullptr;  ///< Null: one that has no name, so that no worker can call it.
  /// The arguments after the context.
  std::function<void(cohort::internal::coordinator::ValueWriter&)> write_arguments = {};
};

}  // namespace cohort::keras::internal

namespace cohort::keras {

/// A function that makes a dataset of batches. Each worker calls it, with the number of workers as
/// num_input_pipelines and its own as input_pipeline_id; nothing else is sharded.
/// On parameter servers it has to be registered (COHORT_REGISTER_FUNCTION). The chief calls it,
/// too, for the shapes, and workers do to evaluate: with one pipeline, of which each reads a part.
/// Value. TF: tf.keras.utils.experimental.DatasetCreator.
class DatasetCreator {
 public:
  /// Errors: InvalidArgument for no function.
  template <class... P>
  explicit DatasetCreator(Dataset (*fn)(const InputContext&, P...),
                          const std::type_identity_t<std::remove_cvref_t<P>>&... args) {
    cohort::internal::base::checked_function("[dataset_creator]", fn);
    auto given = std::make_shared<const std::tuple<std::remove_cvref_t<P>...>>(args...);
    recipe_ = std::make_shared<internal::DatasetRecipe>(internal::DatasetRecipe{
        .make =
            [fn, given](const InputContext& context) {
              return std::apply([&](const auto&... each) { return fn(context, each...); }, *given);
            },
        .function = reinterpret_cast<cohort::internal::coordinator::AnyFunction>(fn),
        .write_arguments =
            [given](cohort::internal::coordinator::ValueWriter& out) {
              std::apply(
                  [&](const auto&... each) {
                    (cohort::internal::coordinator::write_argument<P>(out, each), ...);
                  },
                  *given);
            }});
  }
  /// Of a lambda or other callable; not for a ParameterServerStrategy, which needs a function.
  template <class F>
  requires(!std::is_pointer_v<F> &&
           std::is_invocable_r_v<Dataset, const F&, const InputContext&>)  //
      explicit DatasetCreator(F fn)
      : recipe_(std::make_shared<internal::DatasetRecipe>(
            internal::DatasetRecipe{.make = std::move(fn)})) {}

 private:
  friend class DataSource;
  std::shared_ptr<const internal::DatasetRecipe> recipe_;
};

}  // namespace cohort::keras
