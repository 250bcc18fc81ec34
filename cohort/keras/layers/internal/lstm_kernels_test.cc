// SPDX-License-Identifier: Apache-2.0
//
// The LSTM's kernels of each instruction set against its formulas in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cohort/keras/layers/internal/test_kernels.h"

namespace cohort::keras::internal {
namespace {

struct LSTMSizes {
  int64_t steps, rows, units;
};

// Around the edges of vectors, tiles and panels.
const std::vector<LSTMSizes> kLSTMSizes = {{1, 1, 1},  {3, 2, 5},   {2, 7, 16}, {4, 13, 17},
                                           {2, 6, 33}, {3, 12, 64}, {2, 9, 70}};

enum class Masking { kNone, kZeros, kStays };

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

std::size_t count_of(int64_t n) { return static_cast<std::size_t>(n); }

Floats draws(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  Floats out(count_of(n));
  for (float& v : out) {
    v = static_cast<float>(random() >> 8U) / static_cast<float>(1U << 23U) * 2 - 2;
  }
  return out;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// A sequence in memory of exactly its size, and the same by formula.
struct LSTMCase {
  LSTMCase(const LSTMSizes& size, Masking masking)
      : sizes(size),
        recurrent(draws(size.units * 4 * size.units, 1)),
        gates(draws(size.steps * size.rows * 4 * size.units, 2)),
        state(draws((size.steps + 1) * size.rows * size.units, 3)),
        carry(draws((size.steps + 1) * size.rows * size.units, 4)),
        tanh_carry(count_of(size.steps * size.rows * size.units)),
        output(tanh_carry.size()),
        d_output(draws(size.steps * size.rows * size.units, 5)),
        d_state(draws(2 * size.rows * size.units, 6)),
        d_carry(draws(size.rows * size.units, 7)),
        d_gates(gates.size()),
        carried(d_carry.size()),
        counts(new bool[count_of(size.steps * size.rows)]),
        kind(masking) {
    for (float& v : recurrent) v /= std::sqrt(static_cast<float>(size.units));
    for (int64_t i = 0; i < size.steps * size.rows; ++i) counts[count_of(i)] = i % 3 != 1;
  }

  LSTMSequence sequence() {
    const bool masked = kind != Masking::kNone;
    return {.steps = sizes.steps,
            .rows = sizes.rows,
            .units = sizes.units,
            .gates = gates.data(),
            .state = state.data(),
            .carry = carry.data(),
            .tanh_carry = tanh_carry.data(),
            .mask = masked ? counts.get() : nullptr,
            .output = masked ? output.data() : nullptr,
            .zero_output = kind == Masking::kZeros};
  }
  LSTMGradients gradients(const Floats& transposed) {
    return {.sequence = sequence(),
            .transposed = transposed.data(),
            .output = d_output.data(),
            .output_step = sizes.rows * sizes.units,
            .output_row = sizes.units,
            .last_only = false,
            .state = d_state.data(),
            .carry = d_carry.data(),
            .carried = kind == Masking::kStays ? carried.data() : nullptr,
            .gates = d_gates.data()};
  }
  bool is_counted(int64_t t, int64_t row) const {
    return kind == Masking::kNone || counts[count_of(t * sizes.rows + row)];
  }

  LSTMSizes sizes;
  Floats recurrent, gates, state, carry, tanh_carry, output;
  Floats d_output, d_state, d_carry, d_gates, carried;
  std::unique_ptr<bool[]> counts;  // NOLINT(modernize-avoid-c-arrays)
  Masking kind;
};

void run_forward(const Kernels& k, LSTMCase& c, int64_t parts) {
  const int64_t units = c.sizes.units, lanes = k.lanes;
  Floats packed(count_of((units + lanes - 1) / lanes * lanes * 4 * units));
  k.lstm_pack(c.recurrent.data(), units, packed.data());
  for (int64_t i = 0; i < parts; ++i) {
    k.lstm_forward(c.sequence(), packed.data(), c.sizes.rows * i / parts,
                   c.sizes.rows * (i + 1) / parts);
  }
}

void run_backward(const Kernels& k, LSTMCase& c, int64_t parts) {
  const int64_t units = c.sizes.units;
  Floats transposed(c.recurrent.size());
  for (int64_t i = 0; i < units; ++i) {
    for (int64_t j = 0; j < 4 * units; ++j) {
      transposed[count_of(j * units + i)] = c.recurrent[count_of(i * 4 * units + j)];
    }
  }
  for (int64_t i = 0; i < parts; ++i) {
    k.lstm_backward(c.gradients(transposed), c.sizes.rows * i / parts,
                    c.sizes.rows * (i + 1) / parts);
  }
}

void expect_close(const Floats& got, const Doubles& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << what << " at " << i;
  }
}

// What a case's forward pass leaves, by formula.
struct Expected {
  Doubles gates, state, carry, output;
};

void expect_step(const LSTMCase& c, int64_t t, int64_t row, Expected& e) {
  const int64_t units = c.sizes.units, size = c.sizes.rows * units;
  const int64_t at = t * size + row * units;
  for (int64_t k = 0; k < units; ++k) {
    double z[4] = {};
    for (int64_t g = 0; g < 4; ++g) {
      double& gate = e.gates[count_of(at * 4 + g * units + k)];
      for (int64_t j = 0; j < units; ++j) {
        gate += e.state[count_of(at + j)] * double{c.recurrent[count_of((j * 4 + g) * units + k)]};
      }
      z[g] = gate = g == 2 ? std::tanh(gate) : logistic(gate);
    }
    const double carry = z[1] * e.carry[count_of(at + k)] + z[0] * z[2];
    const bool counted = c.is_counted(t, row);
    e.carry[count_of(at + size + k)] = counted ? carry : e.carry[count_of(at + k)];
    e.state[count_of(at + size + k)] =
        counted ? z[3] * std::tanh(carry) : e.state[count_of(at + k)];
    if (c.kind == Masking::kNone) continue;
    const bool stays = c.kind == Masking::kStays && t > 0;
    e.output[count_of(at + k)] = counted ? e.state[count_of(at + size + k)]
                                 : stays ? e.output[count_of(at + k - size)]
                                         : 0;
  }
}

Expected expected_forward(const LSTMCase& c) {
  Expected e{{c.gates.begin(), c.gates.end()},
             {c.state.begin(), c.state.end()},
             {c.carry.begin(), c.carry.end()},
             Doubles(c.output.size())};
  for (int64_t t = 0; t < c.sizes.steps; ++t) {
    for (int64_t row = 0; row < c.sizes.rows; ++row) expect_step(c, t, row, e);
  }
  return e;
}

// The sum of outputs and last states by their gradients: what the gradients are derivatives of.
double loss_of(const LSTMCase& c) {
  const Expected e = expected_forward(c);
  const int64_t size = c.sizes.rows * c.sizes.units, last = c.sizes.steps * size;
  double sum = 0;
  for (int64_t i = 0; i < last; ++i) {
    const double y = c.kind == Masking::kNone ? e.state[count_of(i + size)] : e.output[count_of(i)];
    sum += y * double{c.d_output[count_of(i)]};
  }
  for (int64_t i = 0; i < size; ++i) {
    sum += e.state[count_of(last + i)] * double{c.d_state[count_of(i)]};
    sum += e.carry[count_of(last + i)] * double{c.d_carry[count_of(i)]};
  }
  return sum;
}

// Central differences by one number of a case.
double slope(LSTMCase& c, float& number) {
  const float middle = number;
  number = middle + 1e-3F;
  const double above = loss_of(c), high = number;
  number = middle - 1e-3F;
  const double below = loss_of(c), low = number;
  number = middle;
  return (above - below) / (high - low);
}

TEST(LSTMKernels, ComputeTheFormulas) {
  for (const KernelsOfIsa& table : all_kernels()) {
    for (const LSTMSizes& sizes : kLSTMSizes) {
      for (const Masking masking : {Masking::kNone, Masking::kZeros, Masking::kStays}) {
        LSTMCase c(sizes, masking);
        const Expected e = expected_forward(c);
        run_forward(*table.kernels, c, 1);
        expect_close(c.gates, e.gates, std::string(table.name) + " gates");
        expect_close(c.state, e.state, std::string(table.name) + " states");
        expect_close(c.carry, e.carry, std::string(table.name) + " carries");
        expect_close(c.output, e.output, std::string(table.name) + " outputs");
      }
    }
  }
}

TEST(LSTMKernels, GoBackAlongTheSlopes) {
  for (const KernelsOfIsa& table : all_kernels()) {
    for (const LSTMSizes& sizes : kLSTMSizes) {
      for (const Masking masking : {Masking::kNone, Masking::kZeros, Masking::kStays}) {
        LSTMCase before(sizes, masking), c(sizes, masking);
        run_forward(*table.kernels, c, 1);
        run_backward(*table.kernels, c, 1);
        const auto expect_slope = [&](float& number, float got, const char* what) {
          const double want = slope(before, number);
          EXPECT_NEAR(got, want, 1e-3 * (1 + std::abs(want)))
              << table.name << ' ' << what << " of " << sizes.steps << " x " << sizes.rows << " x "
              << sizes.units << ", masking " << static_cast<int>(masking);
        };
        for (std::size_t i = 0; i < c.gates.size(); i += c.gates.size() / 7 + 1) {
          expect_slope(before.gates[i], c.d_gates[i], "gates");
        }
        const std::size_t size = c.d_carry.size();
        const std::size_t end = sizes.steps % 2 == 0 ? 0 : size;
        for (std::size_t i = 0; i < size; i += size / 5 + 1) {
          expect_slope(before.state[i], c.d_state[end + i], "first state");
          expect_slope(before.carry[i], c.d_carry[i], "first carry");
        }
      }
    }
  }
}

TEST(LSTMKernels, GiveARowTheSameBitsWhateverIsBesideIt) {
  for (const KernelsOfIsa& table : all_kernels()) {
    for (const LSTMSizes& sizes : kLSTMSizes) {
      LSTMCase whole(sizes, Masking::kStays), parts(sizes, Masking::kStays);
      run_forward(*table.kernels, whole, 1);
      run_forward(*table.kernels, parts, 3);
      EXPECT_EQ(whole.gates, parts.gates) << table.name;
      EXPECT_EQ(whole.state, parts.state) << table.name;
      run_backward(*table.kernels, whole, 1);
      run_backward(*table.kernels, parts, 3);
      EXPECT_EQ(whole.d_gates, parts.d_gates) << table.name;
      EXPECT_EQ(whole.d_carry, parts.d_carry) << table.name;
    }
  }
}

// One step of one unit, of which only the input gate's product is not 0.
float input_gate(const Kernels& kernels, float x) {
  LSTMCase c({1, 1, 1}, Masking::kNone);
  std::fill(c.recurrent.begin(), c.recurrent.end(), 0.0F);
  c.gates = {x, 0, 0, 0};
  run_forward(kernels, c, 1);
  return c.gates[0];
}
float candidate(const Kernels& kernels, float x) {
  LSTMCase c({1, 1, 1}, Masking::kNone);
  std::fill(c.recurrent.begin(), c.recurrent.end(), 0.0F);
  c.gates = {0, 0, x, 0};
  run_forward(kernels, c, 1);
  return c.gates[2];
}

TEST(LSTMKernels, ActivateLargeSmallAndNoNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const KernelsOfIsa& table : all_kernels()) {
    const Kernels& k = *table.kernels;
    for (const float x :
         {0.0F, 1e-30F, 1e-6F, 3e-3F, 0.1F, 0.35F, 0.7F, 3.0F, 9.5F, 30.0F, 80.0F}) {
      for (const float v : {x, -x}) {
        EXPECT_NEAR(candidate(k, v), std::tanh(double{v}), 4e-7 * std::abs(std::tanh(double{v})))
            << table.name << ' ' << v;
        EXPECT_NEAR(input_gate(k, v), logistic(v), 4e-7 * logistic(v)) << table.name << ' ' << v;
      }
    }
    EXPECT_EQ(input_gate(k, kInfinity), 1) << table.name;
    EXPECT_NEAR(input_gate(k, -kInfinity), 0, 1e-34) << table.name;
    EXPECT_EQ(candidate(k, kInfinity), 1) << table.name;
    EXPECT_EQ(candidate(k, -1e30F), -1) << table.name;
    EXPECT_TRUE(std::isnan(input_gate(k, std::nanf("")))) << table.name;
    EXPECT_TRUE(std::isnan(candidate(k, std::nanf("")))) << table.name;
  }
}

}  // namespace
}  // namespace cohort::keras::internal
