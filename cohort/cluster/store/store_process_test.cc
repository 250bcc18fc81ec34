// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cohort/cluster/store/store_server.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::cluster {
namespace {

// One test: what follows the first client has threads, and forks no more.
TEST(StoreProcesses, LiveAsLongAsTheLauncher) {
  testing::expect_error<Unavailable>({"192.0.2.1:0", "loopback"},
                                     [] { StoreProcess("192.0.2.1:0"); });
  // A launcher that dies without a word; whose orphan is this process's then.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    const StoreProcess store("127.0.0.1:0");
    const int pid = store.pid();
    if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
    ::raise(SIGKILL);
  }
  ::close(ends[1]);  // the store has no other one
  int orphan = 0;
  ASSERT_EQ(::read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  int none = 0;
  EXPECT_EQ(::read(ends[0], &none, sizeof none), 0) << "the store holds what was the launcher's";
  ::waitpid(launcher, nullptr, 0);
  EXPECT_EQ(::waitpid(orphan, nullptr, 0), orphan) << "the store has ended, too";

  const rpc::RpcSecurity security = {.job = "job",
                                     .token = rpc::Secret("a token that nobody can guess")};
  const StoreProcess first("127.0.0.1:0", security);
  auto second = std::make_unique<StoreProcess>("127.0.0.1:0", security);
  const StoreClient client({.address = first.address(), .security = security, .task = "worker 0"});
  client.store()->set("k", "v");
  EXPECT_EQ(client.store()->find("k"), "v");
  const StoreClient other({.address = second->address(), .security = security, .task = "worker 0"});
  second.reset();
  EXPECT_THROW(other.store()->set("k", "v"), Unavailable);
  EXPECT_EQ(client.store()->find("k"), "v");
}

}  // namespace
}  // namespace cohort::internal::cluster
