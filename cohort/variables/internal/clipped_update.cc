// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/clipped_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/runtime/replica_group.h"
#include "cohort/update_rules/update.h"

namespace cohort::internal {

using update_rules::square_sum_blocks;

ClippedUpdate::ClippedUpdate(const UpdateLayout& layout, FusedUpdateOptions options)
    : layout_(layout), options_(std::move(options)) {
  if (!options_.global_clipnorm) return;
  std::size_t blocks = 0;
  for (const UpdateRun& run : layout_.runs()) blocks += square_sum_blocks(run.size);
  block_squares_.resize(blocks);
}

ClippedUpdate::Sources ClippedUpdate::sources(Posts posts, std::size_t variable) {
  Sources out;
  for (const Post& post : posts) {
    if (post.gradients[variable] != nullptr) out.push_back(post.gradients[variable]);
  }
  return out;
}

update_rules::UpdateOptions update_options(const FusedUpdateOptions& options, const UpdateRun& run,
                                           double weight_decay) {
  update_rules::UpdateOptions how;
  if (options.clipvalue) how.clip_value = *options.clipvalue;
  how.weight_decay = run.decays ? weight_decay : 0;
  return how;
}

double ClippedUpdate::norm_scale(const UpdateRun& run, const Sources& from, int replica,
                                 std::size_t variable) const {
  const double norm =
      std::sqrt(run.sum_of_squares(from, replica, 0, layout_.padded_size(variable)));
  return update_rules::norm_clip_scale(norm, *options_.clipnorm);
}

double ClippedUpdate::squares_of_runs(Posts posts, int replica) const {
  double squares = 0;
  for (const UpdateRun& run : layout_.runs()) {
    squares += run.sum_of_squares(sources(posts, run.members.front()), replica, 0, run.size);
  }
  return squares;
}

double ClippedUpdate::squares_of_variables(Posts posts, int replica) const {
  double squares = 0;
  for (const UpdateRun& run : layout_.runs()) {
    for (const std::size_t v : run.members) {
      const Sources from = sources(posts, v);
      if (!from.empty()) squares += run.sum_of_squares(from, replica, 0, layout_.padded_size(v));
    }
  }
  return squares;
}

double ClippedUpdate::shared_squares(Posts posts, int replica, ReplicaGroup& group) {
  const auto r = static_cast<std::size_t>(replica);
  const std::size_t all = block_squares_.size();
  const Range share{all * r / posts.size(), all * (r + 1) / posts.size()};
  std::size_t first = 0;
  for (const UpdateRun& run : layout_.runs()) {
    const std::size_t blocks = square_sum_blocks(run.size);
    const Range mine = share.intersect({first, first + blocks});
    if (!mine.empty()) {
      run.block_square_sums(sources(posts, run.members.front()), replica, mine.begin - first,
                            {block_squares_.data() + mine.begin, mine.size()});
    }
    first += blocks;
  }
  group.barrier();
  // In the order of one replica that does it alone: the same bits.
  double squares = 0;
  auto block = block_squares_.begin();
  for (const UpdateRun& run : layout_.runs()) {
    double of_run = 0;
    for (std::size_t i = 0; i < square_sum_blocks(run.size); ++i) of_run += *block++;
    squares += of_run;
  }
  return squares;
}

double ClippedUpdate::global_scale(Posts posts, bool full, int replica, ReplicaGroup* group) {
  if (!options_.global_clipnorm) return 1;
  double squares = 0;
  if (!full) {
    squares = squares_of_variables(posts, replica);
  } else if (group == nullptr) {
    squares = squares_of_runs(posts, replica);
  } else {
    squares = shared_squares(posts, replica, *group);
  }
  return update_rules::global_norm_clip_scale(std::sqrt(squares), *options_.global_clipnorm);
}

void ClippedUpdate::run(Posts posts, int replica, ReplicaGroup* group,
                        const update_rules::Rule& rule, double weight_decay) {
  const bool full =
      std::all_of(posts.begin(), posts.end(), [](const Post& post) { return post.full; });
  const double scale = global_scale(posts, full, replica, group);
  for (const UpdateRun& run : layout_.runs()) {
    update_rules::UpdateOptions how = update_options(options_, run, weight_decay);
    how.gradient_scale = scale;
    if (full && !options_.clipnorm) {
      run.update(rule, sources(posts, run.members.front()), replica, layout_.slice(run, replica), 0,
                 how);
      continue;
    }
    for (const std::size_t v : run.members) {
      const Sources from = sources(posts, v);
      if (from.empty()) continue;
      const std::size_t begin = layout_.offset_in_run(v);
      if (options_.clipnorm) how.gradient_scale = norm_scale(run, from, replica, v);
      const Range mine =
          layout_.slice(run, replica).intersect({begin, begin + layout_.padded_size(v)});
      run.update(rule, from, replica, mine, begin, how);
    }
  }
}

}  // namespace cohort::internal
