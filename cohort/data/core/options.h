// SPDX-License-Identifier: Apache-2.0
//
// Options of datasets. Members are only ever appended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/data/core/element_spec.h"

namespace cohort::data {

class Dataset;
class Element;

/// How workers share a dataset: see auto_shard_dataset. TF: tf.data.experimental.AutoShardPolicy.
enum class AutoShardPolicy { kOff = -1, kAuto = 0, kFile = 1, kData = 2, kHint = 3 };

inline constexpr int kAutotune = -1;  ///< Tuned while it runs. TF: tf.data.AUTOTUNE.
/// For Dataset::shard(kShardHint, 0): marks the step that AutoShardPolicy::kHint replaces.
inline constexpr int64_t kShardHint = -1;
/// Cardinality of a dataset that repeats for ever.
inline constexpr int64_t kInfiniteCardinality = -1;
/// Cardinality of a dataset that has to be read to know.
inline constexpr int64_t kUnknownCardinality = -2;

struct DataOptions {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::kAuto;
  /// False: map and interleave with parallel_calls deliver what is ready first, unless their own
  /// options say otherwise.
  bool deterministic = true;
  /// Iterators count and time every step; `cohort/data/core/pipeline_report.h`. Costs about 0.1 us
  /// for every element of every step.
  bool report = false;
  /// At most so many background threads for all steps with kAutotune together. kAutotune: as many
  /// as keep the usable cores computing, and more than cores only where functions wait.
  int threads = kAutotune;
  int64_t autotune_memory_bytes = int64_t{256} << 20;  ///< Most for a prefetch with kAutotune.
};

enum class Compression {
  kAuto,  ///< By the end of the file's name: .gz is gzip, .zlib and .zz are zlib.
  kNone,
  kZlib,
  kGzip,  ///< Also several members one after the other.
};

struct FileOptions {
  Compression compression = Compression::kAuto;
  int64_t buffer_bytes = 256 * 1024;
  /// Files that are read at once, on a thread each; their records are interleaved one by one.
  /// 1: one file after the other. kAutotune: 16 interleaved, on one thread per usable core at most.
  /// TF: num_parallel_reads.
  int parallel_reads = 1;
  bool deterministic = true;  ///< False permits another order of parallel reads.
};

struct FixedLengthOptions {
  int64_t header_bytes = 0;  ///< Left out at the start of every file.
  int64_t footer_bytes = 0;  ///< Left out at its end.
  FileOptions file = {};
};

enum class CsvType { kString, kFloat32, kFloat64, kInt32, kInt64 };

struct CsvColumn {
  CsvType type = CsvType::kFloat32;
  std::string name = {};
  /// For fields that are empty or the na_value, as they would stand in the file; without: an error.
  std::optional<std::string> default_value = {};
};

struct CsvOptions {
  std::vector<CsvColumn> columns;
  /// The first record of every file has names: named columns are found by them, unnamed ones by
  /// their position, and the record is left out.
  bool header = false;
  /// Positions of the columns in the file, from 0; without: the first ones, and no others exist.
  std::vector<int64_t> select_columns = {};
  char delimiter = ',';
  bool quotes = true;  ///< Fields may stand in "..." with delimiters, line ends and "" for one ".
  std::string na_value = {};
  FileOptions file = {};
};

struct ListFilesOptions {
  bool shuffle = true;  ///< False: in the order of their names.
  std::optional<uint64_t> seed = {};
  bool reshuffle_each_iteration = true;
};

struct IgnoreErrorsOptions {
  bool log_warning = true;  ///< One line at the end of a pass that left something out.
  /// Goes up with every element left out, in all passes; may be read at any time.
  std::shared_ptr<std::atomic<int64_t>> skipped = {};
  int64_t max_errors = -1;  ///< Errors that a pass leaves out before it throws; below 0: no limit.
};

struct ShuffleOptions {
  /// Without: derived from set_seed if that was called, else another order in every process.
  std::optional<uint64_t> seed = {};
  /// Another order in every pass; each pass's order still follows from the seed.
  bool reshuffle_each_iteration = true;
};

struct RandomOptions {
  std::optional<uint64_t> seed = {};  ///< Without: as ShuffleOptions::seed.
  /// Other numbers in every pass; each pass's still follow from the seed.
  bool rerandomize_each_iteration = false;
};

struct ResampleOptions {
  /// The part of each class among the input's elements; without: estimated from those read so far.
  std::vector<double> initial_dist = {};
  std::optional<uint64_t> seed = {};  ///< Without: as ShuffleOptions::seed.
};

struct BatchOptions {
  bool drop_remainder = false;  ///< Leaves out a last batch with fewer elements.
};

struct WindowOptions {
  std::optional<int64_t> shift = {};  ///< From one window's first element to the next one's: size.
  int64_t stride = 1;                 ///< From one element of a window to the next.
  bool drop_remainder = false;        ///< Leaves out windows of fewer elements, at the end.
};

struct PaddedBatchOptions {
  /// One for each component, or one for all; without: 0.
  std::vector<double> padding_values = {};
  bool drop_remainder = false;
};

struct BucketOptions {
  /// Bucket i has lengths from boundary i - 1 on and below boundary i; the last one the rest.
  std::vector<int64_t> bucket_boundaries;
  std::vector<int64_t> bucket_batch_sizes;  ///< One more than boundaries.
  std::vector<Shape> padded_shapes = {};    ///< As for padded_batch.
  std::vector<double> padding_values = {};
  /// Pads unknown dimensions to the bucket's boundary - 1; nothing may reach the last boundary.
  bool pad_to_bucket_boundary = false;
  bool drop_remainder = false;
  /// Batches are stacked without padding: the elements of one must have equal shapes.
  bool no_padding = false;
};

struct SaveOptions {
  Compression compression = Compression::kNone;  ///< Or kGzip.
  int64_t shards = 4;                            ///< Files.
  /// The file of an element, below `shards`; without: one after the other.
  std::function<int64_t(const Element&)> shard_function = {};
};

struct SnapshotOptions {
  Compression compression = Compression::kNone;  ///< Or kGzip.
  int64_t shards = 4;                            ///< Files.
  /// The file of an element, below `shards`; without: one after the other.
  std::function<int64_t(const Element&)> shard_function = {};
  /// Gets a dataset of datasets, one for each file, and says in which order they are read.
  std::function<Dataset(const Dataset&)> reader = {};
  /// Change it when a function of the pipeline changes: each version has a snapshot of its own.
  std::string version = {};
};

struct InterleaveOptions {
  int cycle_length = 4;      ///< Datasets that are read round-robin.
  int64_t block_length = 1;  ///< Elements of one of them before the next one.
  /// Background threads that open the datasets and read them ahead; 1: the thread that reads.
  /// kAutotune: from 1 on as many as make the reader wait less.
  int parallel_calls = 1;
  /// False: a dataset with no element ready is skipped; without: DataOptions::deterministic.
  std::optional<bool> deterministic = {};
  /// Of the elements, checked against every dataset; the function's type does not say it.
  std::optional<ElementSpec> spec = {};
};

struct SampleOptions {
  std::optional<uint64_t> seed = {};  ///< Without: as ShuffleOptions::seed.
  bool stop_on_empty_dataset = false;
  /// Draws anew in every pass; each pass's choices still follow from the seed.
  bool rerandomize_each_iteration = false;
};

struct ChooseOptions {
  bool stop_on_empty_dataset = true;
};

struct MapOptions {
  /// Calls that may run at once, on background threads; 1: on the thread that reads.
  /// kAutotune: from 1 on as many as make the reader wait less, measured while it reads; calls
  /// that compute get at most the usable cores, calls that wait more, and light ones stay at 1.
  int parallel_calls = 1;
  /// False: results come as they become ready; without: DataOptions::deterministic says.
  std::optional<bool> deterministic = {};
  /// What the function returns, where its types do not say; checked against every element.
  std::optional<ElementSpec> spec = {};
};

}  // namespace cohort::data
