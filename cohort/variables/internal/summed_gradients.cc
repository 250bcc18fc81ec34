// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/summed_gradients.h"

#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "cohort/base/failpoint.h"

namespace cohort::internal::variables {
namespace {

Tensor no_gradient(const Variable& variable) {
  const Tensor& like = variable.impl().leaf_of(0).tensor;
  return at::zeros(like.sizes(), like.options().requires_grad(false));
}

}  // namespace

SummedGradients::SummedGradients(const UpdateLayout& layout,
                                 collectives::Communicator& communicator)
    : layout_(layout),
      communicator_(communicator),
      agreement_(layout, communicator.rank(), communicator.size()),
      shares_(layout, communicator.size(), std::numeric_limits<std::size_t>::max()),
      rows_(layout, shares_, communicator, /*everywhere=*/true),
      dense_(layout.variables().size()),
      post_(layout.variables().size()) {}

void SummedGradients::exchange(Posts posts, const update_rules::Rule& rule, double weight_decay) {
  rows_.begin(posts);
  agreement_.write(posts, rows_.counts(), {rule, weight_decay}, /*ahead=*/nullptr);
  agreement_.exchange(communicator_).wait();
  agreement_.conclude();
  rows_.exchange(posts, agreement_, std::vector<bool>(dense_.size(), false));
  post_ = Post(dense_.size());
  std::vector<collectives::Communicator::Pending> pending;
  std::vector<std::pair<Tensor, Tensor>> staged;
  for (std::size_t v = 0; v < dense_.size(); ++v) {
    if (!agreement_.is_present(v)) continue;
    if (rows_.takes(v)) {
      post_.rows.emplace(v, rows_.sum_of_workers(v));
      continue;
    }
    const Variable& variable = layout_.variables()[v];
    dense_[v] =
        layout_.pad(v, has_gradient(posts, v) ? sum_of(layout_, posts, v) : no_gradient(variable));
    post_.gradients[v] = static_cast<const std::byte*>(dense_[v].const_data_ptr());
    // Messages carry the host's memory.
    Tensor sent = dense_[v];
    if (!sent.is_cpu()) sent = staged.emplace_back(sent, sent.cpu()).second;
    pending.push_back(communicator_.start_all_reduce(
        {static_cast<std::byte*>(sent.mutable_data_ptr()), sent.nbytes()}, variable.dtype(),
        ReduceOp::kSum, {.tag = v}));
  }
  for (auto& one : pending) one.wait();
  for (const auto& [there, here] : staged) there.copy_(here);
  // What replicas do with the sums cannot fail any more: all workers make the step, or none.
  base::failpoint("update.before_commit");
  communicator_.commit();
  base::failpoint("update.after_commit");
}

}  // namespace cohort::internal::variables
