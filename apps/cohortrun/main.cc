// SPDX-License-Identifier: Apache-2.0
//
// Starts a program in several processes of this host, which train together:
//
//   cohortrun --workers 2 -- ./multi_worker_mnist --epochs 3
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "job.h"
#include "supervisor.h"

namespace {

struct Options {
  cohortrun::JobOptions job = {};
  int grace_seconds = 30;
  std::vector<std::string> command = {};
};

void declare(CLI::App& app, Options& o) {
  app.add_option("--workers,--nproc-per-node,--nproc_per_node", o.job.workers,
                 "Processes of the job 'worker'")
      ->check(CLI::Range(0, 1000));
  app.add_flag("--chief", o.job.chief, "One more, of the job 'chief'");
  app.add_flag("--evaluator", o.job.evaluator, "One more, of the job 'evaluator'");
  app.add_option("--cpus-per-worker", o.job.cpus_per_task,
                 "Cores that each process is kept on; by default an equal share")
      ->check(CLI::Range(1, 1024));
  app.add_flag("!--no-bind", o.job.bind, "Keep no process on cores of its own");
  app.add_option("--port-base", o.job.port_base,
                 "The first process listens here, each other one port further; by default at free "
                 "ports")
      ->check(CLI::Range(1024, 64'000));
  app.add_option("--grace", o.grace_seconds, "Seconds between SIGTERM and SIGKILL")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
  app.add_option("command", o.command, "The program and its arguments, after --")->required();
  app.positionals_at_end();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Starts a program in several processes, each with its TF_CONFIG.");
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : 2;
  }
  try {
    return cohortrun::run_job(cohortrun::plan_job(options.job), options.command,
                              {.grace = std::chrono::seconds(options.grace_seconds)});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cohortrun: %s\n", e.what());
    return 1;
  }
}
