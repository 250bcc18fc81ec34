// SPDX-License-Identifier: Apache-2.0
//
// Input pipelines: a chain of descriptions, read by iterators.
//
//   const auto scale = [](const Tensor& x, const Tensor& y) { return std::tuple(x / 255., y); };
//   Dataset train = Dataset::from_tensor_slices({images, labels})
//                       .shuffle(60000).batch(128).map(scale).prefetch();
//   for (auto& [x, y] : train) { ... }         // elements of two tensors; others: train.as<...>()
//   for (const Element& e : train) { ... }
#pragma once

#include <functional>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/base/handle.h"
#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/function_adapter.h"
#include "cohort/data/core/internal/range_iterator.h"
#include "cohort/data/core/options.h"
#include "cohort/data/core/pipeline_report.h"
#include "cohort/runtime/device.h"

namespace cohort {
class Trackable;
namespace internal::data {
class DatasetNode;
}
}  // namespace cohort

namespace cohort::data {

/// State of one pass over a dataset; movable. It keeps what it reads from alive.
/// Errors: next throws what the pipeline throws; after a map function's error the next call goes
/// on with the next element.
/// Threads: one caller at a time, but for cancel. Background threads of the pipeline end with the
/// iterator.
class Iterator {
 public:
  Iterator(Iterator&&) noexcept = default;
  Iterator& operator=(Iterator&&) noexcept = default;

  /// nullopt at the end, and ever after.
  std::optional<Element> next();

  /// The position, with shuffle buffers, elements read ahead and seeds: an iterator that restores
  /// it goes on with the element that next would have returned, also in another process. State
  /// that functions keep themselves is not part of it; a generator is called again from its start.
  /// Blocks: until background threads have ended what they compute.
  /// Cost: row numbers for rows in memory; else the buffered elements, and all of a cache's.
  /// TF: checkpointing of tf.data iterators.
  std::string save();
  /// Goes on from there. Errors: InvalidArgument if another pipeline saved the state, DataLoss if
  /// bytes of it changed; the position is then what it was.
  void restore(std::string_view state);

  /// Ends the pass from another thread: a next that waits there for background threads throws
  /// Cancelled, and so does every later one. A function that is being called runs to its end.
  /// Threads: thread-safe.
  void cancel();

  /// Where the time went so far. Errors: FailedPrecondition without DataOptions::report.
  PipelineReport report() const;

  /// The position, for a Checkpoint; it keeps no iterator alive.
  std::shared_ptr<Trackable> trackable() const;

 private:
  friend class Dataset;
  explicit Iterator(std::shared_ptr<const internal::data::DatasetNode> node);

  void start();

  class State;
  std::shared_ptr<State> state_;
};

/// Immutable description of a pipeline; copying is free. Nothing is read before an iterator asks.
/// Every iterator is a new pass from the start.
/// Errors: surface when the pipeline is built if they can, else from next().
/// Threads: thread-safe; functions of map and filter run on the thread that reads, or on
/// background threads below prefetch and with parallel_calls.
/// TF: tf.data.Dataset.
class Dataset {
 public:
  /// One element, as it is.
  static Dataset from_tensors(Element element);
  /// Slices axis 0: one element a row.
  /// Shapes: equal first dimension everywhere. Errors: InvalidArgument otherwise.
  /// Owns: shares the tensors; do not change them while the dataset is in use.
  /// Cost: followed by shuffle, repeat, take, skip, shard and batch, only row numbers move, and a
  /// batch is gathered straight out of the tensors.
  static Dataset from_tensor_slices(Element element);
  /// int64 scalars 0, 1, ..., end - 1.
  static Dataset range(int64_t end);
  static Dataset range(int64_t begin, int64_t end, int64_t step = 1);
  /// int64 scalars start, start + step, ... without end; they wrap.
  /// TF: tf.data.experimental.Counter.
  static Dataset counter(int64_t start = 0, int64_t step = 1);
  /// int64 scalars without end, each number in [0, 2^32) as likely as the others.
  static Dataset random(RandomOptions options = {});
  /// Elements that a function makes, converted as map's results are. The function returns
  ///   a range:                    it is called once a pass, for all elements;
  ///   a function of optional<T>:  it is called once a pass, the result for each until nullopt;
  ///   std::optional<T>:           a copy of it is called for each element of a pass until nullopt.
  /// Errors: next() throws InvalidArgument for an element that does not match `spec` (without: what
  /// the type says).
  template <class F>
  static Dataset from_generator(F fn, std::optional<ElementSpec> spec = {});
  /// The elements of any std::ranges::input_range, converted as map's results are.
  /// Owns: a copy of the range; a view must not outlive what it views. Errors: FailedPrecondition
  /// for a second pass over a range that can be read only once.
  template <std::ranges::input_range R>
  static Dataset from_range(R range, std::optional<ElementSpec> spec = {});
  /// The lines of the files, without their ends (LF or CR LF).
  /// Errors: next() throws Error kNotFound for a file that is not there, DataLoss for damaged
  /// compressed data; the call after that goes on with the next file.
  static Dataset text_lines(std::vector<std::string> files, FileOptions options = {});
  /// The records of TFRecord files as strings.
  /// Errors: next() throws DataLoss that names file and byte for a truncated record or a wrong
  /// checksum; it goes on with the next record if only the data is wrong, else with the next file.
  static Dataset tf_records(std::vector<std::string> files, FileOptions options = {});
  /// Records of `record_bytes` bytes each, as strings. Errors: as tf_records.
  static Dataset fixed_length_records(std::vector<std::string> files, int64_t record_bytes,
                                      FixedLengthOptions options = {});
  /// The records of CSV files: a component for each column, with names if the columns have them.
  /// Errors: InvalidArgument at once for options that do not fit; next() throws DataLoss that names
  /// file and byte for a record with another number of fields or a field of another type, and goes
  /// on with the next record.
  static Dataset csv(std::vector<std::string> files, CsvOptions options);
  /// The names of the files that match, with *, ? and [...]; they are looked up now.
  /// Order: shuffled unless the options say otherwise; workers that share files need one seed.
  /// Errors: InvalidArgument if there are none.
  static Dataset list_files(const std::string& pattern, ListFilesOptions options = {});
  /// Each element is the next one of an input that is drawn by the weights (equal without).
  /// Errors: InvalidArgument if elements differ in structure, dtype or rank, or weights do not fit.
  static Dataset sample_from_datasets(std::vector<Dataset> datasets,
                                      std::vector<double> weights = {}, SampleOptions options = {});
  /// As above; `weights` has those of each draw, a tensor [datasets], and ends the dataset.
  static Dataset sample_from_datasets(std::vector<Dataset> datasets, const Dataset& weights,
                                      SampleOptions options = {});
  /// Each element is the next one of the input whose number (int64[]) `choices` gives.
  static Dataset choose_from_datasets(std::vector<Dataset> datasets, const Dataset& choices,
                                      ChooseOptions options = {});
  /// Tuples of one element of each; ends with the shortest.
  static Dataset zip(std::vector<Dataset> parts);
  /// With names. For other nests, Element::dataset() of a nest of datasets.
  static Dataset zip(std::vector<std::pair<std::string, Dataset>> parts);

  /// fn takes (const Tensor&, ...), one parameter per component, or (const Struct&), or
  /// (const Element&), or (const Dataset&) where the element is one, and returns a tensor, number,
  /// string, Element, Dataset, or tuple, vector, map or struct of these. It records no gradients.
  /// Errors: InvalidArgument at once if the element has another number of components; next() throws
  /// what fn throws, with the element's number and the step of the pipeline before the text.
  /// Threads: fn is called by several threads at once if options.parallel_calls is above 1.
  template <class F>
  Dataset map(F fn, MapOptions options = {}) const;
  /// Keeps elements for which the predicate (parameters as in map) is true: a bool or a 0-D tensor.
  template <class F>
  Dataset filter(F predicate) const;

  /// The elements before the first one for which the predicate is false. Errors: as filter's.
  template <class F>
  Dataset take_while(F predicate) const;
  /// Each element the first time it comes. Cost: keeps the bytes of all that came.
  Dataset unique() const;
  /// A pass over the elements: fn(state, components...) returns the next state; returns the last.
  ///   int64_t sum = Dataset::range(5).reduce(int64_t{0}, [](int64_t s, int64_t x) { return s + x;
  ///   });
  template <class State, class F>
  State reduce(State initial, F fn) const;
  /// Elements of equal key(element) in windows of `window_size`, and the elements of
  /// reduce(key, window) for each: when it is full, and at the end for the others, by their keys.
  /// `key` takes what map's function does.
  template <class K>
  Dataset group_by_window(K key, std::function<Dataset(int64_t, const Dataset&)> reduce,
                          int64_t window_size) const;
  /// window_size(key) for each window.
  template <class K>
  Dataset group_by_window(K key, std::function<Dataset(int64_t, const Dataset&)> reduce,
                          std::function<int64_t(int64_t)> window_size) const;
  /// (class, element) for a part of the elements, so that classes come as often as `target_dist`
  /// says. class_function takes what map's function does and returns an integer below the number of
  /// classes. Leaves out elements at random, and no more than that takes.
  /// Errors: InvalidArgument for negative or no parts, and from next() for another class.
  /// TF: Dataset.rejection_resample, which may also repeat elements.
  template <class F>
  Dataset rejection_resample(F class_function, std::vector<double> target_dist,
                             ResampleOptions options = {}) const;

  /// fn takes what map's does and returns a Dataset; their elements come one after the other.
  template <class F>
  Dataset flat_map(F fn, std::optional<ElementSpec> spec = {}) const;
  /// As flat_map, but options.cycle_length datasets are read round-robin.
  template <class F>
  Dataset interleave(F fn, InterleaveOptions options = {}) const;
  /// fn(state, element) returns the next state and an element of the result.
  /// Errors: as map's.
  Dataset scan(Element initial_state,
               std::function<std::pair<Element, Element>(const Element&, const Element&)> fn) const;

  /// Stacks `size` elements; the last batch may be smaller.
  /// Shapes: equal within a batch. Errors: InvalidArgument from next() otherwise.
  Dataset batch(int64_t size, BatchOptions options = {}) const;
  /// As batch, for shapes that differ: pads at the ends to `shapes` (one for each component, all
  /// unknown without), unknown dimensions to the longest of the batch.
  /// Errors: InvalidArgument if an element does not fit, or has another rank.
  Dataset padded_batch(int64_t size, std::vector<Shape> shapes = {},
                       PaddedBatchOptions options = {}) const;
  /// As batch for components whose shape the spec knows, and for scalars; others become ragged ones
  /// (Element::ragged): in every dimension up to the last unknown one, or in the first where
  /// nothing is known. Under a strategy they are split by rows like others. Errors: InvalidArgument
  /// from next() if elements differ in what follows. TF: Dataset.ragged_batch.
  Dataset ragged_batch(int64_t size, BatchOptions options = {}) const;
  /// Padded batches of elements of like lengths; `length` takes what map's function does and
  /// returns an integer. Order: a batch comes when its bucket is full, the rest at the end.
  template <class F>
  Dataset bucket_by_sequence_length(F length, BucketOptions options) const;
  /// Rows of batches, one element each.
  Dataset unbatch() const;
  /// The rows of batches in batches of other sizes, which are cycled through; batches of size 0 are
  /// empty. As unbatch().batch(size), without taking rows apart.
  /// Shapes: batches [n, ...] to [size, ...]. Errors: InvalidArgument from next() for elements
  /// without equal first dimensions. TF: Dataset.rebatch.
  Dataset rebatch(std::vector<int64_t> sizes, BatchOptions options = {}) const;
  Dataset rebatch(int64_t size, BatchOptions options = {}) const;
  /// Datasets of `size` elements each, the last ones of fewer: for flat_map, whose function says
  /// what becomes of a window.
  ///   ds.window(5, {.shift = 1, .drop_remainder = true})
  ///       .flat_map([](const Dataset& w) { return w.batch(5); })
  /// Shapes: a dataset for each component, in the element's structure; a function of one
  /// (const Dataset&) gets them zipped. TF: Dataset.window.
  Dataset window(int64_t size, WindowOptions options = {}) const;
  /// Fills a buffer, then hands out a random element of it and puts the next one in its place. A
  /// buffer of at least the cardinality gives every permutation the same probability.
  Dataset shuffle(int64_t buffer_size, ShuffleOptions options = {}) const;
  /// `count` passes one after the other; below 0: without end (an empty dataset stays empty).
  Dataset repeat(int64_t count = kInfiniteCardinality) const;
  /// The first `count` elements; below 0: all. Errors of the input do not count.
  Dataset take(int64_t count) const;
  /// All but the first `count` elements; below 0: none.
  Dataset skip(int64_t count) const;
  /// Every element whose position % num_shards == index. kShardHint for num_shards: nothing can be
  /// read before auto_shard with kHint has replaced it.
  Dataset shard(int64_t num_shards, int64_t index) const;
  /// Errors: InvalidArgument if the elements have another structure, dtype or rank.
  Dataset concatenate(const Dataset& other) const;
  /// Keeps the elements of the first complete pass in memory, or in `file`, and reads them from
  /// there afterwards. A file serves later processes too, is there when the pass is complete and
  /// not before, and has a checksum for every element (`store/internal/element_file.h` says the
  /// format). Errors: next() throws Error kAlreadyExists while another pass fills the file,
  /// DataLoss with file and byte if it is damaged; iterators of another pipeline over the file
  /// (other sizes, files, seeds or shards, too): InvalidArgument.
  Dataset cache(const std::string& file = "") const;
  /// Writes the elements of the first complete pass to a folder in `path`, and reads them from
  /// there afterwards, in other processes too: without running what came before. Another pipeline
  /// (other steps, sizes, seeds, files, rows in memory) gets another folder; options.version stands
  /// for what cannot be seen: functions, and how files are parsed.
  /// Order: that of the first pass, unless the options have functions.
  /// Errors: next() throws DataLoss with file and byte for damaged files.
  /// Threads: passes and processes may write at once; the first to be complete wins.
  /// TF: Dataset.snapshot.
  Dataset snapshot(const std::string& path, SnapshotOptions options = {}) const;
  /// Writes a pass to a new folder, which load reads.
  /// Errors: Error kAlreadyExists if there is something; what the pass throws.
  void save(const std::string& path, SaveOptions options = {}) const;
  /// The elements that save wrote; `reader` as SnapshotOptions::reader.
  /// Errors: Error kNotFound if nothing is there.
  static Dataset load(const std::string& path, std::function<Dataset(const Dataset&)> reader = {});
  /// The only element. Errors: InvalidArgument if there is none, or another one; what a pass
  /// throws.
  Element get_single_element() const;
  /// States how many elements there are where cardinality() cannot know it, which then returns it.
  /// Errors: next() throws FailedPrecondition if a pass has more elements, or fewer.
  Dataset assert_cardinality(int64_t cardinality) const;
  /// A background thread reads ahead by `buffer_size` elements; 0: no thread; kAutotune:
  /// from 2 on as many as bridge the gaps of an uneven pipeline.
  Dataset prefetch(int64_t buffer_size = kAutotune) const;
  /// The same, into a GPU's memory: the thread puts elements into pinned memory, and copies run
  /// while the GPU computes. Strings and rows of different lengths stay on the host. The last
  /// step of a pipeline; distributed datasets do so by themselves. Errors: InvalidArgument for size
  /// below 1; Unimplemented where no GPU can be used. TF: tf.data.experimental.prefetch_to_device.
  Dataset prefetch_to_device(const Device& device, int64_t buffer_size = kAutotune) const;
  /// Leaves out elements that cannot be read or computed, but passes on Cancelled and Internal.
  Dataset ignore_errors(IgnoreErrorsOptions options = {}) const;
  /// (start, e0), (start + 1, e1), ...
  Dataset enumerate(int64_t start = 0) const;
  /// Replaces the options of the whole pipeline up to here.
  Dataset with_options(DataOptions options) const;
  /// What worker `index` of `num_workers` reads; `cohort/data/pipeline/auto_shard.h` says more.
  Dataset auto_shard(int num_workers, int index,
                     AutoShardPolicy policy = AutoShardPolicy::kAuto) const;
  /// f(*this), for pipelines' own steps in a chain.
  template <class F>
  Dataset apply(F f) const {
    return internal::base::checked_function("[dataset.apply]", f)(*this);
  }

  /// Structure, dtypes and shapes as far as known. A map function's result is known by its C++ type
  /// only, unless MapOptions::spec says more.
  const ElementSpec& element_spec() const;
  /// Elements of a pass, kInfiniteCardinality or kUnknownCardinality. Cost: reads nothing.
  int64_t cardinality() const;
  /// Rows of a full batch if the pipeline ends with batches, looking back through steps that keep
  /// elements as they are; else kUnknownDim.
  int64_t batch_rows() const;
  DataOptions options() const;

  Iterator make_iterator() const;
  /// An iterator that goes on where the one that saved `state` was. Errors: as Iterator::restore.
  Iterator make_iterator(std::string_view state) const;
  internal::data::RangeIterator<Element, Iterator> begin() const;
  std::default_sentinel_t end() const { return {}; }
  /// The elements as Element::as<T...>() gives them, e.g. for
  /// (auto& [x, y, name] : train.as<Tensor, Tensor, std::string>()).
  /// Errors: the pass throws InvalidArgument for elements of another structure.
  template <class... T>
  auto as() const;

  /// Internal.
  explicit Dataset(std::shared_ptr<const internal::data::DatasetNode> node);
  const std::shared_ptr<const internal::data::DatasetNode>& node(
      const char* operation = __builtin_FUNCTION()) const {
    return internal::base::held(node_, "Dataset", operation);
  }

 private:
  Dataset do_map(std::function<Element(const Element&)> fn, ElementSpec result,
                 const MapOptions& options) const;
  Dataset do_interleave(
      std::string operation,
      std::function<std::shared_ptr<const internal::data::DatasetNode>(const Element&)> fn,
      InterleaveOptions options) const;
  Dataset do_bucket(std::function<int64_t(const Element&)> length,
                    const BucketOptions& options) const;
  /// A typed callable as a function of elements.
  template <class Result, class F>
  std::function<Result(const Element&)> adapted(const char* operation, F fn) const;
  Dataset do_filter(std::function<bool(const Element&)> predicate) const;
  Dataset do_take_while(std::function<bool(const Element&)> predicate) const;
  Dataset do_group(std::function<int64_t(const Element&)> key,
                   std::function<Dataset(int64_t, const Dataset&)> reduce, int64_t window_size,
                   std::function<int64_t(int64_t)> window_size_of_key) const;
  Dataset do_resample(std::function<int64_t(const Element&)> class_of,
                      std::vector<double> target_dist, const ResampleOptions& options) const;
  static Dataset do_generate(std::function<std::function<std::optional<Element>()>()> make,
                             ElementSpec spec, int64_t cardinality);
  /// element_spec() for the verb that asks.
  const ElementSpec& spec_for(const char* operation) const;
  /// A typed predicate as a function of elements.
  template <class F>
  std::function<bool(const Element&)> adapted_predicate(const char* operation, F predicate) const;

  std::shared_ptr<const internal::data::DatasetNode> node_;
};

/// "<Dataset range.shuffle.batch of int64[?]>": what happens in it, and its elements.
std::ostream& operator<<(std::ostream& out, const Dataset& dataset);

}  // namespace cohort::data

#include "cohort/data/internal/dataset_templates.h"  // IWYU pragma: export
