// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/auto_shard.h"

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal::data {
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

NodePtr shard_elements(const NodePtr& node, Worker worker) {
  return Dataset(node).shard(worker.count, worker.index).node();
}

bool reads_files(const DatasetNode& node) {
  if (node.files() != nullptr || node.element_kind() == ElementKind::kFiles) return true;
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

/// The node without the shuffles below it, whose orders workers need not have in common; the last
/// of them goes to `shuffle`.
NodePtr without_shuffles(const NodePtr& node, NodePtr& shuffle) {
  const NodePtr rest = with_changed_inputs(
      node, [&](const NodePtr& input) { return without_shuffles(input, shuffle); });
  if (!node->only_shuffles()) return rest;
  shuffle = node;
  return rest->inputs().front();
}

/// The names of files, of which a worker gets its share before they are shuffled.
NodePtr shard_names(const NodePtr& node, Worker worker) {
  if (node->share_of() != ShareOf::kOutput) {
    return node->with_inputs({shard_names(node->inputs()[0], worker)});
  }
  const int64_t names = node->cardinality();
  if (names >= 0 && names < worker.count) throw TooFewFiles(names, worker.count);
  NodePtr shuffle;
  NodePtr ours = shard_elements(without_shuffles(node, shuffle), worker);
  return shuffle == nullptr ? ours : shuffle->with_inputs({std::move(ours)});
}

/// Every n-th of the files that the node itself reads.
NodePtr shard_files(const DatasetNode& node, Worker worker) {
  const std::vector<std::string>& files = *node.files();
  const auto count = static_cast<int64_t>(files.size());
  if (count < worker.count) throw TooFewFiles(count, worker.count);
  std::vector<std::string> ours;
  for (int64_t i = worker.index; i < count; i += worker.count) {
    ours.push_back(files[static_cast<std::size_t>(i)]);
  }
  return node.with_files(std::move(ours));
}

/// Null if an input does not read files.
NodePtr shard_by_files(const NodePtr& node, Worker worker) {
  if (node->files() != nullptr) return shard_files(*node, worker);
  if (node->element_kind() == ElementKind::kFiles) return shard_names(node, worker);
  if (node->dataset_function() != nullptr && function_reads_files(*node)) {
    return node->with_inputs({shard_names(node->inputs()[0], worker)});
  }
  bool all = !node->inputs().empty();
  NodePtr out = with_changed_inputs(node, [&](const NodePtr& input) {
    NodePtr files = all ? shard_by_files(input, worker) : nullptr;
    all = files != nullptr;
    return all ? files : input;
  });
  return all ? out : nullptr;
}

NodePtr shard_by_elements(const NodePtr& node, Worker worker) {
  if (node->share_of() == ShareOf::kInput) {
    return node->with_inputs({shard_by_elements(node->inputs()[0], worker)});
  }
  return shard_elements(node, worker);
}

NodePtr fill_hints(const NodePtr& node, Worker worker) {
  NodePtr filled =
      with_changed_inputs(node, [&](const NodePtr& input) { return fill_hints(input, worker); });
  if (!node->awaits_shard()) return filled;
  return shard_elements(filled->inputs()[0], worker);
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
}  // namespace cohort::internal::data

namespace cohort::data {

AutoShardResult auto_shard_dataset(const Dataset& dataset, int num_workers, int index,
                                   AutoShardPolicy policy) {
  COHORT_CHECK_ARG(num_workers >= 1 && index >= 0 && index < num_workers,
                   "[dataset.auto_shard] expected an index in [0, workers), got ", index, " of ",
                   num_workers);
  internal::data::Sharded sharded =
      internal::data::shard(dataset.node(), {num_workers, index}, policy);
  return {Dataset(std::move(sharded.node)), sharded.applied};
}

Dataset Dataset::auto_shard(int num_workers, int index, AutoShardPolicy policy) const {
  return auto_shard_dataset(*this, num_workers, index, policy).dataset;
}

}  // namespace cohort::data
