// SPDX-License-Identifier: Apache-2.0
//
// Tables whose rows belong to ids, and what trains them alike in one process and on servers; for
// tests.
#pragma once

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cohort/autograd/dynamic_table.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/autograd/test_row_methods.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/strategy/strategies.h"
#include "cohort/variables/id_map.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/updater.h"

namespace cohort::internal::coordinator {

using Ids = std::vector<int64_t>;
using Numbers = std::vector<float>;
using Method = testing::RowMethod;

inline constexpr int64_t kWidth = 3;

inline Tensor tensor_of(const Ids& ids) {
  return from_vector(ids, {static_cast<int64_t>(ids.size())});
}

/// A table and what trains it, of a strategy of one process or of servers.
class Trainer {
 public:
  Trainer(Strategy strategy, int64_t capacity, DynamicTableOptions options, const Method& method)
      : strategy_(std::move(strategy)), method_(method) {
    const auto scope = strategy_.scope();
    rows_ = Variable(zeros({capacity, kWidth}), {.name = "rows"});
    table_ = DynamicTable(rows_, options);
    updater_ = variables::store_of("[test] ", rows_)
                   .make_updater(
                       {rows_},
                       {.name = "method", .slot_initial = method.slots, .lazy_rows = method.lazy});
  }
  void step(const Ids& ids) {
    ++step_;
    strategy_.run([&] {
      GradientTape tape;
      apply(tape, look_up(ids), ids);
    });
  }
  Tensor look_up(const Ids& ids) {
    const Tensor all = tensor_of(ids);
    table_.see(all);
    return table_.lookup(all);
  }
  // An id's gradient depends on the id and its row.
  void apply(GradientTape& tape, const Tensor& rows, const Ids& ids) {
    const Tensor pull = (tensor_of(ids).to(kFloat32).sin().unsqueeze(1) - rows).square().sum();
    updater_->apply(tape.gradient(pull, std::span(&rows_, 1)),
                    method_.rule(std::max<int64_t>(step_, 1)));
  }
  // No gradient of it is to come: else the row would be held.
  Numbers row(int64_t id) const {
    const at::NoGradGuard no_grad;
    return to_vector<float>(table_.lookup(tensor_of({id})));
  }
  std::map<int64_t, Numbers> all() const {
    std::map<int64_t, Numbers> out;
    for (const int64_t id : table_.ids()) out[id] = row(id);
    return out;
  }
  /// An id's numbers of a slot, by the number that its row has in files.
  std::map<int64_t, Numbers> slot(int which) const {
    std::map<int64_t, Numbers> out;
    const Tensor slot = updater_->slot(0, which);
    const auto numbers = to_vector<int64_t>(table_.map().value());
    for (const auto& each : variables::state_of(numbers).rows) {
      out[each.id] = to_vector<float>(slot[each.row]);
    }
    return out;
  }
  void save(const std::string& path) const {
    Checkpoint({{"rows", rows_}, {"ids", table_}}).save(path);
  }
  void restore(const std::string& path) {
    Checkpoint({{"rows", rows_}, {"ids", table_}}).restore(path);
  }
  DynamicTable& table() { return table_; }
  const Variable& rows() const { return rows_; }
  variables::Updater& updater() { return *updater_; }
  const Strategy& strategy() const { return strategy_; }

 private:
  Strategy strategy_;
  Method method_;
  Variable rows_;
  DynamicTable table_;
  std::shared_ptr<variables::Updater> updater_;
  int64_t step_ = 0;
};

inline std::vector<Ids> some_batches(int64_t ids, int count, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::vector<Ids> out;
  for (int b = 0; b < count; ++b) {
    Ids& batch = out.emplace_back();
    for (std::size_t i = draw() % 9; i > 0; --i) {
      const auto id = static_cast<int64_t>(draw() % static_cast<uint64_t>(ids));
      batch.push_back((id % 3 - 1) * (int64_t{1} << 40) + id);
    }
  }
  return out;
}

}  // namespace cohort::internal::coordinator
