// SPDX-License-Identifier: Apache-2.0
//
// Strategy::distribute_dataset and distribute_datasets_from_function.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/data/core/internal/rows/ragged.h"
#include "cohort/data/pipeline/auto_shard.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/replica_nodes.h"
#include "cohort/strategy/strategy.h"
#include "cohort/variables/parameter_store.h"

namespace cohort {
namespace {

using internal::data::NodePtr;
using internal::data::PieceChoice;
using internal::data::SplitPlan;
using internal::strategy::DistributedInput;

constexpr const char* kDistribute = "[strategy.distribute_dataset]";
constexpr const char* kFromFunction = "[strategy.distribute_datasets_from_function]";

void check_options(const char* operation, const InputOptions& options) {
  const bool per_replica = options.replication_mode == InputReplicationMode::kPerReplica;
  COHORT_CHECK_ARG(
      !options.place_dataset_on_device || (per_replica && !options.fetch_to_device.value_or(true)),
      operation,
      " expected place_dataset_on_device with replication mode kPerReplica and "
      "fetch_to_device = false, got ",
      per_replica ? "fetch_to_device" : "kPerWorker");
  COHORT_CHECK_ARG(options.per_replica_buffer_size >= 1, operation,
                   " expected a per_replica_buffer_size of 1 or more, got ",
                   options.per_replica_buffer_size);
}

void check_weights(const std::vector<double>& weights, int replicas) {
  if (weights.empty()) return;
  COHORT_CHECK_ARG(weights.size() == static_cast<std::size_t>(replicas), kDistribute, " expected ",
                   replicas, " replica_weights, one for each replica, got ", weights.size());
  double sum = 0;
  for (double weight : weights) {
    COHORT_CHECK_ARG(std::isfinite(weight) && weight > 0, kDistribute,
                     " expected replica_weights above 0, got ", bracketed(weights));
    sum += weight;
  }
  COHORT_CHECK_ARG(std::isfinite(sum), kDistribute,
                   " expected replica_weights with a finite sum, got ", bracketed(weights));
}

InputContext checked_context(const StrategyExtended& extended) {
  const InputContext context = extended.input_context();
  COHORT_CHECK_ARG(
      context.num_replicas_in_sync == context.num_input_pipelines * extended.num_local_replicas(),
      "[strategy] expected every worker to have the same number of replicas, got ",
      extended.num_local_replicas(), " here and ", context.num_replicas_in_sync, " on ",
      context.num_input_pipelines, " workers");
  return context;
}

// The first one that is not the host; null: all are.
const Device* device_to_upload(const StrategyExtended& extended) {
  for (const Device& device : *extended.device_list()) {
    if (device.kind() != DeviceKind::kCpu) return &device;
  }
  return nullptr;
}

Dataset read_ahead(const StrategyExtended& extended, const Dataset& dataset,
                   const InputOptions& options, int elements_of_a_step) {
  const Device* const device = device_to_upload(extended);
  const bool gains = device != nullptr || dataset.node()->gains_from_prefetch();
  if (!options.fetch_to_device.value_or(gains)) return dataset;
  const int64_t elements = int64_t{options.per_replica_buffer_size} * elements_of_a_step;
  if (device == nullptr) return dataset.prefetch(elements);
  return Dataset(internal::data::make_staging_node(dataset.node(), *device)).prefetch(elements);
}

void place_parts(DistributedInput& input, const StrategyExtended& extended,
                 const InputOptions& options) {
  input.devices = extended.device_list();
  input.uploads = device_to_upload(extended) != nullptr && options.fetch_to_device.value_or(true);
}

/// What this worker reads, and how its batches are cut.
struct Share {
  Dataset dataset;
  SplitPlan plan;
  AutoShardPolicy applied = AutoShardPolicy::kData;  ///< Of several workers.
};

Share share_of(const Dataset& dataset, SplitPlan plan, bool contiguous) {
  const AutoShardPolicy policy = dataset.options().auto_shard_policy;
  if (policy == AutoShardPolicy::kOff) plan.rule = internal::data::SplitRule::kRebatch;
  if (plan.pipelines == 1) {
    // Nothing to share, so no look at files either; but a hint has to be replaced.
    if (policy == AutoShardPolicy::kHint) return {dataset.auto_shard(1, 0, policy), plan};
    return {dataset, plan};
  }
  const bool weighted = !plan.weights.empty();
  if (policy != AutoShardPolicy::kData && !(policy == AutoShardPolicy::kAuto && weighted)) {
    AutoShardResult own = auto_shard_dataset(dataset, plan.pipelines, plan.index, policy);
    if (own.applied != AutoShardPolicy::kData) {
      COHORT_CHECK_ARG(!weighted, kDistribute,
                       " expected replica_weights of several workers with AutoShardPolicy::kData "
                       "or kAuto, got a dataset whose workers read batches of their own");
      return {std::move(own.dataset), plan, own.applied};
    }
  }
  plan.choice = contiguous ? PieceChoice::kConsecutive : PieceChoice::kEveryNth;
  return {dataset, plan};
}

/// Lets iterators agree on the end, where workers may have unlike numbers of steps. Also where the
/// data of this one never ends, for that of others may.
void agree_on_end(DistributedInput& input, const std::shared_ptr<StrategyExtended>& extended) {
  const bool ends = input.steps.cardinality() != kInfiniteCardinality;
  if (!ends && !extended->parameter_store()->reaches_workers()) return;
  input.any_worker = [extended](bool here) { return extended->any_worker(here); };
}

/// What ends one worker's reading ends what the others wait for, and names that worker.
void tell_errors(DistributedInput& input, const std::shared_ptr<StrategyExtended>& extended) {
  const bool has_others = extended->layout().workers() > 1;
  if (!has_others || !extended->parameter_store()->reaches_workers()) return;
  input.guarded = [extended](internal::base::FunctionRef<void()> body) {
    extended->reach("[distributed_iterator.next] ")
        .others->guard("distributed_iterator.next", body);
  };
}

/// "parts of 5 batches of 8 rows that all read", or "batches of its own, by files".
std::string sharing_text(const Share& share) {
  switch (share.applied) {
    case AutoShardPolicy::kFile:
      return "batches of its own, by files";
    case AutoShardPolicy::kHint:
      return "batches of its own, by a hint";
    case AutoShardPolicy::kOff:
      return "batches of its own (AutoShardPolicy kOff)";
    default:
      break;
  }
  const int64_t batches = share.dataset.cardinality();
  const int64_t rows = share.dataset.batch_rows();
  std::string text = "parts of batches that all read";
  if (rows != kUnknownDim) text += str_cat(", of ", rows, " rows");
  if (batches >= 0) text += str_cat(", ", batches, " of them");
  return batches == kInfiniteCardinality ? text + ", without end" : text;
}

/// Of several workers' numbers those that are known are one.
bool are_alike(const std::vector<int64_t>& numbers, int64_t unknown) {
  const auto known = [&](int64_t each) { return each != unknown; };
  const auto first = std::find_if(numbers.begin(), numbers.end(), known);
  return std::all_of(first, numbers.end(),
                     [&](int64_t each) { return !known(each) || each == *first; });
}

/// Workers have to share the data in one way; and what all read has to be the same, as far as they
/// know it ahead of reading.
void check_same_sharing(StrategyExtended& extended, const Share& share) {
  if (!extended.parameter_store()->reaches_workers()) return;
  internal::collectives::Communicator* const others = extended.reach(kDistribute).others;
  if (others == nullptr) return;
  constexpr const char* kOperation = "[strategy.distribute_dataset] ";
  const bool is_common = share.applied == AutoShardPolicy::kData;
  const std::array<int64_t, 3> here = {
      static_cast<int64_t>(share.applied),
      is_common ? share.dataset.cardinality() : kUnknownCardinality,
      is_common ? share.dataset.batch_rows() : kUnknownDim};
  const std::vector<std::byte> bytes =
      internal::collectives::gather_bytes(*others, kOperation, std::as_bytes(std::span(here)));
  std::array<std::vector<int64_t>, 3> of_all;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof here) {
    std::array<int64_t, 3> each = {};
    std::memcpy(each.data(), bytes.data() + at, sizeof each);
    for (std::size_t i = 0; i < each.size(); ++i) of_all[i].push_back(each[i]);
  }
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  if (are_alike(of_all[0], kNone) && are_alike(of_all[1], kUnknownCardinality) &&
      are_alike(of_all[2], kUnknownDim)) {
    return;
  }
  internal::collectives::check_same_on_workers(
      *others, kOperation,
      "data (all workers read the same, and take their parts of each batch, unless it is of files; "
      "where each makes its own: AutoShardPolicy::kOff, or distribute_datasets_from_function)",
      sharing_text(share));
}

/// "shuffle seed 5": of each node that draws.
void list_seeds(const internal::data::DatasetNode& node, std::vector<std::string>& seeds) {
  for (const NodePtr& input : node.inputs()) list_seeds(*input, seeds);
  const std::optional<uint64_t> seed = node.next_seed();
  if (seed) seeds.push_back(str_cat(node.operation(), " seed ", *seed));
}

/// Workers that take their parts of the same batches have to see them in the same order.
void check_same_order(StrategyExtended& extended, const Dataset& dataset) {
  std::vector<std::string> seeds;
  list_seeds(*dataset.node(), seeds);
  if (seeds.empty() || !extended.parameter_store()->reaches_workers()) return;
  internal::collectives::Communicator* const others = extended.reach(kDistribute).others;
  if (others == nullptr) return;
  internal::collectives::check_same_on_workers(
      *others, "[strategy.distribute_dataset] ",
      "order of the data (give each step a seed, call set_seed before, or make the strategy before "
      "the dataset: else each process draws seeds of its own)",
      join(seeds, ", "));
}

bool has_static_shapes(const ElementSpec& spec) {
  if (spec.is_unknown()) return false;
  const std::vector<TensorSpec> leaves = spec.flat();
  return std::all_of(leaves.begin(), leaves.end(), [](const TensorSpec& leaf) {
    return leaf.known_rank && std::count(leaf.shape.begin(), leaf.shape.end(), kUnknownDim) == 0;
  });
}

/// Rows of a step: of all datasets the same, or kUnknownDim.
int64_t rows_of_a_step(const std::vector<Dataset>& datasets, int replicas) {
  const int64_t rows = datasets.front().batch_rows();
  for (const Dataset& dataset : datasets) {
    if (dataset.batch_rows() != rows) return kUnknownDim;
  }
  return rows == kUnknownDim ? rows : rows * replicas;
}

std::vector<Dataset> made_by(const std::function<Dataset(const InputContext&)>& fn,
                             const InputContext& context, int replicas, bool per_replica) {
  if (!per_replica) return {fn(context)};
  std::vector<Dataset> datasets;
  for (int r = 0; r < replicas; ++r) {
    const int all = context.num_replicas_in_sync;
    datasets.push_back(fn({.num_input_pipelines = all,
                           .input_pipeline_id = context.input_pipeline_id * replicas + r,
                           .num_replicas_in_sync = all}));
  }
  return datasets;
}

}  // namespace

DistributedDataset Strategy::distribute_dataset(const Dataset& global_batches,
                                                const InputOptions& options) const {
  StrategyExtended& extended = use();
  check_options(kDistribute, options);
  if (options.replication_mode != InputReplicationMode::kPerWorker) {
    throw Unimplemented(
        str_cat(kDistribute,
                " expected replication mode kPerWorker, got kPerReplica: a dataset that one "
                "pipeline splits cannot be replicated; use distribute_datasets_from_function"));
  }
  const InputContext context = checked_context(extended);
  check_weights(options.replica_weights, context.num_replicas_in_sync);
  const Share share = share_of(global_batches,
                               {.replicas = extended.num_local_replicas(),
                                .pipelines = context.num_input_pipelines,
                                .index = context.input_pipeline_id,
                                .weights = options.replica_weights},
                               options.contiguous_shards);
  check_same_sharing(extended, share);
  if (share.plan.batch_is_step()) check_same_order(extended, share.dataset);
  const Dataset ahead = read_ahead(extended, share.dataset, options, 1);
  const bool is_plain = context.num_replicas_in_sync == 1;
  DistributedInput input{
      .steps = is_plain ? ahead : Dataset(make_split_node(ahead.node(), share.plan, kDistribute)),
      .is_plain = is_plain,
      .element_spec =
          is_plain ? ahead.element_spec() : piece_spec(ahead.element_spec(), share.plan),
      .replicas = share.plan.replicas,
      .global_batch_size = ahead.batch_rows()};
  if (!share.plan.batch_is_step()) agree_on_end(input, extended_);
  tell_errors(input, extended_);
  input.group = extended.parameter_store()->saving_group();
  input.is_common = share.plan.batch_is_step();
  const bool meets =
      context.num_input_pipelines > 1 && extended.parameter_store()->reaches_workers();
  if (input.is_common && meets) input.common_workers = extended_;
  place_parts(input, extended, options);
  return DistributedDataset(std::make_shared<const DistributedInput>(std::move(input)));
}

DistributedDataset Strategy::distribute_datasets_from_function(
    const std::function<Dataset(const InputContext&)>& fn, const InputOptions& options) const {
  StrategyExtended& extended = use();
  COHORT_CHECK_ARG(fn != nullptr, kFromFunction, " expected a function, got none");
  check_options(kFromFunction, options);
  COHORT_CHECK_ARG(options.replica_weights.empty() && !options.contiguous_shards, kFromFunction,
                   " expected neither replica_weights nor contiguous_shards, got one of them: the "
                   "function decides what every replica gets");
  const InputContext context = checked_context(extended);
  const int replicas = extended.num_local_replicas();
  const bool per_replica = options.replication_mode == InputReplicationMode::kPerReplica;
  const bool several_workers = context.num_input_pipelines > 1;
  const std::vector<Dataset> datasets = made_by(fn, context, replicas, per_replica);

  std::vector<NodePtr> inputs;
  ElementSpec part = datasets.front().element_spec();
  bool has_end = true;
  for (const Dataset& dataset : datasets) {
    const int of_a_step = per_replica ? 1 : replicas;
    inputs.push_back(read_ahead(extended, dataset, options, of_a_step).node());
    part = ElementSpec::common(kFromFunction, part, dataset.element_spec());
    has_end = has_end && dataset.cardinality() != kInfiniteCardinality;
  }
  // As TensorFlow: without, the steps end with the last one that has a batch for every replica.
  const bool fill = has_end && (several_workers || !has_static_shapes(part));
  const bool is_plain = replicas == 1;
  DistributedInput input{
      .steps = Dataset(is_plain ? inputs.front() : make_round_node(inputs, part, replicas, fill)),
      .is_plain = is_plain,
      .element_spec = several_workers ? internal::data::with_rows(part, kUnknownDim) : part,
      .replicas = replicas,
      .global_batch_size = rows_of_a_step(datasets, context.num_replicas_in_sync)};
  if (several_workers) agree_on_end(input, extended_);
  tell_errors(input, extended_);
  input.group = extended.parameter_store()->saving_group();
  place_parts(input, extended, options);
  return DistributedDataset(std::make_shared<const DistributedInput>(std::move(input)));
}

}  // namespace cohort
