// SPDX-License-Identifier: Apache-2.0
//
// A dataset is a chain of nodes (descriptions), a pass over it a chain of streams (state).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/rows/row_source.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/data/core/options.h"

namespace cohort::internal::data {

struct Stage;

/// State of one pass. Threads: one caller at a time.
template <class T>
class Stream {
 public:
  virtual ~Stream() = default;
  /// False at the end, and ever after.
  virtual bool next(T& out) = 0;
  /// Writes the position: what restore needs on a fresh stream of the same node to go on from
  /// here. Blocks: until background threads of the stream rest.
  virtual void save(StateWriter& out) = 0;
  /// Only before the first next. Errors: InvalidArgument for another node's state.
  virtual void restore(StateReader& in) = 0;
  /// Background threads begin to read ahead; without it they do at the first next.
  virtual void start() {}
  /// What a report counts it under; null without a report.
  virtual Stage* stage() const { return nullptr; }
};
using ElementStream = Stream<Element>;
using RowStream = Stream<int64_t>;  ///< Row numbers of a RowSource.

class DatasetNode;
using NodePtr = std::shared_ptr<const DatasetNode>;
using DatasetFunction = std::function<NodePtr(const Element&)>;

/// What the elements of a node stand for.
enum class ElementKind {
  kValues,
  kFiles,   ///< Names of files, which a later step reads.
  kWindow,  ///< The elements of a window: what a dataset in an element holds.
};

/// Where auto_shard may take a worker's share of a node's elements.
enum class ShareOf {
  kOutput,         ///< Behind the node: every n-th element.
  kInput,          ///< Before it: the node over a share of its input gives the same elements.
  kInputAnyOrder,  ///< As kInput, if the workers need not agree on an order.
};

/// One step of a pipeline. Threads: immutable, but for counters of passes.
class DatasetNode : public std::enable_shared_from_this<DatasetNode> {
 public:
  DatasetNode(std::string operation, ElementSpec spec, std::vector<NodePtr> inputs);
  virtual ~DatasetNode() = default;

  /// "[dataset.map]", as error texts begin.
  std::string tag() const { return "[dataset." + operation_ + "]"; }
  const std::string& operation() const { return operation_; }
  /// "range.shuffle.map": where in the pipeline this node is.
  std::string path() const;
  /// Every node of the pipeline, as "zip(range.shuffle,range)": which states fit.
  virtual std::string signature() const;
  /// "<Dataset range.shuffle.batch of int64[?]>".
  std::string to_string() const;
  /// What tells this node from others of its operation, as text: sizes, seeds, names of files; not
  /// its functions.
  virtual std::string arguments() const { return {}; }
  const ElementSpec& spec() const { return spec_; }
  const std::vector<NodePtr>& inputs() const { return inputs_; }
  /// False where a node only says something of its input: reports see the input in its place.
  virtual bool is_step() const { return true; }

  /// Elements of a pass, kInfiniteCardinality or kUnknownCardinality.
  virtual int64_t cardinality() const = 0;
  virtual ElementKind element_kind() const { return ElementKind::kValues; }
  /// Rows of a full batch: looks back through nodes that keep elements as they are to a batch;
  /// kUnknownDim where there is none.
  virtual int64_t batch_rows() const;
  /// What with_options set last.
  virtual DataOptions options() const;

  /// To read a node, call open_stream.
  virtual std::unique_ptr<ElementStream> make_stream() const = 0;
  /// What batch(size) over this node reads, with the same positions, where that is made without an
  /// element for each row. Null elsewhere.
  virtual std::unique_ptr<ElementStream> make_batch_stream(int64_t size, bool drop_remainder) const;
  /// False where reading ahead gains nothing: elements are rows in memory that their reader
  /// gathers, or another thread has read ahead already.
  virtual bool gains_from_prefetch() const { return true; }

  /// The index path: where elements are rows of this source, in some order, make_row_stream says
  /// which. Null elsewhere.
  virtual std::shared_ptr<const RowSource> row_source() const { return nullptr; }
  virtual std::unique_ptr<RowStream> make_row_stream() const;

  /// What passes share (the orders of shuffles), here and in the inputs: part of the position of a
  /// stream that has still to open a pass over this node.
  virtual void save_shared(StateWriter& out) const;
  virtual void restore_shared(StateReader& in) const;
  /// Writes the node as part of a position that has it in an element, for StateReader.
  /// Errors: Unimplemented, but for windows and files of elements.
  virtual void save_as_element(StateWriter& out) const;

  /// The same step over other inputs, with passes of its own. Nodes without inputs return
  /// themselves.
  virtual NodePtr with_inputs(std::vector<NodePtr> inputs) const;
  /// What makes a dataset of every element, in flat_map and interleave; null elsewhere.
  virtual const DatasetFunction* dataset_function() const { return nullptr; }
  /// The files that the node itself reads; null where it reads none.
  virtual const std::vector<std::string>* files() const { return nullptr; }
  /// The same node over other files. Only where files() is not null.
  virtual NodePtr with_files(std::vector<std::string> files) const;
  virtual ShareOf share_of() const { return ShareOf::kOutput; }
  /// Whether the node changes nothing but the order.
  virtual bool only_shuffles() const { return false; }
  /// Whether auto_shard with kHint puts its shard in the node's place.
  virtual bool awaits_shard() const { return false; }
  /// Of a node whose passes draw: the seed of the next one and those behind it.
  virtual std::optional<uint64_t> next_seed() const { return {}; }

 protected:
  const DatasetNode& input() const { return *inputs_.front(); }

 private:
  const std::string operation_;
  const ElementSpec spec_;
  const std::vector<NodePtr> inputs_;
};

/// `node` over change(input) for each of its inputs; `node` itself where none is another one.
template <class Change>
NodePtr with_changed_inputs(const NodePtr& node, const Change& change) {
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) inputs.push_back(change(input));
  return inputs == node->inputs() ? node : node->with_inputs(std::move(inputs));
}

/// Of counts, at most the greatest int64: a pass that long never ends.
inline int64_t saturated_sum(int64_t a, int64_t b) {
  return __builtin_add_overflow(a, b, &a) ? std::numeric_limits<int64_t>::max() : a;
}
inline int64_t saturated_product(int64_t a, int64_t b) {
  return __builtin_mul_overflow(a, b, &a) ? std::numeric_limits<int64_t>::max() : a;
}

/// make_stream, observed where the pass of this thread makes a report.
std::unique_ptr<ElementStream> open_element_stream(const DatasetNode& node);

/// A new pass over a node, in elements or in row numbers.
template <class T>
std::unique_ptr<Stream<T>> open_stream(const DatasetNode& node) {
  if constexpr (std::is_same_v<T, Element>) {
    return open_element_stream(node);
  } else {
    return node.make_row_stream();
  }
}

/// Rows of `source` in the order of `order`, one element each.
std::unique_ptr<ElementStream> stream_rows(std::shared_ptr<const RowSource> source,
                                           std::unique_ptr<RowStream> order);

}  // namespace cohort::internal::data
