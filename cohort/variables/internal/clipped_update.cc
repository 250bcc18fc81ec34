// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/clipped_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/runtime/replica_group.h"
#include "cohort/update_rules/update.h"

namespace cohort::internal::variables {

using update_rules::square_sum_blocks;

ClippedUpdate::ClippedUpdate(const UpdateLayout& layout, UpdaterOptions options)
    : layout_(layout), options_(std::move(options)) {
  if (!options_.global_clipnorm) return;
  std::size_t blocks = 0;
  for (const UpdateRun& run : layout_.runs()) blocks += square_sum_blocks(run.size);
  block_squares_.resize(blocks);
}

ClippedUpdate::Sources ClippedUpdate::sources(Posts posts, std::size_t variable,
                                              std::vector<Tensor>& made) const {
  Sources out;
  for (const Post& post : posts) {
    if (post.gradients[variable] != nullptr) {
      out.push_back(post.gradients[variable]);
    } else if (const RowSum* rows = post.rows_of(variable)) {
      const Shape& shape = layout_.variables()[variable].shape();
      made.push_back(layout_.pad(variable, rows->to_dense(shape)));
      out.push_back(static_cast<const std::byte*>(made.back().const_data_ptr()));
    }
  }
  return out;
}

ClippedUpdate::Sources ClippedUpdate::sources(Posts posts, const UpdateRun& full) const {
  Sources out;
  for (const Post& post : posts) out.push_back(post.gradients[full.members.front()]);
  return out;
}

RowSum ClippedUpdate::rows(Posts posts, std::size_t variable, Range range) const {
  const std::size_t width = layout_.row_width(variable);
  const std::size_t begin = layout_.offset_in_run(variable);
  const Range here = range.intersect(layout_.range_of(variable));
  if (here.empty()) return {};
  c10::SmallVector<const RowSum*, 8> parts;
  for (const Post& post : posts) {
    if (const RowSum* part = post.rows_of(variable)) parts.push_back(part);
  }
  return sum_rows({parts.data(), parts.size()}, static_cast<int64_t>((here.begin - begin) / width),
                  static_cast<int64_t>((here.end - begin + width - 1) / width));
}

update_rules::UpdateOptions update_options(const UpdaterOptions& options, const UpdateRun& run,
                                           double weight_decay) {
  update_rules::UpdateOptions how;
  if (options.clipvalue) how.clip_value = *options.clipvalue;
  how.weight_decay = run.decays ? weight_decay : 0;
  return how;
}

double ClippedUpdate::squares_of(Posts posts, const UpdateRun& run, std::size_t variable,
                                 int replica) const {
  if (is_by_rows(posts, variable)) {
    const RowSum sum = rows(posts, variable, layout_.range_of(variable));
    if (sum.rows.empty()) return 0;
    const auto* const values = static_cast<const std::byte*>(sum.values.const_data_ptr());
    return run.sum_of_squares({values}, replica, 0, static_cast<std::size_t>(sum.values.numel()));
  }
  std::vector<Tensor> made;
  return run.sum_of_squares(sources(posts, variable, made), replica, 0,
                            layout_.padded_size(variable));
}

double ClippedUpdate::norm_scale(Posts posts, const UpdateRun& run, std::size_t variable,
                                 int replica) const {
  return update_rules::norm_clip_scale(std::sqrt(squares_of(posts, run, variable, replica)),
                                       *options_.clipnorm);
}

double ClippedUpdate::squares_of_runs(Posts posts, int replica) const {
  double squares = 0;
  for (const UpdateRun& run : layout_.runs()) {
    squares += run.sum_of_squares(sources(posts, run), replica, 0, run.size);
  }
  return squares;
}

double ClippedUpdate::squares_of_variables(Posts posts, int replica) const {
  double squares = 0;
  for (const UpdateRun& run : layout_.runs()) {
    for (const std::size_t v : run.members) {
      if (has_gradient(posts, v)) squares += squares_of(posts, run, v, replica);
    }
  }
  return squares;
}

double ClippedUpdate::shared_squares(Posts posts, int replica, runtime::ReplicaGroup& group) {
  const auto r = static_cast<std::size_t>(replica);
  const std::size_t all = block_squares_.size();
  const Range share{all * r / posts.size(), all * (r + 1) / posts.size()};
  std::size_t first = 0;
  for (const UpdateRun& run : layout_.runs()) {
    const std::size_t blocks = square_sum_blocks(run.size);
    const Range mine = share.intersect({first, first + blocks});
    if (!mine.empty()) {
      run.block_square_sums(sources(posts, run), replica, mine.begin - first,
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

double ClippedUpdate::global_scale(Posts posts, bool full, int replica,
                                   runtime::ReplicaGroup* group) {
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

void ClippedUpdate::run(Posts posts, int replica, runtime::ReplicaGroup* group,
                        const update_rules::Rule& rule, double weight_decay) {
  const bool full =
      std::all_of(posts.begin(), posts.end(), [](const Post& post) { return post.full; });
  const double scale = global_scale(posts, full, replica, group);
  for (const UpdateRun& run : layout_.runs()) {
    update_rules::UpdateOptions how = update_options(options_, run, weight_decay);
    how.gradient_scale = scale;
    if (full && !options_.clipnorm) {
      run.update(rule, sources(posts, run), replica, layout_.slice(run, replica), 0, how);
      continue;
    }
    for (const std::size_t v : run.members) {
      if (has_gradient(posts, v)) update_variable(posts, run, v, replica, rule, how);
    }
  }
}

void ClippedUpdate::update_variable(Posts posts, const UpdateRun& run, std::size_t variable,
                                    int replica, const update_rules::Rule& rule,
                                    update_rules::UpdateOptions how) const {
  if (options_.clipnorm) how.gradient_scale = norm_scale(posts, run, variable, replica);
  const std::size_t begin = layout_.offset_in_run(variable);
  const Range mine = layout_.slice(run, replica).intersect(layout_.range_of(variable));
  if (is_by_rows(posts, variable)) {
    return run.update_rows(rule, rows(posts, variable, mine), replica, mine, begin, how);
  }
  std::vector<Tensor> made;
  run.update(rule, sources(posts, variable, made), replica, mine, begin, how);
}

}  // namespace cohort::internal::variables
