// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/split_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::data {
namespace {

std::vector<int64_t> sizes_of(int64_t rows, std::size_t parts, std::span<const double> weights) {
  return weights.empty() ? even_sizes(rows, parts) : weighted_sizes(rows, weights);
}

/// The quotas, filled from the first on.
std::vector<int64_t> filled(int64_t rows, std::span<const int64_t> quotas) {
  std::vector<int64_t> sizes;
  for (int64_t quota : quotas) {
    sizes.push_back(std::min(quota, rows));
    rows -= sizes.back();
  }
  return sizes;
}

std::vector<Piece> own_pieces(int64_t rows, int64_t full_rows, const SplitPlan& plan) {
  const auto replicas = static_cast<std::size_t>(plan.replicas);
  const auto all = static_cast<std::size_t>(plan.all_replicas());
  const bool partial = full_rows != kUnknownDim && rows < full_rows;
  std::vector<int64_t> quotas = sizes_of(partial ? full_rows : rows, all, plan.weights);
  std::rotate(quotas.begin(), quotas.begin() + plan.index * plan.replicas, quotas.end());
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (std::size_t first = 0; first < all; first += replicas) {
    const auto quota = std::span<const int64_t>(quotas).subspan(first, replicas);
    const int64_t room = std::accumulate(quota.begin(), quota.end(), int64_t{0});
    const int64_t here = std::min(room, rows - begin);
    const bool even = here < room && plan.rule == SplitRule::kEven;
    for (int64_t size : even ? sizes_of(here, replicas, plan.weights) : filled(here, quota)) {
      pieces.push_back({begin, size});
      begin += size;
    }
    if (partial && begin == rows) break;  // Nobody waits for the steps that would be empty.
  }
  return pieces;
}

std::vector<Piece> shared_pieces(int64_t rows, const SplitPlan& plan) {
  const auto all = static_cast<std::size_t>(plan.all_replicas());
  const auto replicas = static_cast<std::size_t>(plan.replicas);
  const auto workers = static_cast<std::size_t>(plan.pipelines);
  // The replica, of all workers', that gets piece p.
  const auto receiver = [&](std::size_t p) {
    return plan.choice == PieceChoice::kConsecutive ? p : p % workers * replicas + p / workers;
  };
  std::vector<double> weights;
  for (std::size_t p = 0; p < all && !plan.weights.empty(); ++p) {
    weights.push_back(plan.weights[receiver(p)]);
  }
  const std::vector<int64_t> sizes = sizes_of(rows, all, weights);
  std::vector<Piece> pieces(replicas);
  int64_t begin = 0;
  for (std::size_t p = 0; p < all; begin += sizes[p++]) {
    const std::size_t to = receiver(p);
    if (to / replicas == static_cast<std::size_t>(plan.index)) {
      pieces[to % replicas] = {begin, sizes[p]};
    }
  }
  return pieces;
}

}  // namespace

std::vector<int64_t> even_sizes(int64_t rows, std::size_t parts) {
  const auto count = static_cast<int64_t>(parts);
  std::vector<int64_t> sizes(parts, rows / count);
  std::fill_n(sizes.begin(), rows % count, rows / count + 1);
  return sizes;
}

std::vector<int64_t> weighted_sizes(int64_t rows, std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> sizes;
  std::vector<double> remainders;
  int64_t left = rows;
  for (double weight : weights) {
    const double share = static_cast<double>(rows) * (weight / sum);
    sizes.push_back(std::min(left, static_cast<int64_t>(std::floor(share))));
    remainders.push_back(share - std::floor(share));
    left -= sizes.back();
  }
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++sizes[order[i]];
  return sizes;
}

std::vector<Piece> pieces_of(int64_t rows, int64_t full_rows, const SplitPlan& plan) {
  return plan.choice == PieceChoice::kAll ? own_pieces(rows, full_rows, plan)
                                          : shared_pieces(rows, plan);
}

}  // namespace cohort::internal::data
