// SPDX-License-Identifier: Apache-2.0
//
// Cohort's tools:
//
//   cohort doctor
//   cohort status --address HOST:PORT
#include <CLI/CLI.hpp>
#include <exception>

#include "doctor.h"
#include "status.h"

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
  cohort_tool::StatusOptions status_options;
  CLI::App* status =
      app.add_subcommand("status", "What a job with parameter servers is doing at this moment");
  CLI::Option* address = status->add_option("--address", status_options.address,
                                            "The chief's HOST:PORT; else the one of TF_CONFIG");
  status
      ->add_option("--pid", status_options.pid,
                   "A process of the job on this machine, whose address and secrets are taken")
      ->check(CLI::PositiveNumber);
  status->add_flag("--watch", status_options.watch, "Again and again, until it is interrupted");
  status->add_flag("--json", status_options.json, "As one line of JSON");
  address->type_name("HOST:PORT");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    options.connect_timeout = std::chrono::milliseconds(timeout_ms);
    if (status->parsed()) return cohort_tool::status(status_options);
    return cohort_tool::doctor(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cohort: %s\n", e.what());
    return 1;
  }
}
