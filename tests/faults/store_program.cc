// SPDX-License-Identifier: Apache-2.0
//
// The store of a job, on a host of its own: where a launcher would keep it.
//
//   store_program ADDRESS
#include <unistd.h>

#include <cstdio>

#include "cohort/cluster/store/store_server.h"
#include "tests/test_program.h"

namespace {

int run(int argc, char** argv) {
  if (argc != 2) return 2;
  const cohort::internal::cluster::StoreServer server(
      {.address = argv[1], .security = cohort::internal::rpc::security_from_environment()});
  std::printf("keeps the store\n");
  std::fflush(stdout);
  while (true) ::pause();
}
const cohort::testing::TestProgram kProgram("store_program", run);

}  // namespace
