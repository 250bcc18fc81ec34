// SPDX-License-Identifier: Apache-2.0
#include "flags.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace examples {
namespace {

struct Options {
  int epochs = 5;
  std::string folder = "here";
};

void declare(Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Passes", {.at_least = 1});
  flags.add("--folder", options.folder, "Where");
}

struct Outcome {
  int status = 0;
  bool worked = false;
  Options options;
  std::string out;
  std::string err;
};

Outcome run_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  Outcome outcome;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  outcome.status = run_main<Options>(static_cast<int>(argv.size()), argv.data(), "Trains.", declare,
                                     [&](const Options& options) {
                                       outcome.worked = true;
                                       outcome.options = options;
                                       if (options.epochs == 13)
                                         throw std::runtime_error("no data");
                                       return 7;
                                     });
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Flags, HaveValuesOrTheirDefaults) {
  const Outcome some = run_with({"--folder", "there"});
  EXPECT_EQ(some.status, 7);
  EXPECT_EQ(some.options.epochs, 5);
  EXPECT_EQ(some.options.folder, "there");
  EXPECT_EQ(run_with({"--epochs=3"}).options.epochs, 3);
}

TEST(Flags, WhatIsWrongIsToldBeforeAnyWork) {
  for (const auto& [arguments, told] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--epoch", "3"}, "--epoch"},
           {{"3"}, "3"},
           {{"--epochs"}, "--epochs"},
           {{"--epochs", "many"}, "many"},
           {{"--epochs", "3x"}, "3x"},
           {{"--epochs", "-1"}, "--epochs: expected at least 1, got -1"},
           {{"--epochs", "3", "--epochs", "4"}, "--epochs"}}) {
    const Outcome outcome = run_with(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments.back();
    EXPECT_FALSE(outcome.worked) << arguments.back();
    EXPECT_NE(outcome.err.find(told), std::string::npos) << told << " is not in: " << outcome.err;
  }
}

TEST(Flags, HelpShowsFlagsAndDefaults) {
  const Outcome outcome = run_with({"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_FALSE(outcome.worked);
  for (const char* word : {"Trains.", "--epochs", "Passes", "5", "here"}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word << " is not in: " << outcome.out;
  }
}

TEST(Flags, AnExceptionOfTheWorkIsTold) {
  const Outcome outcome = run_with({"--epochs", "13"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "no data\n");
}

}  // namespace
}  // namespace examples
