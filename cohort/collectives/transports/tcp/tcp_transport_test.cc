// SPDX-License-Identifier: Apache-2.0
//
// What ranks see that are processes: one dies, is stopped, or has another job in mind. What holds
// for every transport is tested in collectives/communicator_test.cc and its neighbours.
#include "cohort/collectives/transports/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/test_job.h"
#include "cohort/collectives/transports/shared_memory/segment.h"
#include "cohort/testing/child.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::collectives {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
constexpr std::chrono::seconds kPatience{60};

MeshOptions mesh_of(int rank, const std::vector<std::string>& addresses, Socket listener,
                    Carrier carrier = Carrier::kTcp) {
  return {.rank = rank,
          .addresses = addresses,
          .timeout = std::chrono::seconds(30),
          .tls = tls_of(carrier),
          .shared_memory = !is_socket(carrier),
          .machine = machine_of(carrier, static_cast<std::size_t>(rank)),
          .listener = std::move(listener)};
}

/// Plays body(communicator, addresses) on ranks that are processes. Returns how each has ended: 0,
/// or 2 where it did not see what it expected, or minus the signal; one that has stopped is killed
/// when all others have ended.
using Body = std::function<void(Communicator& communicator, const std::vector<std::string>&)>;
std::vector<int> play_by_carrier(Carrier carrier, int size, const Body& body) {
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  std::vector<Socket> listeners;
  for (std::string& address : addresses) listeners.push_back(listen_on_free_port(&address));
  std::vector<pid_t> ranks;
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    std::fflush(nullptr);
    ranks.push_back(fork());
    if (ranks.back() != 0) continue;
    alarm(static_cast<unsigned>(kPatience.count()));
    try {
      Communicator communicator(connect_over_tcp(
          mesh_of(static_cast<int>(r), addresses, std::move(listeners[r]), carrier)));
      body(communicator, addresses);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "rank " << r << ": " << e.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 2 : 0);
  }
  std::vector<int> statuses(ranks.size(), 99);
  for (std::size_t live = ranks.size(), stopped = 0; live > 0;) {
    int status = 0;
    const pid_t changed = waitpid(-1, &status, WUNTRACED | WCONTINUED);
    const auto rank =
        static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), changed) - ranks.begin());
    if (rank == ranks.size()) return statuses;
    if (WIFSTOPPED(status)) {
      ++stopped;
    } else if (WIFCONTINUED(status)) {
      --stopped;
    } else {
      --live;
      statuses[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    if (stopped < live) continue;
    for (const pid_t each : ranks) kill(each, SIGKILL);
    stopped = 0;
  }
  return statuses;
}
using Statuses = std::vector<int>;
using Addresses = std::vector<std::string>;

class RanksAsProcesses : public ::testing::TestWithParam<Carrier> {
 protected:
  static std::vector<int> play_on_processes(int size, const Body& body) {
    return play_by_carrier(GetParam(), size, body);
  }
  void SetUp() override {
    if (!testing::kCanLimitChildren) GTEST_SKIP() << "no threads after a fork here";
  }
};
INSTANTIATE_TEST_SUITE_P(Carriers, RanksAsProcesses,
                         ::testing::Values(Carrier::kTcp, Carrier::kSharedMemory,
                                           Carrier::kTwoMachines, Carrier::kTls),
                         carrier_name);

TEST_P(RanksAsProcesses, AddUpInRankOrder) {
  const auto statuses = play_on_processes(3, [](Communicator& c, const Addresses&) {
    std::vector<float> sums(100'000, 1.0F + static_cast<float>(c.rank()));
    c.all_reduce(bytes_of(sums), kFloat32);
    EXPECT_EQ(sums, std::vector<float>(sums.size(), 6.0F));
    c.commit();
  });
  EXPECT_EQ(statuses, (Statuses{0, 0, 0}));
}

// Whichever it is, rank 0 (which decides commits) included: the others agree.
TEST_P(RanksAsProcesses, AKilledOneIsNamedWithItsAddress) {
  for (const int victim : {0, 1, 2}) {
    const auto statuses = play_on_processes(3, [&](Communicator& c, const Addresses& addresses) {
      c.commit();
      if (c.rank() == victim) kill(getpid(), SIGKILL);
      const std::string name =
          str_cat("rank ", victim, " (", addresses[static_cast<std::size_t>(victim)], ") is gone");
      expect_error<Unavailable>({name}, [&] { c.commit(); });
      expect_error<Unavailable>({name}, [&] { c.barrier(); });
    });
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(statuses[static_cast<std::size_t>(r)], r == victim ? -SIGKILL : 0)
          << "rank " << r << " with " << victim << " killed";
    }
  }
}

TEST_P(RanksAsProcesses, AfterOneIsKilledThereIsNoNextGeneration) {
  const auto statuses = play_on_processes(2, [](Communicator& c, const Addresses&) {
    c.barrier();
    if (c.rank() == 1) kill(getpid(), SIGKILL);
    EXPECT_THROW(c.barrier(), Unavailable);
    expect_error<Unavailable>({"renew", "rank 1 (127.0.0.1:"}, [&] { c.renew(); });
  });
  EXPECT_EQ(statuses, (Statuses{0, -SIGKILL}));
}

TEST_P(RanksAsProcesses, AStoppedOneIsMetByTheDeadline) {
  const auto statuses = play_on_processes(2, [](Communicator& c, const Addresses& addresses) {
    c.barrier();
    if (c.rank() == 1) kill(getpid(), SIGSTOP);
    expect_error<DeadlineExceeded>({"barrier", "rank 1 (" + addresses[1] + ")"},
                                   [&] { c.barrier({.timeout = std::chrono::milliseconds(100)}); });
  });
  EXPECT_EQ(statuses, (Statuses{0, -SIGKILL}));
}

// Nobody reads: what does not fit into the connection waits, and is given up.
TEST_P(RanksAsProcesses, ALargeMessageToAStoppedOneIsGivenUp) {
  const auto statuses = play_on_processes(2, [](Communicator& c, const Addresses&) {
    c.barrier();
    if (c.rank() == 1) kill(getpid(), SIGSTOP);
    std::vector<std::byte> large(std::size_t{32} << 20);
    expect_error<DeadlineExceeded>(
        {"send", "rank 1"}, [&] { c.send(large, 1, {.timeout = std::chrono::milliseconds(100)}); });
  });
  EXPECT_EQ(statuses, (Statuses{0, -SIGKILL}));
}

bool is_stopped(pid_t process) {
  std::ifstream file(str_cat("/proc/", process, "/stat"));
  std::string number, name, state;
  file >> number >> name >> state;
  return state == "T";
}

// A process that was stopped and goes on finds the generation over.
TEST_P(RanksAsProcesses, AStoppedOneThatGoesOnIsTooLate) {
  const auto statuses = play_on_processes(2, [](Communicator& c, const Addresses&) {
    std::array<pid_t, 1> pid = {getpid()};
    c.broadcast(bytes_of(pid), 1);
    c.barrier();
    if (c.rank() == 1) {
      kill(getpid(), SIGSTOP);
      // Rank 0 had come to the first one of these.
      expect_error<DeadlineExceeded>({"barrier"}, [&] {
        c.barrier();
        c.barrier();
      });
      return;
    }
    EXPECT_THROW(c.barrier({.timeout = std::chrono::milliseconds(100)}), DeadlineExceeded);
    while (!is_stopped(pid[0])) std::this_thread::yield();
    kill(pid[0], SIGCONT);
    // Until the other one has read the failure, and is gone.
    EXPECT_THROW(c.renew({.timeout = std::chrono::seconds(30)}), Unavailable);
  });
  EXPECT_EQ(statuses, (Statuses{0, 0}));
}

// Rank 0 is stopped when all have come to a commit, and another rank fails. Once it goes on, it may
// let the commit pass, which the others have given up: they must not go on with it.
TEST_P(RanksAsProcesses, WhoIsOverruledInACommitIsLost) {
  const auto statuses = play_on_processes(3, [](Communicator& c, const Addresses&) {
    std::array<pid_t, 1> first = {getpid()};
    c.broadcast(bytes_of(first), 0);
    if (c.rank() == 0) {
      base::g_failpoint_hook = [](const char* place) {
        if (std::string_view(place) == "commit.decide") kill(getpid(), SIGSTOP);
      };
    }
    std::jthread failing;
    if (c.rank() == 1) {
      failing = std::jthread([&] {
        while (!is_stopped(first[0])) std::this_thread::yield();
        c.abort(std::make_exception_ptr(DataLoss("[test] a disk")), "another thread");
      });
    }
    if (c.rank() == 1) {
      expect_error<DataLoss>({"[test] a disk"}, [&] { c.commit(); });
      kill(first[0], SIGCONT);
    } else {
      try {
        c.commit();
      } catch (const DataLoss&) {  // of which these have heard in time, or not
      }
      base::g_failpoint_hook = nullptr;
    }
    EXPECT_THROW(
        {
          c.renew();
          c.commit();
        },
        Unavailable);
  });
  EXPECT_EQ(statuses, (Statuses{0, 0, 0}));
}

// What a message that was given up had begun is filled up: the next generation goes on after it.
using Streams = ::testing::TestWithParam<Carrier>;
INSTANTIATE_TEST_SUITE_P(Carriers, Streams,
                         ::testing::Values(Carrier::kTcp, Carrier::kSharedMemory,
                                           Carrier::kTwoMachines, Carrier::kTls),
                         carrier_name);

TEST_P(Streams, GoOnAfterAMessageThatWasGivenUp) {
  run_with_deadline(kPatience, [] {
    TestJob job(GetParam(), 2, {.timeout = std::chrono::seconds(30)});
    {
      std::vector<std::byte> large(std::size_t{32} << 20, std::byte{7});
      EXPECT_THROW(job[0].send(large, 1, {.timeout = std::chrono::milliseconds(50)}),
                   DeadlineExceeded);
    }
    job.run([](Communicator& c) {
      c.renew();
      std::vector<int> numbers(100'000, c.rank() + 1);
      c.all_reduce(bytes_of(numbers), kInt32);
      EXPECT_EQ(numbers, std::vector<int>(numbers.size(), 3));
    });
  });
}

// Several times what a ring takes, both ways at once, and no number of bytes that fits.
TEST_P(Streams, CarryMessagesOfAnyLength) {
  run_with_deadline(kPatience, [] {
    TestJob job(GetParam(), 3, {.timeout = std::chrono::seconds(30)});
    job.run([](Communicator& c) {
      for (const std::size_t numbers : {0U, 1U, 63U, 70'001U, 1'300'001U}) {
        std::vector<int> sums(numbers);
        for (std::size_t i = 0; i < numbers; ++i) sums[i] = static_cast<int>(i) * (1 + c.rank());
        c.all_reduce(bytes_of(sums), kInt32);
        for (std::size_t i = 0; i < numbers; ++i) ASSERT_EQ(sums[i], 6 * static_cast<int>(i)) << i;
      }
    });
  });
}

TEST(SharedSegment, IsRefusedWhereSomethingElseIsInItsPlace) {
  const SharedSegment segment = SharedSegment::create(100);
  std::string why;
  EXPECT_TRUE(SharedSegment::open(segment.offer(), &why)) << why;
  const auto refused = [&](const std::function<void(SegmentOffer&)>& change) {
    SegmentOffer offer = segment.offer();
    change(offer);
    EXPECT_FALSE(SharedSegment::open(offer, &why));
    return why;
  };
  EXPECT_EQ(refused([](SegmentOffer& o) { ++o.machine[3]; }), "it is on another machine");
  EXPECT_NE(refused([](SegmentOffer& o) { ++o.token[1]; }).find("something else"),
            std::string::npos);
  EXPECT_NE(refused([](SegmentOffer& o) { ++o.bytes; }).find("something else"), std::string::npos);
  EXPECT_NE(refused([](SegmentOffer& o) { o.descriptor = -1; }).find("/proc/"), std::string::npos);
}

}  // namespace
}  // namespace cohort::internal::collectives
