// SPDX-License-Identifier: Apache-2.0
//
// kAutotune against every fixed setting, on unlike pipelines: a map that computes, reads that wait
// (map and interleave), a light map with a prefetch, where threads only hurt, and a map beside two
// replicas that fill two cores.
//
// Every setting has an iterator that lives through the whole run; in every round each is read for a
// while, in turn. One line a pipeline: elements a second of the best fixed setting and of
// kAutotune (medians over the rounds), and the median over rounds of kAutotune's share of that
// best setting.
//
//   autotune_bench [--rounds 9] [--milliseconds 100]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli_main.h"
#include "cohort/data/dataset.h"
#include "cohort/strategy/distributed_dataset.h"
#include "cohort/strategy/strategies.h"
#include "statistics.h"

namespace {

using namespace cohort;  // NOLINT: a program
using Clock = std::chrono::steady_clock;
using data::kAutotune;

constexpr int64_t kEndless = int64_t{1} << 40;

using Read = std::function<void()>;

struct Contender {
  std::string setting;
  Read read;  ///< One element.
  std::vector<double> rates = {};
};

struct Pipeline {
  std::string name;
  std::vector<Contender> fixed;
  Contender tuned;
};

/// About 200 us of arithmetic.
int64_t compute(int64_t x) {
  double sum = static_cast<double>(x);
  for (int i = 0; i < 40000; ++i) sum = std::sqrt(sum + i);
  return static_cast<int64_t>(sum);
}
/// A read from far away.
int64_t fetch(int64_t x) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return x;
}
int64_t light(int64_t x) { return x + 1; }

Read of(const Dataset& dataset) {
  return [iterator = std::make_shared<Iterator>(dataset.make_iterator())] { iterator->next(); };
}

/// Steps of two replicas that compute about 600 us each.
Read training(const Dataset& batches) {
  struct Run {
    MirroredStrategy strategy{std::vector<Device>{"CPU:0", "CPU:1"}};
    DistributedDataset data;
    DistributedIterator iterator;
    explicit Run(const Dataset& batches)
        : data(strategy.distribute_dataset(batches)), iterator(data.make_iterator()) {}
    void step() {
      iterator.next();
      strategy.run([](int64_t x) { return compute(compute(compute(x))); }, int64_t{1});
    }
  };
  return [run = std::make_shared<Run>(batches)] { run->step(); };
}

template <class Make>
Pipeline with_calls(std::string name, const std::vector<int>& fixed, const Make& make) {
  Pipeline out{std::move(name), {}, {"autotune", of(make(kAutotune))}};
  for (const int calls : fixed) out.fixed.push_back({std::to_string(calls), of(make(calls))});
  return out;
}

Pipeline computing() {
  return with_calls("map that computes", {1, 2, 3, 4, 8}, [](int calls) {
    return Dataset::range(kEndless).map(compute, {.parallel_calls = calls}).prefetch(2);
  });
}

Pipeline fetching() {
  return with_calls("map that waits", {1, 2, 4, 8, 16, 32, 64}, [](int calls) {
    return Dataset::range(kEndless).map(fetch, {.parallel_calls = calls}).prefetch(2);
  });
}

Pipeline beside_replicas() {
  const auto make = [](int calls) {
    return training(Dataset::range(kEndless).map(compute, {.parallel_calls = calls}).batch(2));
  };
  Pipeline out{"map beside replicas", {}, {"autotune", make(kAutotune)}};
  for (const int calls : {1, 2, 4, 8}) out.fixed.push_back({std::to_string(calls), make(calls)});
  return out;
}

Pipeline interleaving() {
  return with_calls("interleave that waits", {1, 2, 4, 8, 16, 32}, [](int calls) {
    auto open = [](int64_t) { return Dataset::range(200).map(fetch); };
    return Dataset::range(kEndless).interleave(open, {.cycle_length = 16, .parallel_calls = calls});
  });
}

Pipeline light_work() {
  const auto make = [](int calls, int64_t buffer) {
    return Dataset::range(kEndless).map(light, {.parallel_calls = calls}).prefetch(buffer);
  };
  Pipeline out{"light map, prefetch", {}, {"autotune", of(make(kAutotune, kAutotune))}};
  for (const int calls : {1, 2, 4}) {
    for (const int64_t buffer : {1, 2, 16, 128}) {
      out.fixed.push_back({std::to_string(calls) + " calls, buffer " + std::to_string(buffer),
                           of(make(calls, buffer))});
    }
  }
  return out;
}

double rate(const Read& read, Clock::duration time) {
  const auto begin = Clock::now();
  auto now = begin;
  int64_t count = 0;
  while (now - begin < time) {
    for (int i = 0; i < 8; ++i) read();
    count += 8;
    now = Clock::now();
  }
  return static_cast<double>(count) / std::chrono::duration<double>(now - begin).count();
}

void measure(Pipeline pipeline, int rounds, Clock::duration turn) {
  rate(pipeline.tuned.read, 20 * turn);  // It is given time to tune.
  for (Contender& contender : pipeline.fixed) rate(contender.read, turn);
  for (int round = 0; round < rounds; ++round) {
    pipeline.tuned.rates.push_back(rate(pipeline.tuned.read, turn));
    for (Contender& contender : pipeline.fixed) {
      contender.rates.push_back(rate(contender.read, turn));
    }
  }
  const Contender& best = *std::max_element(
      pipeline.fixed.begin(), pipeline.fixed.end(), [](const Contender& a, const Contender& b) {
        return bench::median(a.rates) < bench::median(b.rates);
      });
  std::vector<double> ratios;
  for (std::size_t i = 0; i < best.rates.size(); ++i) {
    ratios.push_back(pipeline.tuned.rates[i] / best.rates[i]);
  }
  std::printf("%-24s best fixed %9.0f /s (%s), autotune %9.0f /s, ratio %.2f\n",
              pipeline.name.c_str(), bench::median(best.rates), best.setting.c_str(),
              bench::median(pipeline.tuned.rates), bench::median(ratios));
  std::fflush(stdout);
}

struct Options {
  int rounds = 9;
  int milliseconds = 100;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--rounds", options.rounds, "Turns of every setting")
      ->check(examples::at_least(1));
  app.add_option("--milliseconds", options.milliseconds, "A turn")->check(examples::at_least(1));
}

int run(const Options& options) {
  const std::chrono::milliseconds turn(options.milliseconds);
  for (const auto& make : {computing, fetching, interleaving, light_work, beside_replicas}) {
    measure(make(), options.rounds, turn);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_cli<Options>(argc, argv, "Measures kAutotune against fixed settings.",
                                    declare, run);
}
