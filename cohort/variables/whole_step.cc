// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/whole_step.h"

#include <ATen/ops/full.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <cmath>

#include "cohort/variables/parameter_store.h"

namespace cohort::internal::variables {
namespace {

using Kind = SlotForm::Kind;

std::vector<SlotForm> factored(const Shape& variable) {
  if (variable.size() < 2) return {{Kind::kShared, {}}, {Kind::kShared, {}}, {}};
  Shape rows(variable.begin() + 1, variable.end());
  Shape columns = rows;
  rows.pop_back();
  if (variable.size() == 2) return {{Kind::kOfRows, rows}, {Kind::kShared, columns}, {}};
  columns.erase(columns.end() - 2);
  return {{Kind::kOfRows, rows}, {Kind::kOfRows, columns}, {}};
}

WholeUpdate updated(const LambStep& step, const WholeRows& at, const WholeGradient& by) {
  const Tensor& g = by.gradient;
  const Tensor m = moved(at.slots[0], g, 1 - step.beta_1);
  const Tensor v = moved(at.slots[1], g.square(), 1 - step.beta_2);
  return {m / step.correction_1 / ((v / step.correction_2).sqrt() + step.epsilon), {m, v}};
}

WholeUpdate updated(const AdafactorStep& step, const WholeRows& at, const WholeGradient& by) {
  const Tensor& g = by.gradient;
  if (g.dim() < 2) {
    const Tensor v = moved(at.slots[2], g.square() + step.epsilon_1, step.share);
    return {g / v.sqrt(), {Tensor(), Tensor(), v}};
  }
  const Tensor r = moved(at.slots[0], by.row_means, step.share);
  const Tensor c =
      by.moves_columns ? moved(at.slots[1], by.column_means, step.share) : widened(at.slots[1]);
  const Tensor mean =
      g.dim() == 2 ? at::full({1}, step.rows_mean, r.options()) : r.mean(-1, /*keepdim=*/true);
  const Tensor v = (r / mean).unsqueeze(-1) * c.unsqueeze(-2);
  return {g / v.sqrt(), {r, by.moves_columns ? c : Tensor(), v}};
}

WholeUpdate updated(const MuonStep& step, const WholeRows& at, const WholeGradient& by) {
  return {by.update, {widened(at.slots[0]) * step.momentum + by.gradient}};
}

WholeUpdate updated(const MuonAdamStep& step, const WholeRows& at, const WholeGradient& by) {
  const Tensor& g = by.gradient;
  const Tensor m = moved(at.slots[0], g, 1 - step.beta_1);
  const Tensor v = moved(at.slots[1], g.square(), 1 - step.beta_2);
  return {m * step.alpha / (v.sqrt() + step.epsilon), {m, v}};
}

double factor(const LambStep& step) { return step.ratio * step.learning_rate; }
double factor(const AdafactorStep& step) { return step.rate; }
double factor(const MuonStep& step) { return step.rate; }
double factor(const MuonAdamStep& /*step*/) { return 1; }

void resolved(LambStep& step, const WholeSums& sums, int64_t /*elements*/) {
  const double length = std::sqrt(sums.value);
  const double step_length = std::sqrt(sums.update);
  step.ratio = length > 0 && step_length > 0 ? length / step_length : 1;
}
void resolved(AdafactorStep& step, const WholeSums& sums, int64_t elements) {
  const auto count = static_cast<double>(elements);
  const double alpha = std::max(step.epsilon_2, std::sqrt(sums.value / count)) * step.rho;
  step.rate = alpha / std::max(1.0, std::sqrt(sums.update / count) / step.clip_threshold);
}
void resolved(MuonStep& /*step*/, const WholeSums& /*sums*/, int64_t /*elements*/) {}
void resolved(MuonAdamStep& /*step*/, const WholeSums& /*sums*/, int64_t /*elements*/) {}

}  // namespace

Shape shape_of(const SlotForm& form, const Shape& variable) {
  if (form.kind == Kind::kLike) return variable;
  if (form.kind == Kind::kShared) return form.shape;
  Shape out = form.shape;
  out.insert(out.begin(), variable.empty() ? 1 : variable[0]);
  return out;
}

std::vector<SlotForm> slot_forms(const WholeRule& rule, const Shape& variable) {
  if (std::holds_alternative<AdafactorStep>(rule)) return factored(variable);
  return std::vector<SlotForm>(std::holds_alternative<MuonStep>(rule) ? 1 : 2);
}

bool needs_sums(const WholeRule& rule) {
  return std::holds_alternative<LambStep>(rule) || std::holds_alternative<AdafactorStep>(rule);
}

WholeUpdate update_of(const WholeRule& rule, const WholeRows& at, const WholeGradient& by) {
  return std::visit([&](const auto& step) { return updated(step, at, by); }, rule);
}

double factor_of(const WholeRule& rule) {
  return std::visit([](const auto& step) { return factor(step); }, rule);
}

WholeSums sums_of(const WholeRule& rule, double weight_decay, const WholeRows& at,
                  const WholeGradient& by) {
  return {sum_of_squares(decayed(at.value, weight_decay)),
          sum_of_squares(update_of(rule, at, by).update)};
}

void resolve(WholeRule& rule, const WholeSums& sums, int64_t elements) {
  std::visit([&](auto& step) { resolved(step, sums, elements); }, rule);
}

WholeRows stepped(const WholeRule& rule, double weight_decay, const WholeRows& at,
                  const WholeGradient& by) {
  WholeUpdate u = update_of(rule, at, by);
  return {decayed(at.value, weight_decay) - u.update * factor_of(rule), std::move(u.slots)};
}

Tensor widened(const Tensor& x) { return x.element_size() < 4 ? x.to(kFloat32) : x; }

Tensor decayed(const Tensor& value, double weight_decay) {
  const Tensor w = widened(value);
  return weight_decay == 0 ? w : w - w * weight_decay;
}

double sum_of_squares(const Tensor& x) { return x.square().sum(kFloat64).item<double>(); }

Tensor moved(const Tensor& slot, const Tensor& towards, double share) {
  const Tensor now = widened(slot);
  return now + (towards - now) * share;
}

double mean_of_rows(const Tensor& rows) {
  return rows.sum(kFloat64).item<double>() / static_cast<double>(rows.numel());
}

std::shared_ptr<WholeUpdater> ParameterStore::make_whole_updater(
    std::vector<Variable>, const std::string&, std::vector<std::vector<SlotForm>>) {
  return nullptr;
}

}  // namespace cohort::internal::variables
