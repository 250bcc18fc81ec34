// SPDX-License-Identifier: Apache-2.0
//
// The main function of a program whose flags CLI11 reads, for benchmarks; examples have flags.h:
//
//   struct Options { int epochs = 5; };
//   void declare(CLI::App& app, Options& o) { app.add_option("--epochs", o.epochs, "Passes"); }
//   int run(const Options& options);
//   int main(int argc, char** argv) {
//     return examples::run_cli<Options>(argc, argv, "Trains.", declare, run);
//   }
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "cohort/base/exit_code.h"

namespace examples {

/// For `check`: a number that is not smaller. What is no number, CLI11 refuses itself.
inline CLI::Validator at_least(double least) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", least);
  const auto complaint = [least, text = std::string(text)](const std::string& value) {
    double number = 0;
    const bool fits = !CLI::detail::lexical_cast(value, number) || number >= least;
    return fits ? std::string() : "expected at least " + text + ", got " + value;
  };
  return {complaint, "", "at_least"};
}

/// Promises what run_with_flags does (flags.h), of an App.
template <class Declare, class Work>
int run_cli(int argc, char** argv, const std::string& purpose, Declare&& declare, Work&& work) {
  try {
    CLI::App app(purpose);
    app.option_defaults()->always_capture_default();
    declare(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    return work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return cohort::exit_code_of(error);
  }
}

/// The same with a struct of what was given: declare(app, options), work(options).
template <class Options, class Declare, class Work>
int run_cli(int argc, char** argv, const std::string& purpose, Declare&& declare, Work&& work) {
  Options options;
  return run_cli(
      argc, argv, purpose, [&](CLI::App& app) { declare(app, options); },
      [&] { return work(options); });
}

}  // namespace examples
