// SPDX-License-Identifier: Apache-2.0
//
// Times the fused update on the 269,322 parameters of the 784-256-256-10 network, in
// float, with one and two gradients, flush-to-zero on, each instruction set in turn. Cases are
// interleaved, so that all of them see the same state of the machine.
//
//   update_rules_bench [--rounds 41]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "cli_main.h"
#include "cohort/base/cpu.h"
#include "cohort/update_rules/update.h"

namespace {

using namespace cohort::update_rules;
constexpr std::size_t kSize = 269322;
constexpr std::size_t kPadded = 269328;

void flush_subnormals() {
#if defined(__SSE2__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

template <class T>
T* arena(T value) {
  void* memory = std::aligned_alloc(64, kPadded * sizeof(T));
  T* out = static_cast<T*>(memory);
  std::fill(out, out + kPadded, value);
  return out;
}

struct Case {
  std::string name;
  Rule rule;
  cohort::internal::base::Isa isa;
  std::size_t sources;
  std::vector<double> samples = {};
};

double time_one(Case& c, const Target<float>& target, const float* const (&gradients)[2]) {
  constexpr int kInner = 20;
  cohort::internal::base::use_isa(c.isa);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kInner; ++i) {
    fused_update<float>(c.rule, target, std::span(gradients).first(c.sources), 0, kSize);
  }
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / kInner;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (std::size_t sources : {1, 2}) {
    for (int isa = 0; isa <= static_cast<int>(cohort::internal::base::best_isa()); ++isa) {
      cases.push_back({"adam", AdamStep{}, static_cast<cohort::internal::base::Isa>(isa), sources});
    }
    cases.push_back({"sgd", SgdStep{}, cohort::internal::base::best_isa(), sources});
    cases.push_back({"momentum", MomentumStep{}, cohort::internal::base::best_isa(), sources});
    cases.push_back({"rmsprop", RmspropStep{}, cohort::internal::base::best_isa(), sources});
  }
  return cases;
}

struct Options {
  int rounds = 41;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--rounds", options.rounds, "Times that each case is timed")
      ->check(examples::at_least(1));
}

int run(const Options& options) {
  flush_subnormals();
  Target<float> target{.param = arena(0.5f), .slots = {arena(0.f), arena(0.f), arena(0.f)}};
  const float* const gradients[2] = {arena(0.01f), arena(0.02f)};
  std::vector<Case> cases = all_cases();
  for (int round = 0; round < options.rounds; ++round) {
    for (Case& c : cases) c.samples.push_back(time_one(c, target, gradients));
  }
  for (Case& c : cases) {
    std::sort(c.samples.begin(), c.samples.end());
    std::printf("update_rules_bench: rule=%s isa=%d gradients=%zu us=%.1f best_us=%.1f\n",
                c.name.c_str(), static_cast<int>(c.isa), c.sources, c.samples[c.samples.size() / 2],
                c.samples.front());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_cli<Options>(argc, argv, "Times the fused update.", declare, run);
}
