// SPDX-License-Identifier: Apache-2.0
//
// Forecasts of a series of temperatures, one for each hour: a convolution over the last two days,
// then a GRU, says what the next hour will be. Weather is made here: a year, a day, and what lasts
// some hours. Ends with an error unless the forecast is better than two that need no network: as it
// is now, and as it was a day ago.
//
//   time_series [--epochs 4] [--hours 6000] [--batch 64] [--seed 1]
#include <cmath>
#include <cstdio>
#include <random>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kPast = 48;  // hours that a forecast sees
constexpr int64_t kDay = 24;

struct Options {
  int epochs = 4;
  int64_t hours = 6000;
  int64_t batch = 64;  // over all replicas
  uint64_t seed = 1;
};

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes over the series", {.at_least = 1});
  flags.add("--hours", options.hours, "Length of the series", {.at_least = 10 * kPast});
  flags.add("--batch", options.batch, "Forecasts a step, over all replicas", {.at_least = 1});
  flags.add("--seed", options.seed, "Of weather, weights and order");
}

Tensor temperatures(int64_t hours, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> out;
  double weather = 0;
  for (int64_t h = 0; h < hours; ++h) {
    const auto hour = static_cast<double>(h);
    weather = 0.95 * weather + 0.5 * normal(random);
    const double year = -8 * std::cos(2 * M_PI * hour / (365.0 * kDay));
    const double day = -5 * std::cos(2 * M_PI * (hour - 4) / kDay);
    out.push_back(static_cast<float>(10 + year + day + weather));
  }
  return from_vector(out, {hours});
}

double error_of(const Tensor& forecast, const Tensor& truth) {
  return (forecast - truth).abs().mean().item<double>();
}

int run(const Options& options) {
  set_seed(options.seed);
  const Tensor series = temperatures(options.hours, options.seed);
  // Each row has the hours up to one of them, and that one.
  const Tensor windows = series.unfold(0, kPast + 1, 1);
  const int64_t learned = windows.size(0) * 4 / 5;
  const Tensor past = windows.narrow(1, 0, kPast);
  const Tensor next = windows.narrow(1, kPast, 1);
  // The numbers of the past alone say what is usual.
  const double mean = series.narrow(0, 0, learned).mean().item<double>();
  const double spread = series.narrow(0, 0, learned).std().item<double>();
  const Tensor x = ((past - mean) / spread).unsqueeze(-1);
  const Tensor y = (next - mean) / spread;

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  keras::Sequential model({keras::InputLayer({kPast, 1}),
                           keras::Conv1D(16, 5, {.strides = 2, .activation = "relu"}),
                           keras::GRU(24), keras::Dense(1)});
  model.compile({.optimizer = keras::Adam({.learning_rate = 5e-3}), .loss = "mse"});
  model.summary();
  model.fit(x.narrow(0, 0, learned), y.narrow(0, 0, learned),
            {.epochs = options.epochs, .batch_size = options.batch, .validation_split = 0.1});

  // The hours behind what it has learned, so that nothing of them was seen.
  const int64_t first = learned + kPast;
  const int64_t count = windows.size(0) - first;
  const Tensor truth = next.narrow(0, first, count);
  const Tensor forecast =
      model.predict(x.narrow(0, first, count), {.verbose = keras::Verbose::kSilent}) * spread +
      mean;
  const double error = error_of(forecast, truth);
  const double as_now = error_of(past.narrow(1, kPast - 1, 1).narrow(0, first, count), truth);
  const double as_yesterday =
      error_of(past.narrow(1, kPast - kDay, 1).narrow(0, first, count), truth);
  std::printf("wrong by %.2f degrees; as now %.2f, as yesterday %.2f\n", error, as_now,
              as_yesterday);
  return error < 0.8 * as_now && error < 0.8 * as_yesterday ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Forecasts temperatures.", declare, run);
}
