// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/input_stream.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/dataset_creator.h"

namespace cohort::keras::internal {

namespace {

DistributedDataset distribute(const Strategy& strategy, const keras::DataSource& data,
                              const InputStreamOptions& options) {
  if (const DatasetRecipe* const recipe = data.creator()) {
    COHORT_CHECK_ARG(options.steps || !options.creator_needs_steps, "[", options.operation,
                     "] with a DatasetCreator steps_per_epoch must be provided: nobody knows how "
                     "many batches all workers' datasets have together");
    if (options.elsewhere) return strategy.distribute_dataset(recipe->make({}));
    return strategy.distribute_datasets_from_function(recipe->make);
  }
  if (data.dataset() != nullptr) {
    return strategy.distribute_dataset(*data.dataset(),
                                       {.contiguous_shards = options.contiguous_shards});
  }
  COHORT_CHECK_ARG(options.steps || strategy.num_replicas_in_sync() == 1, "[", options.operation,
                   "] with a distributed dataset and several replicas, you must specify the number "
                   "of steps (steps_per_epoch, validation_steps, steps)");
  return *data.distributed();
}

}  // namespace

std::optional<int64_t> positive_from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  COHORT_CHECK_ARG(error == std::errc() && stop == end && value > 0,
                   "[environment] expected a number > 0 as ", variable, ", got \"", text, "\"");
  return value;
}

InputStream::InputStream(const Strategy& strategy, const keras::DataSource& data,
                         const InputStreamOptions& options)
    : options_(options),
      source_(data),
      data_(distribute(strategy, data, options)),
      limit_(options.steps) {
  COHORT_CHECK_ARG(!options.steps || *options.steps > 0, "[", options.operation,
                   "] expected a number of steps > 0, got ", *options.steps);
  if (const auto most = positive_from_environment("KERAS_MAX_STEPS_PER_EPOCH")) {
    limit_ = std::min(*most, limit_.value_or(*most));
  }
  const int64_t cardinality = data_.cardinality();
  COHORT_CHECK_ARG(limit_ || cardinality != kInfiniteCardinality, "[", options.operation,
                   "] the data has no end: you must specify the number of steps "
                   "(steps_per_epoch, validation_steps, steps)");
  COHORT_CHECK_ARG(limit_ || cardinality >= 0 || options.steps_per_execution == 1, "[",
                   options.operation, "] steps_per_execution = ", options.steps_per_execution,
                   " needs data of known size, or the number of steps");
  steps_ = limit_;
  if (cardinality >= 0 && !options.steps && is_common()) {
    steps_ = std::min(cardinality, limit_.value_or(cardinality));
  }
}

std::string InputStream::save() {
  cohort::internal::data::StateWriter out;
  out.put_int(taken_);
  out.put_int(taken_in_pass_);
  out.put_int(ran_out_ ? 1 : 0);
  out.put_int(steps_.value_or(-1));
  out.put_int(iterator_ ? 1 : 0);
  if (iterator_) out.put_text(iterator_->save());
  return std::move(out).take();
}

void InputStream::restore(std::string_view state) {
  cohort::internal::data::StateReader in(state);
  const int64_t taken = in.get_int(), taken_in_pass = in.get_int();
  const bool ran_out = in.get_flag();
  const int64_t steps = in.get_int();
  if (in.get_flag()) {
    iterator_.reset();  // ends its threads first
    iterator_.emplace(data_.make_iterator(in.get_text()));
  }
  in.expect_end();
  taken_ = taken;
  taken_in_pass_ = taken_in_pass;
  ran_out_ = ran_out;
  if (!steps_ && steps >= 0) steps_ = steps;
}

void InputStream::begin_epoch() {
  const bool ended = ran_out_;
  taken_ = 0;
  ran_out_ = false;
  if (elsewhere() != nullptr) return;
  // Where workers read batches of their own, they have unlike numbers of them, and learn together
  // that all have ended: in next().
  const bool used_up = is_common() && taken_in_pass_ == data_.cardinality();
  if (options_.steps && !options_.restart && iterator_ && !used_up && !ended) return;
  begin_pass();
}

void InputStream::begin_pass() {
  taken_in_pass_ = 0;
  iterator_.reset();  // ends the old pass's threads first
  iterator_.emplace(data_.make_iterator());
}

int64_t InputStream::count(int64_t most) {
  const int64_t left = limit_ ? *limit_ - taken_ : most;
  const int64_t counted = std::clamp<int64_t>(left, 0, most);
  taken_ += counted;
  return counted;
}

std::optional<PerReplica<Element>> InputStream::next() {
  if (limit_ && taken_ >= *limit_) return std::nullopt;
  if (ran_out_) return std::nullopt;
  std::optional<PerReplica<Element>> batch = iterator_->next();
  if (!batch && options_.steps) batch = run_out();
  if (batch) {
    ++taken_;
    ++taken_in_pass_;
  } else if (!options_.steps) {
    steps_ = taken_;
  }
  return batch;
}

std::optional<PerReplica<Element>> InputStream::run_out() {
  if (taken_ == 0 && taken_in_pass_ > 0) {
    // The last epoch took all there was, which data of unknown size does not say before.
    begin_pass();
    if (auto batch = iterator_->next()) return batch;
  }
  ran_out_ = true;
  if (!std::exchange(warned_, true)) {
    COHORT_LOG(kWarning, "[", options_.operation, "] your input ran out of data after ", taken_,
               " of ", *limit_,
               " steps; the epoch ends, the next one begins with the data anew. "
               "Repeat the dataset, or ask for fewer steps");
  }
  return std::nullopt;
}

}  // namespace cohort::keras::internal
