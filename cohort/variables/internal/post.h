// SPDX-License-Identifier: Apache-2.0
//
// What replicas bring to an update: where each one's gradients lie, and which of them are rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "cohort/variables/gradient_lease.h"
#include "cohort/variables/gradients_and_variables.h"
#include "cohort/variables/internal/update_layout.h"
#include "cohort/variables/row_sum.h"

namespace cohort::internal::variables {

/// What a replica shows to the others at the merge point; a line of its own.
struct alignas(64) Post {
  explicit Post(std::size_t variables) : gradients(variables) {}
  bool has(std::size_t variable) const {
    return gradients[variable] != nullptr || rows_of(variable) != nullptr;
  }
  const RowSum* rows_of(std::size_t variable) const {
    const auto found = rows.empty() ? rows.end() : rows.find(variable);
    return found == rows.end() ? nullptr : &found->second;
  }
  uint64_t stamp = 0;                       // the replica's epoch behind the meeting
  bool full = false;                        // all gradients, at their places in the layout's runs
  bool held = false;                        // the program holds one, and may write it
  std::vector<const std::byte*> gradients;  // per variable; null: none, or rows
  std::map<std::size_t, RowSum> rows = {};  // of variables that are updated by rows
  std::vector<Tensor> copies = {};          // of gradients that lie nowhere in an arena
};
using Posts = std::span<const Post>;

inline bool has_gradient(Posts posts, std::size_t variable) {
  return std::any_of(posts.begin(), posts.end(), [&](const Post& p) { return p.has(variable); });
}
inline bool has_rows(Posts posts) {
  return std::any_of(posts.begin(), posts.end(),
                     [](const Post& post) { return !post.rows.empty(); });
}
/// Whether the variable is updated by rows: all that have a gradient have brought rows of it.
inline bool is_by_rows(Posts posts, std::size_t variable) {
  return has_rows(posts) && std::none_of(posts.begin(), posts.end(), [&](const Post& post) {
           return post.gradients[variable] != nullptr;
         });
}

/// The replicas' gradients of a variable, added in their order, in memory of its own. Some replica
/// has to have one. Shapes: the variable's.
Tensor sum_of(const UpdateLayout& layout, Posts posts, std::size_t variable);

/// Fills posts. Threads: immutable; each replica fills its own.
class PostWriter {
 public:
  /// The numbers of one step.
  struct Step {
    const update_rules::Rule& rule;
    double weight_decay;
  };
  PostWriter(const UpdateLayout& layout, const UpdaterOptions& options)
      : layout_(layout),
        lazy_rows_(options.lazy_rows),
        clips_norms_(options.clipnorm || options.global_clipnorm) {}

  /// `stamp`: of the meeting behind which others read the post, until the replica's epoch is above
  /// `readable_until`; both 0: nobody does.
  /// Errors: InvalidArgument for a variable that is not in the layout, or there twice, and for
  ///         another shape.
  void fill(Post& post, const Gradients& gradients, const Step& step, uint64_t stamp,
            uint64_t readable_until) const;
  /// Whether rows of this variable's gradient remain rows: on GPUs only where they must, because
  /// the host waits for their numbers.
  bool takes_rows(const Step& step, std::size_t variable) const;
  void put_rows(Post& post, const IndexedSlices& slices, std::size_t variable) const;

 private:
  /// Returns the buffer in which other replicas will read it, if it lies in one.
  GradientBuffer* put_dense(Post& post, const GradientAndVariable& pair, std::size_t index,
                            GradientLease& lease) const;
  bool fills_runs(const Post& post) const;

  const UpdateLayout& layout_;
  const bool lazy_rows_;
  const bool clips_norms_;
};

}  // namespace cohort::internal::variables
