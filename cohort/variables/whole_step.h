// SPDX-License-Identifier: Apache-2.0
//
// Steps that look at a variable as a whole (Lamb, Adafactor, Muon), as numbers and on tensors. One
// process and parameter servers compute by the same functions.
//
// With all rows in one place update_of() says what is subtracted, but for a factor, which
// resolve() takes from the sums of squares of the variable and of the update.
// factor_of() is that factor.
//
// Where rows of the variable are in several places a step has two phases. Each place says sums_of()
// its rows and their gradient, and writes nothing; the sums are added, in one order, and resolve()
// makes them numbers of the rule; with these each place makes its rows what stepped() says.
// Formulas are Keras 3's. Threads: functions of their arguments. What is float16 or bfloat16 is
// computed with in float32.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::variables {

/// Adam's update, scaled to the norm of the variable. Slots: momentum, velocity.
struct LambStep {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double correction_1 = 1;  ///< 1 - beta_1^t
  double correction_2 = 1;  ///< 1 - beta_2^t
  double ratio = 1;         ///< resolve(): of the norms of the variable and of the update.
};

/// Slots: rows, columns (means of squares over the last axis, and over the one before it; of what
/// has fewer than two axes scalars that nothing uses), velocity.
struct AdafactorStep {
  double share = 1;  ///< Of new squares in the slots: 1 - beta_2 of this step.
  double epsilon_1 = 1e-30;
  double rows_mean = 1;  ///< Of matrices: mean_of_rows() of the slot behind this step.
  double rate = 0;       ///< resolve().
  double epsilon_2 = 1e-3;
  double rho = 1e-3;  ///< The rate, as a part of the variable's root mean square.
  double clip_threshold = 1;
};

/// Of matrices: goes by an orthogonal update, which comes with the gradient. Slots: momentum.
struct MuonStep {
  double momentum = 0.95;
  double rate = 0.02;
};

/// Adam as Muon has it for all else. Slots: momentum, velocity.
struct MuonAdamStep {
  double alpha = 1e-3;  ///< lr sqrt(1 - beta_2^t) / (1 - beta_1^t).
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
};

/// With its numbers it is plain data, and can be sent.
using WholeRule = std::variant<LambStep, AdafactorStep, MuonStep, MuonAdamStep>;

/// What a slot looks like beside its variable.
struct SlotForm {
  enum class Kind {
    kLike,    ///< As the variable.
    kOfRows,  ///< A number, or a tensor of `shape`, for each row of the first axis.
    kShared,  ///< Of `shape`; where rows are in several places each of them has one of its own.
  };
  Kind kind = Kind::kLike;
  Shape shape = {};
  bool operator==(const SlotForm&) const = default;
};
/// Beside a variable, or so many rows of one.
Shape shape_of(const SlotForm& form, const Shape& variable);
/// The rule's slots of such a variable.
std::vector<SlotForm> slot_forms(const WholeRule& rule, const Shape& variable);
/// Whether resolve() changes it.
bool needs_sums(const WholeRule& rule);

/// A variable, or rows of one: what it has, and slots in the rule's order.
struct WholeRows {
  Tensor value = {};
  std::vector<Tensor> slots = {};
};
/// What a step brings for these rows, in the dtype that is computed in.
struct WholeGradient {
  Tensor gradient = {};
  Tensor update = {};        ///< MuonStep.
  Tensor row_means = {};     ///< AdafactorStep of two axes or more: squares_of_rows().
  Tensor column_means = {};  ///< The same. Of a matrix the whole matrix's.
  /// Of a matrix for Adafactor: a slot of columns moves once in each place and step.
  bool moves_columns = true;
};
/// What is subtracted, but for factor_of(), and the slots behind it; undefined: as they are.
struct WholeUpdate {
  Tensor update = {};
  std::vector<Tensor> slots = {};
};
WholeUpdate update_of(const WholeRule& rule, const WholeRows& at, const WholeGradient& by);
double factor_of(const WholeRule& rule);

/// Of squares.
struct WholeSums {
  double value = 0;
  double update = 0;
};
/// weight_decay: decay times learning rate; it comes first.
WholeSums sums_of(const WholeRule& rule, double weight_decay, const WholeRows& at,
                  const WholeGradient& by);
/// By the sums of a variable of so many elements.
void resolve(WholeRule& rule, const WholeSums& sums, int64_t elements);
/// Not rounded to the dtypes that are kept; slots as in WholeUpdate.
WholeRows stepped(const WholeRule& rule, double weight_decay, const WholeRows& at,
                  const WholeGradient& by);

/// float16 and bfloat16 as float32, all else as it is.
Tensor widened(const Tensor& x);
/// The value that is stepped from.
Tensor decayed(const Tensor& value, double weight_decay);
double sum_of_squares(const Tensor& x);
/// A slot, some of the way to something else.
Tensor moved(const Tensor& slot, const Tensor& towards, double share);
double mean_of_rows(const Tensor& rows);

}  // namespace cohort::internal::variables
