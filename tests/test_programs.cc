// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <map>
#include <string>

#include "tests/test_program.h"

namespace cohort::testing {
namespace {

std::map<std::string, TestProgram::Main>& programs() {
  static std::map<std::string, TestProgram::Main> all;
  return all;
}

int run_called(int argc, char** argv) {
  const std::string path = argv[0];
  const auto found = programs().find(path.substr(path.rfind('/') + 1));
  if (found != programs().end()) return found->second(argc, argv);
  std::fprintf(stderr, "%s: call it by one of the names\n", argv[0]);
  for (const auto& [name, main] : programs()) std::fprintf(stderr, "  %s\n", name.c_str());
  return 2;
}

}  // namespace

TestProgram::TestProgram(const char* name, Main main) { programs()[name] = main; }

}  // namespace cohort::testing

int main(int argc, char** argv) { return cohort::testing::run_called(argc, argv); }
