// SPDX-License-Identifier: Apache-2.0
//
// The main function of a program with flags:
//
//   struct Options { int epochs = 5; };
//   void declare(examples::Flags& flags, Options& options) {
//     flags.add("--epochs", options.epochs, "Passes", {.at_least = 1});
//   }
//   int run(const Options& options);
//   int main(int argc, char** argv) {
//     return examples::run_main<Options>(argc, argv, "Trains.", declare, run);
//   }
//
// CLI11 reads them, in flags.cc: its header costs more to compile than all of Cohort's.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace examples {

/// What is no number, or too large for its variable, is refused without being told.
struct FlagOptions {
  double at_least = -std::numeric_limits<double>::infinity();
  std::vector<std::string> one_of = {};  ///< Empty: any text.
  std::string variable = {};  ///< Of the environment: the value if the flag is not given.
};

/// The flags of a program. Each has the value of its variable where it is not given; a `bool` is
/// true if its flag is there.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  void add(const char* name, int& value, const char* meaning, const FlagOptions& options = {});
  void add(const char* name, int64_t& value, const char* meaning, const FlagOptions& options = {});
  void add(const char* name, uint64_t& value, const char* meaning, const FlagOptions& options = {});
  void add(const char* name, double& value, const char* meaning, const FlagOptions& options = {});
  void add(const char* name, std::string& value, const char* meaning,
           const FlagOptions& options = {});
  void add(const char* name, bool& value, const char* meaning);

 private:
  CLI::App& app_;
};

/// Returns what `work` does. --help says what every flag means and which value it has where it is
/// not given, and returns 0. An unknown flag, or a value that does not fit, is told on stderr and
/// returns 2; so is an exception of `work`, which returns cohort::exit_code_of() it.
int run_with_flags(int argc, char** argv, const std::string& purpose,
                   const std::function<void(Flags&)>& declare, const std::function<int()>& work);

template <class Options, class Declare, class Work>
int run_main(int argc, char** argv, const std::string& purpose, Declare&& declare, Work&& work) {
  Options options;
  return run_with_flags(
      argc, argv, purpose, [&](Flags& flags) { declare(flags, options); },
      [&] { return work(options); });
}

}  // namespace examples
