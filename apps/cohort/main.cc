// SPDX-License-Identifier: Apache-2.0
//
// Cohort's tools:
//
//   cohort doctor
#include <CLI/CLI.hpp>
#include <exception>

#include "doctor.h"

int main(int argc, char** argv) {
  CLI::App app("Cohort's tools");
  app.require_subcommand(1);
  cohort_tool::DoctorOptions options;
  CLI::App* doctor =
      app.add_subcommand("doctor", "What a process of a job finds here, and what is wrong");
  int timeout_ms = 2000;
  doctor->add_option("--timeout-ms", timeout_ms, "For each address of the cluster")
      ->check(CLI::Range(1, 600'000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    options.connect_timeout = std::chrono::milliseconds(timeout_ms);
    return cohort_tool::doctor(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cohort: %s\n", e.what());
    return 1;
  }
}
