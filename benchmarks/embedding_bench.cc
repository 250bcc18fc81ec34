// SPDX-License-Identifier: Apache-2.0
//
// Measures a training step of a table of embeddings: 4096 ids are looked up, differentiated, and
// Adam updates what they name. With lazy_rows a step costs the ids whatever the table's size;
// beside it Keras's dense result, and what torch.optim.SparseAdam does, operation by operation.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/strings.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/strategy/strategies.h"
#include "ways.h"

namespace cohort::bench {
namespace {

constexpr std::int64_t kIds = 4096;
constexpr std::int64_t kWidth = 32;
constexpr int kBatches = 16;

template <class Step>
double time_of_each(std::int64_t steps, const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < steps; ++i) step(i % kBatches);
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(steps);
}

// The same numbers for all: multiples of a prime, of which some meet.
std::vector<Tensor> batches(std::int64_t rows) {
  std::vector<Tensor> out;
  for (int b = 0; b < kBatches; ++b) {
    out.push_back((arange(kIds, kInt64) * 7919 * (b + 1) + b).pow(2).remainder(rows));
  }
  return out;
}

Way cohort_way(std::int64_t rows, bool lazy) {
  struct State {
    explicit State(std::int64_t rows, bool lazy)
        : optimizer(keras::Adam({.learning_rate = 1e-3, .lazy_rows = lazy})), ids(batches(rows)) {
      auto scope = strategy.scope();
      table = Variable(zeros({rows, kWidth}), {.name = "table"});
    }
    void step(std::int64_t batch) const {
      GradientTape tape;
      const Tensor found = embedding_lookup(table, ids[static_cast<std::size_t>(batch)]);
      const Tensor loss = (found - 1).pow(2).sum();
      optimizer.apply_gradients(tape.gradient(loss, std::span(&table, 1)));
    }
    const OneDeviceStrategy strategy{"CPU:0"};
    const keras::Optimizer optimizer;
    const std::vector<Tensor> ids;
    Variable table;
  };
  const auto state = std::make_shared<State>(rows, lazy);
  return {lazy ? "cohort" : "dense", [state](std::int64_t steps) {
            return time_of_each(steps, [&](std::int64_t batch) {
              state->strategy.run([&] { state->step(batch); });
            });
          }};
}

/// torch/optim/_functional.py, sparse_adam.
struct SparseAdam {
  explicit SparseAdam(std::int64_t rows)
      : table(zeros({rows, kWidth}).set_requires_grad(true)),
        mean(zeros({rows, kWidth})),
        square(zeros({rows, kWidth})),
        ids(batches(rows)) {}

  Tensor sparse(const Tensor& indices, const Tensor& values) const {
    return at::sparse_coo_tensor(indices, values, table.sizes());
  }
  void step(std::int64_t batch) {
    const Tensor found = at::embedding(table, ids[static_cast<std::size_t>(batch)],
                                       /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                                       /*sparse=*/true);
    (found - 1).pow(2).sum().backward();
    const at::NoGradGuard no_grad;
    const Tensor gradient = table.grad().coalesce();
    table.mutable_grad().reset();
    ++count;
    const Tensor indices = gradient._indices();
    const Tensor values = gradient._values();
    const Tensor old_mean = mean.sparse_mask(gradient)._values();
    const Tensor mean_step = values.sub(old_mean).mul_(1 - 0.9);
    mean.add_(sparse(indices, mean_step));
    const Tensor old_square = square.sparse_mask(gradient)._values();
    const Tensor square_step = values.pow(2).sub_(old_square).mul_(1 - 0.999);
    square.add_(sparse(indices, square_step));
    const Tensor numerator = mean_step.add_(old_mean);
    const Tensor denominator = square_step.add_(old_square).sqrt_().add_(1e-8);
    const double rate = 1e-3 * std::sqrt(1 - std::pow(0.999, count)) / (1 - std::pow(0.9, count));
    table.add_(sparse(indices, numerator.div_(denominator).mul_(-rate)));
  }

  const Tensor table;
  const Tensor mean;
  const Tensor square;
  const std::vector<Tensor> ids;
  int count = 0;
};

Way sparse_adam_way(std::int64_t rows) {
  const auto state = std::make_shared<SparseAdam>(rows);
  return {"sparse_adam", [state](std::int64_t steps) {
            const at::AutoGradMode recording(true);
            return time_of_each(steps, [&](std::int64_t batch) { state->step(batch); });
          }};
}

std::vector<WaysCase> embedding_cases(const std::vector<int>&) {
  std::vector<WaysCase> cases;
  for (const std::int64_t rows : {10'000, 100'000, 1'000'000}) {
    cases.push_back(
        {str_cat("rows:", rows), {{"rows", rows}, {"width", kWidth}, {"ids", kIds}}, [rows] {
           return std::vector<Way>{cohort_way(rows, true), sparse_adam_way(rows),
                                   cohort_way(rows, false)};
         }});
  }
  return cases;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  return ways_main(argc, argv,
                   {"embedding_bench",
                    "Times a step of Adam over a table of embeddings.",
                    {},
                    embedding_cases,
                    columns_beside_others});
}
