// SPDX-License-Identifier: Apache-2.0
//
// Makers of the nodes behind Dataset's verbs, but for those that read or write files; each checks
// its arguments when it is called.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal {

// Sources.
NodePtr make_tensors_node(Element element);
/// `arguments`, as DatasetNode's; without: a checksum of the rows.
NodePtr make_rows_node(std::string operation, std::shared_ptr<const RowSource> source,
                       std::string arguments = {}, ElementKind kind = ElementKind::kValues);
NodePtr make_counter_node(int64_t start, int64_t step);
NodePtr make_random_node(const RandomOptions& options);
NodePtr make_generator_node(std::function<std::function<std::optional<Element>()>()> make,
                            ElementSpec spec, int64_t cardinality);

// The same elements, in another number or order; these keep the index path open.
NodePtr make_take_node(NodePtr input, int64_t count);
NodePtr make_skip_node(NodePtr input, int64_t count);
NodePtr make_repeat_node(NodePtr input, int64_t count);
NodePtr make_shard_node(NodePtr input, int64_t num_shards, int64_t index);
NodePtr make_shuffle_node(NodePtr input, int64_t buffer_size, const ShuffleOptions& options);

// Batches.
NodePtr make_batch_node(NodePtr input, int64_t size, const BatchOptions& options);
NodePtr make_unbatch_node(NodePtr input);
NodePtr make_rebatch_node(NodePtr input, std::vector<int64_t> sizes, const BatchOptions& options);
NodePtr make_padded_batch_node(NodePtr input, int64_t size, std::vector<Shape> shapes,
                               const PaddedBatchOptions& options);
NodePtr make_ragged_batch_node(NodePtr input, int64_t size, const BatchOptions& options);
NodePtr make_window_node(NodePtr input, int64_t size, const WindowOptions& options);
/// The dataset of a window: elements in memory.
NodePtr make_elements_node(std::vector<Element> elements);
using ElementLength = std::function<int64_t(const Element&)>;
NodePtr make_bucket_node(NodePtr input, ElementLength length, const BucketOptions& options);

// Functions.
using ElementFunction = std::function<Element(const Element&)>;
using ElementPredicate = std::function<bool(const Element&)>;
NodePtr make_map_node(NodePtr input, ElementFunction fn, ElementSpec result, MapOptions options);
NodePtr make_filter_node(NodePtr input, ElementPredicate predicate);
NodePtr make_take_while_node(NodePtr input, ElementPredicate predicate);
NodePtr make_unique_node(NodePtr input);
using ElementKey = std::function<int64_t(const Element&)>;
/// Of all windows, or what a function says of a key.
struct WindowSize {
  int64_t of_all = 1;
  std::function<int64_t(int64_t)> of_key = {};
};
/// `reduce` makes the dataset of a full window and its key.
NodePtr make_group_node(NodePtr input, ElementKey key,
                        std::function<NodePtr(int64_t, const NodePtr&)> reduce, WindowSize size);
NodePtr make_resample_node(NodePtr input, ElementKey class_of, std::vector<double> target,
                           const ResampleOptions& options);
using ScanFunction = std::function<std::pair<Element, Element>(const Element&, const Element&)>;
NodePtr make_scan_node(NodePtr input, Element initial_state, ScanFunction fn);
/// `operation` is flat_map or interleave.
NodePtr make_interleave_node(std::string operation, NodePtr input, DatasetFunction fn,
                             InterleaveOptions options);

// Several inputs, or one more component.
NodePtr make_zip_node(std::vector<NodePtr> inputs, std::vector<std::string> names = {});
/// As zip; components of one window are the window again.
NodePtr make_tuple_node(std::vector<NodePtr> parts, const std::vector<std::string>& names);
NodePtr make_concatenate_node(NodePtr first, NodePtr second);
NodePtr make_sample_node(std::vector<NodePtr> inputs, std::vector<double> weights,
                         const SampleOptions& options);
NodePtr make_sample_node(std::vector<NodePtr> inputs, NodePtr weights,
                         const SampleOptions& options);
NodePtr make_choose_node(std::vector<NodePtr> inputs, NodePtr choices,
                         const ChooseOptions& options);
NodePtr make_enumerate_node(NodePtr input, int64_t start);

// Between the pipeline and its reader.
NodePtr make_cardinality_node(NodePtr input, int64_t cardinality);
NodePtr make_prefetch_node(NodePtr input, int64_t buffer_size);
NodePtr make_ignore_errors_node(NodePtr input, IgnoreErrorsOptions options);
NodePtr make_options_node(NodePtr input, DataOptions options);

}  // namespace cohort::internal
