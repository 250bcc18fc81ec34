// SPDX-License-Identifier: Apache-2.0
//
// How an exchanged update lends gradients where backward passes have left them.
//
// Who lends them writes them again, or lets the program do so, only behind run(). A run that has
// returned has passed Communicator::commit, at which all workers arrive when they have applied the
// rule, and so have read all that was lent to them. A run that has thrown is a step that no worker
// commits: whoever still reads throws away what comes of it, and ahead of the next step all meet in
// Communicator::renew. Of memory that is given back meanwhile readers have mappings of their own.
#include <algorithm>

#include "cohort/variables/internal/exchanged_update.h"

namespace cohort::internal::variables {

// Where the bytes of a worker's image lie as they would be packed; null: they do not.
const std::byte* ExchangedUpdate::gradients_in_a_row(const Post& post, std::size_t worker,
                                                     Range bytes) const {
  const std::byte* first = nullptr;
  std::size_t end = bytes.begin;
  bool is_row = true;
  sent_[worker].for_each(bytes, [&](std::size_t r, Range elements, std::size_t at) {
    const UpdateRun& run = layout_.runs()[r];
    is_row = is_row && at == end;
    end = at + elements.size() * run.element_size;
    const auto add = [&](std::size_t variable, Range part, std::size_t begin) {
      const std::byte* const gradient = post.gradients[variable];
      if (gradient == nullptr) return void(is_row = false);
      const std::byte* const in_arena = gradient + (part.begin - begin) * run.element_size;
      const std::byte* const start =
          in_arena - (at - bytes.begin) - (part.begin - elements.begin) * run.element_size;
      is_row = is_row && (first == nullptr || first == start);
      first = start;
    };
    if (post.full) return add(run.members.front(), elements, 0);
    for (const std::size_t v : run.members) {
      const Range part = elements.intersect(layout_.range_of(v));
      if (!part.empty()) add(v, part, layout_.offset_in_run(v));
    }
  });
  return is_row && end == bytes.end ? first : nullptr;
}

// All of a turn or nothing, so that blocks of norms, which know no buckets, are in one place, too.
void ExchangedUpdate::find_loans(Posts posts, std::size_t turn) {
  const std::size_t begin = first_buckets_[turn] * sent_.size();
  const std::size_t end = first_buckets_[turn + 1] * sent_.size();
  const auto lend_nothing = [&] {
    std::fill(loans_.begin() + static_cast<std::ptrdiff_t>(begin),
              loans_.begin() + static_cast<std::ptrdiff_t>(end), nullptr);
  };
  lend_nothing();
  if (rounded_ || !communicator_->shares_memory()) return;
  for (std::size_t w = 0; w < sent_.size(); ++w) {
    const std::byte* image = nullptr;
    for (std::size_t b = first_buckets_[turn]; b < first_buckets_[turn + 1]; ++b) {
      const Range bytes = bucket_of(sent_buckets_[w], b);
      if (static_cast<int>(w) == worker_ || bytes.empty()) continue;
      const std::byte* const at = gradients_in_a_row(posts[0], w, bytes);
      if (at == nullptr || !communicator_->can_lend({at, bytes.size()})) return lend_nothing();
      if (image != nullptr && image != at - bytes.begin) return lend_nothing();
      image = at - bytes.begin;
      loan(b, w) = at;
    }
  }
}

}  // namespace cohort::internal::variables
