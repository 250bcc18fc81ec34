// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/fused_update.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/internal/update_layout.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal {

using update_rules::Rule;

namespace {

/// What a replica shows to the others at the merge point; a line of its own.
struct alignas(64) Post {
  uint64_t stamp = 0;                       // the replica's epoch behind the meeting
  bool full = false;                        // has a gradient for every variable
  std::vector<const std::byte*> gradients;  // per variable; null: none
};

ReplicaGroup* meeting_group() {
  ReplicaGroup* group = current_replica_group();
  return group != nullptr && group->size() > 1 ? group : nullptr;
}

}  // namespace

class FusedUpdate::State {
 public:
  State(std::vector<Variable> variables, FusedUpdateOptions options)
      : layout(std::move(variables), options), options_(std::move(options)) {
    for (std::size_t r = 0; r < 2 * static_cast<std::size_t>(layout.replicas()); ++r) {
      posts_.emplace_back();
      posts_.back().gradients.resize(layout.variables().size());
    }
  }

  void apply(const Gradients& gradients, const Rule& rule, double weight_decay);
  void apply_reduced(const Gradients& gradients, const Rule& rule, double weight_decay,
                     CrossDeviceOps& ops);

  UpdateLayout layout;

 private:
  using Sources = UpdateRun::Sources;

  void fill_post(Post& post, const Gradients& gradients, uint64_t stamp);
  void put_gradient(Post& post, const GradientAndVariable& pair, std::size_t index,
                    GradientLease& lease);
  void check_posts(const Post* posts, int replica) const;
  Sources sources(const Post* posts, std::size_t variable) const;
  /// What clipvalue and weight decay make of a run; scales by norms come on top.
  update_rules::UpdateOptions update_options(const UpdateRun& run, double weight_decay) const;
  /// clipnorm of one variable, as a factor.
  double norm_scale(const UpdateRun& run, const Sources& from, std::size_t variable) const;
  double global_scale(const Post* posts, bool full) const;
  void update_replica(const Post* posts, int replica, const Rule& rule, double weight_decay);
  void push_own_slice(int replica);
  void bump_versions(const Post* posts, int replica);

  const FusedUpdateOptions options_;
  // [parity of the epoch][replica]. Two calls have at least one meeting between them, or their
  // epochs differ by one: a post is never written while another replica still reads it.
  std::vector<Post> posts_;
};

void FusedUpdate::State::put_gradient(Post& post, const GradientAndVariable& pair,
                                      std::size_t index, GradientLease& lease) {
  const Gradient& gradient = pair.gradient;
  VariableImpl& variable = pair.variable.impl();
  const Tensor& place = lease.view(variable);
  if (gradient.is_sparse() || !gradient.dense().is_same(place)) {
    const Tensor dense = gradient.as_tensor();
    COHORT_CHECK_ARG(shape_of(dense) == variable.description().shape,
                     "[optimizer.apply_gradients] expected a gradient of shape ",
                     bracketed(variable.description().shape), " for \"",
                     variable.description().name, "\", got ", bracketed(dense.sizes()));
    if (dense.data_ptr() != place.data_ptr()) Tensor(place).copy_(dense.detach());
  }
  post.gradients[index] = static_cast<const std::byte*>(place.const_data_ptr());
}

void FusedUpdate::State::fill_post(Post& post, const Gradients& gradients, uint64_t stamp) {
  std::shared_ptr<GradientLease> lease = gradients.lease();
  std::fill(post.gradients.begin(), post.gradients.end(), nullptr);
  post.stamp = stamp;
  std::size_t found = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].gradient.has_value()) continue;
    if (!lease) lease = std::make_shared<GradientLease>();
    put_gradient(post, gradients[i], layout.index_of(gradients[i].variable, i), *lease);
    ++found;
  }
  post.full = found == layout.variables().size();
  if (lease && meeting_group() != nullptr) {
    for (const UpdateRun& run : layout.runs()) {
      if (GradientBuffer* buffer = lease->find(run.arena.get())) buffer->readable_until = stamp;
    }
  }
}

void FusedUpdate::State::check_posts(const Post* posts, int replica) const {
  for (int r = 0; r < layout.replicas(); ++r) {
    COHORT_CHECK_STATE(posts[r].stamp == posts[replica].stamp,
                       "[optimizer.apply_gradients] expected every replica to apply the same "
                       "optimizer here, got another one on replica ",
                       r);
  }
}

FusedUpdate::State::Sources FusedUpdate::State::sources(const Post* posts,
                                                        std::size_t variable) const {
  Sources out;
  for (int r = 0; r < layout.replicas(); ++r) {
    if (posts[r].gradients[variable] != nullptr) out.push_back(posts[r].gradients[variable]);
  }
  return out;
}

update_rules::UpdateOptions FusedUpdate::State::update_options(const UpdateRun& run,
                                                               double weight_decay) const {
  update_rules::UpdateOptions how;
  if (options_.clipvalue) how.clip_value = *options_.clipvalue;
  how.weight_decay = run.decays ? weight_decay : 0;
  return how;
}

double FusedUpdate::State::norm_scale(const UpdateRun& run, const Sources& from,
                                      std::size_t variable) const {
  const double norm = std::sqrt(run.sum_of_squares(from, 0, layout.padded_size(variable)));
  return update_rules::norm_clip_scale(norm, *options_.clipnorm);
}

double FusedUpdate::State::global_scale(const Post* posts, bool full) const {
  if (!options_.global_clipnorm) return 1;
  double squares = 0;
  for (const UpdateRun& run : layout.runs()) {
    if (full) {
      squares += run.sum_of_squares(sources(posts, run.members.front()), 0, run.size);
      continue;
    }
    for (const std::size_t v : run.members) {
      const Sources from = sources(posts, v);
      if (!from.empty()) squares += run.sum_of_squares(from, 0, layout.padded_size(v));
    }
  }
  return update_rules::global_norm_clip_scale(std::sqrt(squares), *options_.global_clipnorm);
}

void FusedUpdate::State::update_replica(const Post* posts, int replica, const Rule& rule,
                                        double weight_decay) {
  const bool full =
      std::all_of(posts, posts + layout.replicas(), [](const Post& post) { return post.full; });
  const double scale = global_scale(posts, full);
  for (const UpdateRun& run : layout.runs()) {
    update_rules::UpdateOptions how = update_options(run, weight_decay);
    how.gradient_scale = scale;
    if (full && !options_.clipnorm) {
      run.update(rule, sources(posts, run.members.front()), replica, layout.slice(run, replica), 0,
                 how);
      continue;
    }
    for (const std::size_t v : run.members) {
      const Sources from = sources(posts, v);
      if (from.empty()) continue;
      const std::size_t begin = layout.offset_in_run(v);
      if (options_.clipnorm) {
        how.gradient_scale = norm_scale(run, from, v);
      }
      const Range mine =
          layout.slice(run, replica).intersect({begin, begin + layout.padded_size(v)});
      run.update(rule, from, replica, mine, begin, how);
    }
  }
}

void FusedUpdate::State::push_own_slice(int replica) {
  for (const UpdateRun& run : layout.runs()) {
    const Range range = layout.slice(run, replica);
    if (range.empty()) continue;
    const std::size_t begin = range.begin * run.element_size;
    for (int other = 0; other < layout.replicas(); ++other) {
      if (other == replica) continue;
      std::memcpy(run.parameters(other) + begin, run.parameters(replica) + begin,
                  range.size() * run.element_size);
    }
  }
}

void FusedUpdate::State::bump_versions(const Post* posts, int replica) {
  // Written through raw pointers: a backward pass over changed weights must be LibTorch's error.
  const auto& variables = layout.variables();
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const bool written = std::any_of(posts, posts + layout.replicas(), [v](const Post& post) {
      return post.gradients[v] != nullptr;
    });
    if (written)
      variables[v].impl().component(replica).tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void FusedUpdate::State::apply(const Gradients& gradients, const Rule& rule, double weight_decay) {
  const FlushDenormals flush;
  ReplicaGroup* group = meeting_group();
  const int replica = group != nullptr ? current_replica() : 0;
  const uint64_t stamp = group != nullptr ? group->epoch(replica) + 1 : 1;
  Post* posts = posts_.data() + (stamp % 2) * static_cast<std::size_t>(layout.replicas());
  fill_post(posts[replica], gradients, stamp);
  if (group != nullptr) group->barrier();
  check_posts(posts, replica);
  update_replica(posts, replica, rule, weight_decay);
  bump_versions(posts, replica);
  if (group != nullptr && layout.schedule() == UpdateSchedule::kSharded) {
    // Between the meetings nobody reads parameters but for its own slice: behind the second one
    // every copy is whole, and its replica may write it.
    push_own_slice(replica);
    group->barrier();
  }
}

void FusedUpdate::State::apply_reduced(const Gradients& gradients, const Rule& rule,
                                       double weight_decay, CrossDeviceOps& ops) {
  const FlushDenormals flush;
  const auto reduced = reduce_gradients(layout, gradients, ops);
  const int replica = std::max(0, current_replica());
  Post post;
  post.gradients.resize(layout.variables().size());
  std::vector<Tensor> keep;
  double squares = 0;
  for (std::size_t v = 0; v < reduced->size(); ++v) {
    if ((*reduced)[v].size() == 0) continue;
    const Gradient& gradient = (*reduced)[v][(*reduced)[v].size() > 1 ? replica : 0];
    keep.push_back(layout.pad(v, gradient.as_tensor()));
    post.gradients[v] = static_cast<const std::byte*>(keep.back().const_data_ptr());
    if (options_.global_clipnorm) {
      squares += layout.run_of(v).sum_of_squares({post.gradients[v]}, 0, layout.padded_size(v));
    }
  }
  for (std::size_t v = 0; v < reduced->size(); ++v) {
    if (post.gradients[v] == nullptr) continue;
    const UpdateRun& run = layout.run_of(v);
    update_rules::UpdateOptions how = update_options(run, weight_decay);
    if (options_.global_clipnorm) {
      how.gradient_scale =
          update_rules::global_norm_clip_scale(std::sqrt(squares), *options_.global_clipnorm);
    } else if (options_.clipnorm) {
      how.gradient_scale = norm_scale(run, {post.gradients[v]}, v);
    }
    const std::size_t begin = layout.offset_in_run(v);
    run.update(rule, {post.gradients[v]}, replica, {begin, begin + layout.padded_size(v)}, begin,
               how);
    layout.variables()[v].impl().component(replica).tensor.unsafeGetTensorImpl()->bump_version();
  }
}

FusedUpdate::FusedUpdate(std::vector<Variable> variables, FusedUpdateOptions options)
    : state_(std::make_unique<State>(std::move(variables), std::move(options))) {}
FusedUpdate::~FusedUpdate() = default;

void FusedUpdate::apply(const Gradients& gradients, const Rule& rule, double weight_decay) {
  const at::NoGradGuard no_grad;
  const UpdateLayout& layout = state_->layout;
  COHORT_CHECK_STATE(layout.replicas() == 1 || current_replica() >= 0,
                     "[optimizer.apply_gradients] expected to be inside strategy.run, got "
                     "cross-replica context of a strategy with ",
                     layout.replicas(), " replicas");
  COHORT_CHECK_STATE(current_replica() < 0 || current_replica_count() == layout.replicas(),
                     "[optimizer.apply_gradients] expected a replica of the variables' strategy (",
                     layout.replicas(), " replicas), got one of a strategy with ",
                     current_replica_count());
  if (CrossDeviceOps* ops = layout.cross_device_ops()) {
    state_->apply_reduced(gradients, rule, weight_decay, *ops);
  } else {
    state_->apply(gradients, rule, weight_decay);
  }
}

const std::vector<Variable>& FusedUpdate::variables() const { return state_->layout.variables(); }
int FusedUpdate::slot_count() const { return state_->layout.slot_count(); }
Tensor FusedUpdate::slot(std::size_t variable, int slot) const {
  return state_->layout.read_slot(variable, slot);
}
void FusedUpdate::set_slot(std::size_t variable, int slot, const Tensor& value) {
  state_->layout.write_slot(variable, slot, value);
}

}  // namespace cohort::internal
