// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/departures.h"

#include <algorithm>

#include "cohort/variables/component.h"

namespace cohort::internal::variables {

Departures::Departures(const UpdateLayout& layout, const WorkerShares& shares,
                       const std::vector<bool>& by_rows)
    : by_rows_(by_rows),
      regions_(shares.regions()),
      stamps_(static_cast<std::size_t>(layout.replicas())),
      missing_(shares.regions()) {
  for (std::size_t v = 0; v < layout.variables().size(); ++v) {
    turns_of_.push_back(shares.regions() - 1 - shares.region_of(v));
    LocalImpl& variable = local_impl(layout.variables()[v].impl());
    for (int r = 0; r < layout.replicas(); ++r) {
      Component& component = variable.leaf_of(r);
      tell_when_final(component);
      variables_[&component] = v;
    }
  }
  posts_.assign(stamps_.size(), Post(layout.variables().size()));
}

void Departures::expect(int replica, uint64_t stamp) {
  const base::MutexLock lock(mutex_);
  const auto r = static_cast<std::size_t>(replica);
  std::fill(posts_[r].gradients.begin(), posts_[r].gradients.end(), nullptr);
  stamps_[r] = stamp;
  is_expected_ =
      std::all_of(stamps_.begin(), stamps_.end(), [&](uint64_t other) { return other == stamp; });
  if (is_expected_) count_missing();
}

void Departures::count_missing() {
  left_ = 0;
  std::fill(missing_.begin(), missing_.end(), 0);
  for (std::size_t v = 0; v < turns_of_.size(); ++v) {
    if (by_rows_[v]) continue;
    missing_[turns_of_[v]] +=
        static_cast<std::size_t>(std::count_if(posts_.begin(), posts_.end(), [&](const Post& post) {
          return post.gradients[v] == nullptr;
        }));
  }
}

void Departures::announce(int replica, const Component& leaf, const Tensor& gradient) {
  const auto found = variables_.find(&leaf);
  if (found == variables_.end()) return;
  const std::size_t v = found->second;
  const base::MutexLock lock(mutex_);
  const std::byte*& place = posts_[static_cast<std::size_t>(replica)].gradients[v];
  const bool is_new = place == nullptr;
  place = static_cast<const std::byte*>(gradient.const_data_ptr());
  if (is_new && is_expected_ && !by_rows_[v]) --missing_[turns_of_[v]];
}

std::optional<std::size_t> Departures::begin_turn() {
  const base::MutexLock lock(mutex_);
  const bool is_free = is_expected_ && !is_busy_;
  if (!is_free || left_ == regions_ || missing_[left_] > 0) return std::nullopt;
  is_busy_ = true;
  return left_;
}

bool Departures::begin_moving() {
  const base::MutexLock lock(mutex_);
  if (!is_expected_ || is_busy_ || left_ == 0) return false;
  return is_busy_ = true;
}

void Departures::end_turn(bool left) {
  const base::MutexLock lock(mutex_);
  is_busy_ = false;
  if (left) ++left_;
}

std::optional<std::size_t> Departures::left() const {
  const base::MutexLock lock(mutex_);
  return is_expected_ ? std::optional(left_) : std::nullopt;
}

void Departures::end() {
  const base::MutexLock lock(mutex_);
  is_expected_ = false;
}

}  // namespace cohort::internal::variables
