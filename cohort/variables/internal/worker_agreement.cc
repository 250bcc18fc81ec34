// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/worker_agreement.h"

#include <array>
#include <bit>
#include <string_view>
#include <variant>

#include "cohort/base/check.h"

namespace cohort::internal::variables {

using update_rules::Rule;

namespace {

uint64_t digest_of(const UpdateLayout& layout) {
  uint64_t digest = 14695981039346656037ULL;  // FNV-1a
  const auto add = [&](std::string_view text) {
    for (const char c : text) {
      digest = (digest ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    }
  };
  for (const Variable& v : layout.variables()) {
    add(str_cat(v.name(), bracketed(v.shape()), dtype_name(v.dtype()), ";"));
  }
  add(str_cat(layout.slot_count()));
  return digest;
}

// Every rule begins with its learning rate, or with what that made of it.
double first_number(const Rule& rule) {
  return std::visit(
      [](const auto& step) {
        double number = 0;
        std::memcpy(&number, &step, sizeof number);
        return number;
      },
      rule);
}

// NaN on both sides is the same.
bool is_same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// Of one optimizer, whose other numbers stay.
bool is_same(const RuleOfStep& a, const RuleOfStep& b) {
  return a.rule.index() == b.rule.index() && is_same(first_number(a.rule), first_number(b.rule)) &&
         is_same(a.weight_decay, b.weight_decay);
}

bool all_full(Posts posts) {
  return std::all_of(posts.begin(), posts.end(), [](const Post& post) { return post.full; });
}

const char* rule_name(uint64_t rule) {
  // In the order of update_rules::Rule.
  constexpr std::array kNames = {"SGD",     "SGD with momentum",
                                 "Adam",    "RMSprop",
                                 "Adagrad", "Adadelta",
                                 "Adamax",  "Nadam",
                                 "Ftrl",    "Lion"};
  static_assert(kNames.size() == std::variant_size_v<Rule>);
  return rule < kNames.size() ? kNames[rule] : "an unknown one";
}

}  // namespace

WorkerAgreement::WorkerAgreement(const UpdateLayout& layout, int worker, int workers)
    : worker_(worker),
      workers_(workers),
      digest_(digest_of(layout)),
      row_bytes_(sizeof(Header) + sizeof(int64_t) * layout.variables().size()),
      rows_(row_bytes_ * static_cast<std::size_t>(workers)),
      present_(layout.variables().size()) {}

void WorkerAgreement::write(Posts posts, const std::map<std::size_t, int64_t>& rows,
                            const RuleOfStep& now, const RuleOfStep* ahead) {
  std::byte* const to = rows_.data() + row_bytes_ * static_cast<std::size_t>(worker_);
  const Header mine{.variables = digest_,
                    .rule = now.rule.index(),
                    .number = first_number(now.rule),
                    .weight_decay = now.weight_decay,
                    .full = all_full(posts),
                    .ahead = ahead != nullptr && is_same(*ahead, now)};
  std::memcpy(to, &mine, sizeof mine);
  for (std::size_t v = 0; v < present_.size(); ++v) {
    const auto by_rows = rows.find(v);
    const int64_t count = by_rows != rows.end()               ? by_rows->second
                          : variables::has_gradient(posts, v) ? kDense
                                                              : kNothing;
    std::memcpy(to + sizeof mine + v * sizeof count, &count, sizeof count);
  }
}

collectives::Communicator::Pending WorkerAgreement::exchange(
    collectives::Communicator& communicator) {
  std::vector<collectives::Bytes> rows;
  for (int w = 0; w < workers_; ++w) {
    rows.push_back(
        collectives::Bytes(rows_).subspan(row_bytes_ * static_cast<std::size_t>(w), row_bytes_));
  }
  return communicator.start_all_gather(rows);
}

WorkerAgreement::Header WorkerAgreement::header(int worker) const {
  Header out;
  std::memcpy(&out, row(worker), sizeof out);
  return out;
}

void WorkerAgreement::check_same(const Header& mine, int worker, const Header& theirs) const {
  constexpr const char* kName = "[optimizer.apply_gradients] ";
  COHORT_CHECK_STATE(theirs.variables == mine.variables, kName,
                     "expected the same variables, by names, shapes and slots, on every worker, "
                     "got other ones on worker ",
                     worker, " than on worker ", worker_);
  COHORT_CHECK_STATE(theirs.rule == mine.rule && is_same(theirs.number, mine.number) &&
                         is_same(theirs.weight_decay, mine.weight_decay),
                     kName, "expected every worker to apply the same rule, got ",
                     rule_name(mine.rule), " with learning rate ", mine.number,
                     " and weight decay ", mine.weight_decay, " on worker ", worker_, ", and ",
                     rule_name(theirs.rule), " with ", theirs.number, " and ", theirs.weight_decay,
                     " on worker ", worker,
                     "; give them the same optimizer, schedule and number of steps");
}

void WorkerAgreement::conclude() {
  const Header mine = header(worker_);
  full_ = all_dense_ = ahead_ = true;
  std::fill(present_.begin(), present_.end(), uint8_t{0});
  for (int w = 0; w < workers_; ++w) {
    const Header theirs = header(w);
    check_same(mine, w, theirs);
    full_ = full_ && theirs.full != 0;
    ahead_ = ahead_ && theirs.ahead != 0;
    for (std::size_t v = 0; v < present_.size(); ++v) {
      const int64_t count = brought(w, v);
      all_dense_ = all_dense_ && count == kDense;
      if (count != kNothing) present_[v] = std::max(present_[v], count >= 0 ? kByRows : kAsDense);
    }
  }
}

}  // namespace cohort::internal::variables
