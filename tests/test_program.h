// SPDX-License-Identifier: Apache-2.0
//
// The programs that tests start are one, test_programs, which has a link by the name of each and is
// the one that it is called as: they read the same headers and are linked with the same libraries.
//
//   int run(int argc, char** argv);
//   const TestProgram kProgram("faults_program", run);
#pragma once

namespace cohort::testing {

class TestProgram {
 public:
  using Main = int (*)(int argc, char** argv);
  TestProgram(const char* name, Main main);
};

}  // namespace cohort::testing
