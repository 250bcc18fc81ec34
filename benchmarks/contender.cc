// SPDX-License-Identifier: Apache-2.0
#include "contender.h"

#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "cohort/base/check.h"

namespace cohort::bench {
namespace {

std::string answer(Contender& contender, std::unique_ptr<Workload>& workload,
                   const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  std::ostringstream out;
  out.precision(17);
  if (command == "init") {
    std::string path;
    words >> path;
    auto next = std::make_unique<Workload>(path);
    contender.init(*next);
    workload = std::move(next);
    return "";
  }
  std::int64_t steps = 0;
  words >> steps;
  COHORT_CHECK_ARG(words && steps > 0, "[step_bench] expected a number of steps, got ", line);
  COHORT_CHECK_STATE(workload, "[step_bench] expected init before ", command);
  if (command == "loss") {
    const double loss = contender.loss(steps);
    out << ' ' << loss << ' ' << contender.divergence();
  } else if (command == "run") {
    const StepTime time = contender.run(steps);
    out << ' ' << time.nanoseconds << ' ' << time.loss;
  } else {
    throw InvalidArgument(str_cat("[step_bench] unknown command ", command));
  }
  return out.str();
}

}  // namespace

void fix_allocator() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

int serve(Contender& contender, const std::string& versions) {
  std::FILE* out = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::fprintf(out, "ready %s\n", versions.c_str());
  std::fflush(out);
  std::unique_ptr<Workload> workload;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::string reply;
    try {
      reply = "ok" + answer(contender, workload, line);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      reply = "error " + text.substr(0, text.find('\n'));
    }
    std::fprintf(out, "%s\n", reply.c_str());
    std::fflush(out);
  }
  std::fclose(out);
  return 0;
}

}  // namespace cohort::bench
