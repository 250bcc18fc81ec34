// SPDX-License-Identifier: Apache-2.0
//
// The batches of an epoch, split over the replicas, and how many there are; internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/keras/fit_options.h"
#include "cohort/strategy/strategy.h"

namespace cohort::keras::internal {

struct InputStreamOptions {
  const char* operation = "fit";      ///< For error texts.
  std::optional<int64_t> steps = {};  ///< Of an epoch; without: to the end of the data.
  int steps_per_execution = 1;
  bool restart = false;  ///< Every epoch starts a new pass, also with a fixed number of steps.
  bool contiguous_shards = false;    ///< As InputOptions of a dataset that is distributed here.
  bool creator_needs_steps = false;  ///< Of a DatasetCreator.
  bool elsewhere = false;  ///< What a DatasetCreator makes others read: here steps are counted.
};

/// Threads: one caller at a time.
class InputStream {
 public:
  /// Errors: InvalidArgument for data without end or of unknown size where steps are needed.
  InputStream(const Strategy& strategy, const keras::DataSource& data,
              const InputStreamOptions& options);

  /// A new pass; with a fixed number of steps and no `restart` the next part of the running one,
  /// unless the data was used up.
  void begin_epoch();
  /// nullopt at the end of the epoch.
  std::optional<PerReplica<Element>> next();

  /// How others make the data that they read; null: it is read here.
  const DatasetRecipe* elsewhere() const {
    return options_.elsewhere ? source_.creator() : nullptr;
  }
  /// Steps of an epoch at most.
  std::optional<int64_t> limit() const { return limit_; }
  /// Of a stream that others read: how many of `most` steps the epoch still has, which are taken.
  int64_t count(int64_t most);
  /// The same where only they know how many there are.
  void note_taken(int64_t steps) { taken_ += steps; }

  /// The position, for a stream of the same data in another process. Blocks: as Iterator::save.
  std::string save();
  /// Errors: InvalidArgument if another pipeline saved the state.
  void restore(std::string_view state);
  /// False where workers read batches of their own: the position of one is not another's.
  bool is_common() const { return data_.has_common_position(); }

  const ElementSpec& element_spec() const { return data_.element_spec(); }
  /// Of an epoch; nullopt until it is known.
  std::optional<int64_t> steps() const { return steps_; }
  /// As the options say.
  std::optional<int64_t> steps_asked() const { return options_.steps; }
  int64_t steps_taken() const { return taken_; }
  /// True if the data ended before the steps that were asked for in this epoch.
  bool ran_out() const { return ran_out_; }

 private:
  void begin_pass();
  /// At the end of the data, where more steps were asked for.
  std::optional<PerReplica<Element>> run_out();

  const InputStreamOptions options_;
  const keras::DataSource source_;
  const DistributedDataset data_;
  std::optional<int64_t> limit_;  // of an epoch
  std::optional<int64_t> steps_;
  std::optional<DistributedIterator> iterator_;
  int64_t taken_ = 0;          // of this epoch
  int64_t taken_in_pass_ = 0;  // since the iterator was made
  bool ran_out_ = false;       // in this epoch
  bool warned_ = false;
};

/// The positive number in an environment variable; nullopt if it is not set.
/// Errors: InvalidArgument for other text.
std::optional<int64_t> positive_from_environment(const char* variable);

}  // namespace cohort::keras::internal
