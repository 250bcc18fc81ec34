// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/auto_shard.h"

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/data/formats/internal/file_nodes.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal {
namespace {

struct Worker {
  int count = 1;
  int index = 0;
};

/// There are files, but not one for each worker.
class TooFewFiles : public InvalidArgument {
 public:
  TooFewFiles(int64_t files, int workers)
      : InvalidArgument(str_cat("[dataset.auto_shard] expected at least one file for each of ",
                                workers, " workers to share by files, got ", files)) {}
};

/// Names of files that are elements each.
bool names_files(const DatasetNode& node) { return node.operation() == kImageFilesOperation; }

bool reads_files(const DatasetNode& node) {
  if (dynamic_cast<const FilesNode*>(&node) != nullptr || names_files(node)) return true;
  return std::any_of(node.inputs().begin(), node.inputs().end(),
                     [](const NodePtr& input) { return reads_files(*input); });
}

/// Whether the datasets that the node's function makes read files: its first one tells.
bool function_reads_files(const DatasetNode& node) {
  const DatasetNode& input = *node.inputs().front();
  StateWriter before;
  input.save_shared(before);
  Element first;
  const bool any = input.make_stream()->next(first);
  const std::string shared = std::move(before).take();
  StateReader in(shared);
  input.restore_shared(in);  // Looking must not change the orders of the passes to come.
  return any && reads_files(*(*node.dataset_function())(first));
}

/// Whether a share of the node's elements is the node over a share of its input's: of a repeat, so
/// that a worker reads the same files in every pass.
bool keeps_elements(const DatasetNode& node) {
  const std::string& op = node.operation();
  return op == "shuffle" || op == "prefetch" || op == "with_options" || op == "cache" ||
         op == "repeat";
}

/// The node without the shuffles below it, whose orders workers need not have in common; the last
/// of them goes to `shuffle`.
NodePtr without_shuffles(const NodePtr& node, NodePtr& shuffle) {
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) inputs.push_back(without_shuffles(input, shuffle));
  if (node->operation() == "shuffle") {
    shuffle = node;
    return inputs.front();
  }
  return inputs == node->inputs() ? node : node->with_inputs(std::move(inputs));
}

/// The names of files, of which a worker gets its share before they are shuffled.
NodePtr shard_names(const NodePtr& node, Worker worker) {
  if (keeps_elements(*node)) return node->with_inputs({shard_names(node->inputs()[0], worker)});
  const int64_t names = node->cardinality();
  if (names >= 0 && names < worker.count) throw TooFewFiles(names, worker.count);
  NodePtr shuffle;
  NodePtr ours = make_shard_node(without_shuffles(node, shuffle), worker.count, worker.index);
  return shuffle == nullptr ? ours : shuffle->with_inputs({std::move(ours)});
}

/// Null if an input does not read files.
NodePtr shard_by_files(const NodePtr& node, Worker worker) {
  if (const auto* files = dynamic_cast<const FilesNode*>(node.get())) {
    const auto count = static_cast<int64_t>(files->files().size());
    if (count < worker.count) throw TooFewFiles(count, worker.count);
    std::vector<std::string> ours;
    for (int64_t i = worker.index; i < count; i += worker.count) {
      ours.push_back(files->files()[static_cast<std::size_t>(i)]);
    }
    return files->with_files(std::move(ours));
  }
  if (names_files(*node)) return shard_names(node, worker);
  if (node->dataset_function() != nullptr && function_reads_files(*node)) {
    return node->with_inputs({shard_names(node->inputs()[0], worker)});
  }
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) {
    inputs.push_back(shard_by_files(input, worker));
    if (inputs.back() == nullptr) return nullptr;
  }
  return inputs.empty() ? nullptr : node->with_inputs(std::move(inputs));
}

NodePtr shard_by_elements(const NodePtr& node, Worker worker) {
  const std::string& op = node->operation();
  if (op == "prefetch" || op == "with_options") {
    return node->with_inputs({shard_by_elements(node->inputs()[0], worker)});
  }
  return make_shard_node(node, worker.count, worker.index);
}

NodePtr fill_hints(const NodePtr& node, Worker worker) {
  if (node->inputs().empty()) return node;
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) inputs.push_back(fill_hints(input, worker));
  if (node->operation() == kShardHintOperation) {
    return make_shard_node(inputs[0], worker.count, worker.index);
  }
  return inputs == node->inputs() ? node : node->with_inputs(std::move(inputs));
}

struct Sharded {
  NodePtr node;
  AutoShardPolicy applied;
};

Sharded shard_automatically(const NodePtr& node, Worker worker) {
  try {
    if (NodePtr files = shard_by_files(node, worker)) {
      return {std::move(files), AutoShardPolicy::kFile};
    }
  } catch (const TooFewFiles& e) {
    COHORT_LOG(kWarning, e.what(), "; every worker reads all files and takes its elements");
  }
  return {shard_by_elements(node, worker), AutoShardPolicy::kData};
}

Sharded shard(const NodePtr& node, Worker worker, AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::kOff:
      return {node, policy};
    case AutoShardPolicy::kFile: {
      NodePtr files = shard_by_files(node, worker);
      if (files == nullptr) {
        throw Error(ErrorCode::kNotFound,
                    str_cat("[dataset.auto_shard] expected a pipeline that reads files to share "
                            "it by files, got ",
                            node->signature()));
      }
      return {std::move(files), policy};
    }
    case AutoShardPolicy::kData:
      return {shard_by_elements(node, worker), policy};
    case AutoShardPolicy::kHint:
      return {fill_hints(node, worker), policy};
    default:
      return shard_automatically(node, worker);
  }
}

}  // namespace
}  // namespace cohort::internal

namespace cohort::data {

AutoShardResult auto_shard_dataset(const Dataset& dataset, int num_workers, int index,
                                   AutoShardPolicy policy) {
  COHORT_CHECK_ARG(num_workers >= 1 && index >= 0 && index < num_workers,
                   "[dataset.auto_shard] expected an index in [0, workers), got ", index, " of ",
                   num_workers);
  internal::Sharded sharded = internal::shard(dataset.node(), {num_workers, index}, policy);
  return {Dataset(std::move(sharded.node)), sharded.applied};
}

Dataset Dataset::auto_shard(int num_workers, int index, AutoShardPolicy policy) const {
  return auto_shard_dataset(*this, num_workers, index, policy).dataset;
}

}  // namespace cohort::data
