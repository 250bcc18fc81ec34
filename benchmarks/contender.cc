// SPDX-License-Identifier: Apache-2.0
#include "contender.h"

#include <sstream>

#include "cohort/base/check.h"
#include "pipe.h"

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
    return {};
  }
  std::int64_t steps = 0;
  words >> steps;
  COHORT_CHECK_ARG(words && steps > 0, "[step_bench] expected a number of steps, got ", line);
  COHORT_CHECK_STATE(workload, "[step_bench] expected init before ", command);
  if (command == "loss") {
    const double loss = contender.loss(steps);
    out << loss << ' ' << contender.divergence();
  } else if (command == "run") {
    const StepTime time = contender.run(steps);
    out << time.nanoseconds << ' ' << time.loss;
  } else {
    throw InvalidArgument(str_cat("[step_bench] unknown command ", command));
  }
  return out.str();
}

}  // namespace

int serve(Contender& contender, const std::string& versions) {
  std::unique_ptr<Workload> workload;
  return serve_lines(versions,
                     [&](const std::string& line) { return answer(contender, workload, line); });
}

}  // namespace cohort::bench
