// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/rounded_gradients.h"

#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/test_exchange.h"

namespace cohort::internal::variables {
namespace {

using namespace exchange_test;
using update_rules::SgdStep;

uint16_t rounded(float x) {
  uint16_t out = 0;
  round_to_bfloat16({&x, 1}, {&out, 1});
  return out;
}
float widened(uint16_t x) {
  float out = 0;
  widen_bfloat16({&x, 1}, {&out, 1});
  return out;
}

TEST(RoundedGradients, RoundToNearestAndTiesToEven) {
  const auto at = [](uint32_t bits) { return rounded(std::bit_cast<float>(bits)); };
  EXPECT_EQ(at(0x3F800000), 0x3F80);
  EXPECT_EQ(at(0x3F808000), 0x3F80);  // half way: to the even one below,
  EXPECT_EQ(at(0x3F818000), 0x3F82);  // and above
  EXPECT_EQ(at(0x3F808001), 0x3F81);
  EXPECT_EQ(at(0x3F807FFF), 0x3F80);
  EXPECT_EQ(at(0x80000000), 0x8000);
  EXPECT_EQ(at(0x00008001), 0x0001);  // the smallest numbers stay
  EXPECT_EQ(at(0x7F7FFFFF), 0x7F80);  // beyond the largest one
  EXPECT_EQ(at(0xFF800000), 0xFF80);
  EXPECT_EQ(at(0x7F7F7FFF), 0x7F7F);
}

TEST(RoundedGradients, AgreeWithLibTorchsBfloat16) {
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 65'521) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const c10::BFloat16 expected(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(widened(rounded(x)))) << bits;
    } else {
      ASSERT_EQ(rounded(x), expected.x) << bits;
      ASSERT_EQ(std::bit_cast<uint32_t>(widened(rounded(x))),
                std::bit_cast<uint32_t>(static_cast<float>(expected)))
          << bits;
    }
  }
  // A NaN of which only low bits say so.
  EXPECT_TRUE(std::isnan(widened(rounded(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(widened(rounded(std::bit_cast<float>(0xFFFFFFFFU)))));
}

// What every worker brings is rounded, whoever adds it up: sums have no bit of their own.
TEST(RoundedGradients, AreThoseThatOneProcessWouldRound) {
  for (const WorldOptions& options : clippings()) {
    WorldOptions process = options;
    process.rounds_gradients = true;
    WorldOptions workers = options;
    workers.bfloat16_gradients = true;
    expect_bits_of_one_process(process, workers,
                               {collectives::Carrier::kThreads, collectives::Carrier::kTcp,
                                collectives::Carrier::kSharedMemory});
  }
}

TEST(RoundedGradients, OfSeveralReplicasAreRoundedOnce) {
  WorldOptions options{.bfloat16_gradients = true};
  const Trained got = train(2, 2, options);
  options.update.bytes_per_bucket = 3000;
  options.carrier = collectives::Carrier::kSharedMemory;
  EXPECT_EQ(got, train(2, 2, options));
  options = {.rounds_gradients = true};
  const Trained all_rounded = train(2, 2, options);  // each replica's, and then their sum is not
  EXPECT_NE(got.parameters, all_rounded.parameters);
  ASSERT_EQ(got.parameters.size(), all_rounded.parameters.size());
  for (std::size_t i = 0; i < got.parameters.size(); ++i) {
    ASSERT_NEAR(got.parameters[i], all_rounded.parameters[i], 0.05) << i;
  }
}

// Workers of which one rounds see what the other one sends.
TEST(RoundedGradients, TakeHalfOfTheBytes) {
  World world(2, 1);
  const auto errors = world.try_run([](Worker& w) {
    FusedUpdate update({w.variables[2]}, {.bfloat16_gradients = w.first() == 0});
    update.apply(Gradients({{w.gradient(2, 0, 0), w.variables[2]}}), SgdStep{.learning_rate = 1});
  });
  for (const auto& error : errors) {
    const std::string text = text_of(error);
    std::smatch bytes;
    ASSERT_TRUE(std::regex_search(text, bytes, std::regex("with (\\d+) bytes.* and (\\d+) bytes")))
        << text;
    const int64_t here = std::stoll(bytes[1]);
    const int64_t there = std::stoll(bytes[2]);
    EXPECT_EQ(std::max(here, there), 2 * std::min(here, there)) << text;
    // Half of the variable, up to the border between the two workers' slices.
    EXPECT_NEAR(std::max(here, there), 20'000, 64) << text;
  }
}

TEST(RoundedGradients, AreOfFloat32) {
  const auto store = std::make_shared<LocalVariables>(
      LocalVariablesOptions{.devices = {Device("CPU:0")}, .bfloat16_gradients = true});
  const VariableCreatorScope scope(store);
  const Variable narrow(arange(3, kFloat32), VariableOptions{.name = "narrow"});
  const Variable wide(arange(3, kFloat64), VariableOptions{.name = "wide"});
  EXPECT_EQ(store->make_updater({narrow}, {})->slot_count(), 0);
  testing::expect_error<InvalidArgument>({"[optimizer]", "bfloat16_gradients", "wide", "float64"},
                                         [&] {
                                           store->make_updater({narrow, wide}, {});
                                         });
}

}  // namespace
}  // namespace cohort::internal::variables
