// SPDX-License-Identifier: Apache-2.0
//
// Dataset's verbs: each makes the node of that name.
#include "cohort/base/check.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats/csv/internal/csv_node.h"
#include "cohort/data/formats/fixed_length/internal/fixed_length_node.h"
#include "cohort/data/formats/internal/file_nodes.h"
#include "cohort/data/formats/text/internal/text_node.h"
#include "cohort/data/formats/tf_record/internal/tf_record_reader.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/store/internal/store_nodes.h"

namespace cohort::data {

namespace {

void check_tensors(const char* operation, const Element& element) {
  if (element.uncomputed() != nullptr) return;
  if (element.is_tensor()) internal::check_defined(operation, element.tensor());
  if (!element.is_tuple()) return;
  for (std::size_t i = 0; i < element.size(); ++i) check_tensors(operation, element[i]);
}

}  // namespace

Dataset Dataset::from_tensors(Element element) {
  check_tensors("[dataset.from_tensors] ", element);
  return Dataset(internal::make_tensors_node(std::move(element)));
}

Dataset Dataset::from_tensor_slices(Element element) {
  check_tensors("[dataset.from_tensor_slices] ", element);
  return Dataset(
      internal::make_rows_node("from_tensor_slices", internal::make_tensor_rows(element)));
}

Dataset Dataset::range(int64_t end) { return range(0, end); }

Dataset Dataset::range(int64_t begin, int64_t end, int64_t step) {
  return Dataset(internal::make_rows_node("range", internal::make_range_rows(begin, end, step),
                                          str_cat(begin, " to ", end, " by ", step)));
}

Dataset Dataset::counter(int64_t start, int64_t step) {
  return Dataset(internal::make_counter_node(start, step));
}

Dataset Dataset::random(RandomOptions options) {
  return Dataset(internal::make_random_node(options));
}

Dataset Dataset::do_generate(std::function<std::function<std::optional<Element>()>()> make,
                             ElementSpec spec, int64_t cardinality) {
  return Dataset(internal::make_generator_node(std::move(make), std::move(spec), cardinality));
}

Dataset Dataset::text_lines(std::vector<std::string> files, FileOptions options) {
  return Dataset(internal::make_text_lines_node(std::move(files), options));
}

Dataset Dataset::tf_records(std::vector<std::string> files, FileOptions options) {
  return Dataset(internal::make_tf_records_node(std::move(files), options));
}

Dataset Dataset::fixed_length_records(std::vector<std::string> files, int64_t record_bytes,
                                      FixedLengthOptions options) {
  return Dataset(internal::make_fixed_length_node(std::move(files), record_bytes, options));
}

Dataset Dataset::csv(std::vector<std::string> files, CsvOptions options) {
  return Dataset(internal::make_csv_node(std::move(files), options));
}

Dataset Dataset::list_files(const std::string& pattern, ListFilesOptions options) {
  return Dataset(internal::make_list_files_node(pattern, options));
}

namespace {

std::vector<internal::NodePtr> nodes_of(const std::vector<Dataset>& datasets,
                                        const char* operation = __builtin_FUNCTION()) {
  std::vector<internal::NodePtr> nodes;
  for (const Dataset& dataset : datasets) nodes.push_back(dataset.node(operation));
  return nodes;
}

}  // namespace

Dataset Dataset::sample_from_datasets(std::vector<Dataset> datasets, std::vector<double> weights,
                                      SampleOptions options) {
  return Dataset(internal::make_sample_node(nodes_of(datasets), std::move(weights), options));
}

Dataset Dataset::sample_from_datasets(std::vector<Dataset> datasets, const Dataset& weights,
                                      SampleOptions options) {
  return Dataset(internal::make_sample_node(nodes_of(datasets), weights.node(), options));
}

Dataset Dataset::choose_from_datasets(std::vector<Dataset> datasets, const Dataset& choices,
                                      ChooseOptions options) {
  return Dataset(internal::make_choose_node(nodes_of(datasets), choices.node(), options));
}

Dataset Dataset::zip(std::vector<Dataset> parts) {
  return Dataset(internal::make_zip_node(nodes_of(parts)));
}

Dataset Dataset::zip(std::vector<std::pair<std::string, Dataset>> parts) {
  std::vector<internal::NodePtr> nodes;
  std::vector<std::string> names;
  for (auto& [name, part] : parts) {
    nodes.push_back(part.node());
    names.push_back(std::move(name));
  }
  return Dataset(internal::make_zip_node(std::move(nodes), std::move(names)));
}

Dataset Dataset::do_map(std::function<Element(const Element&)> fn, ElementSpec result,
                        const MapOptions& options) const {
  return Dataset(internal::make_map_node(node(), std::move(fn), std::move(result), options));
}

Dataset Dataset::do_filter(std::function<bool(const Element&)> predicate) const {
  return Dataset(internal::make_filter_node(node(), std::move(predicate)));
}

Dataset Dataset::do_take_while(std::function<bool(const Element&)> predicate) const {
  return Dataset(internal::make_take_while_node(node(), std::move(predicate)));
}

Dataset Dataset::do_group(std::function<int64_t(const Element&)> key,
                          std::function<Dataset(int64_t, const Dataset&)> reduce,
                          int64_t window_size,
                          std::function<int64_t(int64_t)> window_size_of_key) const {
  static constexpr const char* kOperation = "[dataset.group_by_window] ";
  COHORT_CHECK_ARG(reduce != nullptr, kOperation, "expected a function, got an empty one");
  auto reduce_node = [reduce = std::move(reduce)](int64_t k, const internal::NodePtr& window) {
    return reduce(k, Dataset(window)).node();
  };
  return Dataset(internal::make_group_node(node(), std::move(key), std::move(reduce_node),
                                           {window_size, std::move(window_size_of_key)}));
}

Dataset Dataset::do_resample(std::function<int64_t(const Element&)> class_of,
                             std::vector<double> target_dist,
                             const ResampleOptions& options) const {
  return Dataset(
      internal::make_resample_node(node(), std::move(class_of), std::move(target_dist), options));
}

Dataset Dataset::do_interleave(
    std::string operation,
    std::function<std::shared_ptr<const internal::DatasetNode>(const Element&)> fn,
    InterleaveOptions options) const {
  return Dataset(internal::make_interleave_node(std::move(operation), node(), std::move(fn),
                                                std::move(options)));
}

Dataset Dataset::do_bucket(std::function<int64_t(const Element&)> length,
                           const BucketOptions& options) const {
  return Dataset(internal::make_bucket_node(node(), std::move(length), options));
}

Dataset Dataset::scan(
    Element initial_state,
    std::function<std::pair<Element, Element>(const Element&, const Element&)> fn) const {
  COHORT_CHECK_ARG(fn != nullptr, "[dataset.scan] expected a function, got an empty one");
  return Dataset(internal::make_scan_node(node(), std::move(initial_state), std::move(fn)));
}

Dataset Dataset::padded_batch(int64_t size, std::vector<Shape> shapes,
                              PaddedBatchOptions options) const {
  return Dataset(internal::make_padded_batch_node(node(), size, std::move(shapes), options));
}
Dataset Dataset::ragged_batch(int64_t size, BatchOptions options) const {
  return Dataset(internal::make_ragged_batch_node(node(), size, options));
}
Dataset Dataset::batch(int64_t size, BatchOptions options) const {
  return Dataset(internal::make_batch_node(node(), size, options));
}
Dataset Dataset::rebatch(std::vector<int64_t> sizes, BatchOptions options) const {
  return Dataset(internal::make_rebatch_node(node(), std::move(sizes), options));
}
Dataset Dataset::rebatch(int64_t size, BatchOptions options) const {
  return rebatch(std::vector<int64_t>{size}, options);
}
Dataset Dataset::unique() const { return Dataset(internal::make_unique_node(node())); }
Dataset Dataset::unbatch() const { return Dataset(internal::make_unbatch_node(node())); }
Dataset Dataset::window(int64_t size, WindowOptions options) const {
  return Dataset(internal::make_window_node(node(), size, options));
}
Dataset Dataset::shuffle(int64_t buffer_size, ShuffleOptions options) const {
  return Dataset(internal::make_shuffle_node(node(), buffer_size, options));
}
Dataset Dataset::repeat(int64_t count) const {
  return Dataset(internal::make_repeat_node(node(), count));
}
Dataset Dataset::take(int64_t count) const {
  return Dataset(internal::make_take_node(node(), count));
}
Dataset Dataset::skip(int64_t count) const {
  return Dataset(internal::make_skip_node(node(), count));
}
Dataset Dataset::shard(int64_t num_shards, int64_t index) const {
  return Dataset(internal::make_shard_node(node(), num_shards, index));
}
Dataset Dataset::concatenate(const Dataset& other) const {
  return Dataset(internal::make_concatenate_node(node(), other.node()));
}
Dataset Dataset::cache(const std::string& file) const {
  return Dataset(internal::make_cache_node(node(), file));
}
Dataset Dataset::snapshot(const std::string& path, SnapshotOptions options) const {
  return Dataset(internal::make_snapshot_node(node(), path, std::move(options)));
}
void Dataset::save(const std::string& path, SaveOptions options) const {
  internal::save_elements(*this, path, options);
}
Dataset Dataset::load(const std::string& path, std::function<Dataset(const Dataset&)> reader) {
  return Dataset(internal::make_load_node(path, reader));
}
Dataset Dataset::assert_cardinality(int64_t cardinality) const {
  return Dataset(internal::make_cardinality_node(node(), cardinality));
}
Dataset Dataset::prefetch(int64_t buffer_size) const {
  return Dataset(internal::make_prefetch_node(node(), buffer_size));
}
Dataset Dataset::ignore_errors(IgnoreErrorsOptions options) const {
  return Dataset(internal::make_ignore_errors_node(node(), std::move(options)));
}
Dataset Dataset::enumerate(int64_t start) const {
  return Dataset(internal::make_enumerate_node(node(), start));
}
Dataset Dataset::with_options(DataOptions options) const {
  return Dataset(internal::make_options_node(node(), options));
}

}  // namespace cohort::data
