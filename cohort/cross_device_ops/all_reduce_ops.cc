// SPDX-License-Identifier: Apache-2.0
//
// The cross-device ops that reduce between devices instead of on one.
#include <ATen/ops/empty.h>

#include <map>

#include "cohort/base/check.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/cross_device_ops/packing.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/device_backend.h"

namespace cohort {
namespace {

int checked_packs(const char* operation, int num_packs) {
  COHORT_CHECK_ARG(num_packs >= 0, operation, "expected num_packs to be 0 or more, got ",
                   num_packs);
  return num_packs;
}

// Which devices reduce a pack: a main one in each half of them.
struct Halves {
  Halves(std::size_t pack, std::size_t devices) : split(devices / 2) {
    const std::size_t main = pack % devices;
    const std::size_t second = devices - split;
    first_main = main < split ? main : (split == 0 ? 0 : (main - split) % split);
    second_main = main < split ? split + main % second : main;
  }
  std::size_t split;  // the first half ends here; empty for one device
  std::size_t first_main;
  std::size_t second_main;
};

// One value of a batch: rows of each replica, and the results for each destination.
struct Item {
  std::vector<Tensor> rows;
  std::vector<Tensor> results;
  std::vector<const void*> sources;
  std::vector<void*> outs;
};

// Passes go over addresses: those of one memory, which has the values and gets the results.
bool is_in_one_place(const PerReplica<Gradient>& value, const Destinations& to) {
  const c10::Device place = value[0].dense().device();
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Device& target = to.devices()[i];
    const bool is_there = internal::runtime::device_backend(target).place(target) == place;
    if (!is_there || value[i].dense().device() != place) return false;
  }
  return true;
}

Item make_item(const PerReplica<Gradient>& value) {
  Item item;
  for (const Gradient& g : value) {
    item.rows.push_back(internal::reductions::in_a_row(g.dense()));
    item.results.push_back(at::empty(g.dense().sizes(), g.dense().options().requires_grad(false)));
    item.sources.push_back(item.rows.back().const_data_ptr());
    item.outs.push_back(item.results.back().mutable_data_ptr());
  }
  return item;
}

void reduce_segment(ReduceOp op, const Item& item, const PackSegment& segment, Halves halves) {
  const std::size_t count = item.sources.size();
  const std::span<const void* const> sources = item.sources;
  internal::reductions::RangeReduction range{.op = op == ReduceOp::kMean ? ReduceOp::kSum : op,
                                             .dtype = item.rows[0].scalar_type(),
                                             .sources = sources.subspan(halves.split),
                                             .outs = std::span(&item.outs[halves.second_main], 1),
                                             .begin = segment.begin,
                                             .end = segment.end,
                                             .memory = item.rows[0].device().type()};
  internal::reductions::reduce_range(range);
  std::vector<const void*> mains = {item.outs[halves.second_main]};
  if (halves.split > 0) {
    range.sources = sources.first(halves.split);
    range.outs = std::span(&item.outs[halves.first_main], 1);
    internal::reductions::reduce_range(range);
    mains.insert(mains.begin(), item.outs[halves.first_main]);
  }
  // The mains exchange their sums, and copy the result to their halves.
  range.op = op;
  range.sources = mains;
  range.outs = item.outs;
  range.divisor = static_cast<double>(count);
  internal::reductions::reduce_range(range);
}

void reduce_packs(ReduceOp op, const std::vector<Item*>& items, int num_packs) {
  std::vector<int64_t> sizes;
  for (const Item* item : items) sizes.push_back(item->rows[0].numel());
  const Packer packer = Packer::concat_and_split(sizes, num_packs);
  for (std::size_t pack = 0; pack < packer.packs().size(); ++pack) {
    for (const PackSegment& segment : packer.packs()[pack]) {
      const Item& item = *items[segment.tensor];
      reduce_segment(op, item, segment, Halves(pack, item.sources.size()));
    }
  }
}

}  // namespace

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(int num_packs)
    : num_packs_(checked_packs("[hierarchical_copy_all_reduce] ", num_packs)) {}

Mirrored<Gradient> HierarchicalCopyAllReduce::do_reduce(ReduceOp op,
                                                        const PerReplica<Gradient>& value,
                                                        const Destinations& to,
                                                        const CommunicationOptions& options) {
  const ReduceItem item{value, to};
  return do_batch_reduce(op, std::span(&item, 1), options)[0];
}

std::vector<Mirrored<Gradient>> HierarchicalCopyAllReduce::do_batch_reduce(
    ReduceOp op, std::span<const ReduceItem> items, const CommunicationOptions& options) {
  std::vector<Mirrored<Gradient>> results(items.size());
  std::map<std::size_t, Item> dense;
  // Packs hold one dtype, from one number of devices.
  std::map<std::pair<DType, std::size_t>, std::vector<Item*>> groups;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [value, to] = items[i];
    const bool is_all = !value[0].is_sparse() && to.devices().size() == value.size();
    if (!is_all || !is_in_one_place(value, to)) {
      results[i] = others_.reduce(op, value, to, options);
      continue;
    }
    Item& item = dense.emplace(i, make_item(value)).first->second;
    groups[{item.rows[0].scalar_type(), value.size()}].push_back(&item);
  }
  for (const auto& [kind, group] : groups) reduce_packs(op, group, num_packs_);
  for (const auto& [i, item] : dense) {
    results[i] = Mirrored<Gradient>({item.results.begin(), item.results.end()});
  }
  return results;
}

NcclAllReduce::NcclAllReduce(int num_packs) { checked_packs("[nccl_all_reduce] ", num_packs); }

Mirrored<Gradient> NcclAllReduce::do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                                            const Destinations& to,
                                            const CommunicationOptions& options) {
  if (value[0].is_sparse()) return others_.reduce(op, value, to, options);
  throw Unimplemented(
      str_cat("[nccl_all_reduce] expected values on CUDA devices and a build with NCCL, got values "
              "on ",
              value[0].dense().device().str(),
              " in a build without: use ReductionToOneDevice or HierarchicalCopyAllReduce"));
}

}  // namespace cohort
