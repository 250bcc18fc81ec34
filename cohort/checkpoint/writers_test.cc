// SPDX-License-Identifier: Apache-2.0
//
// Several writers of one folder: other names, other processes with the same process id, killed
// ones, other machines; and file systems without locks or exchanges.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <set>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/temporary.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::shard_of;
using testing::write_bytes;
using Names = std::vector<std::string>;

// ---- hooks: plain functions, so what they need is global ----

std::string g_place;                  // where a process ends, waits or acts
std::function<void()> g_action;       // what it does there
std::map<std::string, int> g_errors;  // of system calls

void at_place(const char* place) {
  if (g_place == place && g_action) std::exchange(g_action, nullptr)();
}
int error_of_call(const char* call, const std::string&) {
  const auto error = g_errors.find(call);
  return error == g_errors.end() ? 0 : error->second;
}

class Writers : public testing::FolderTest {
 protected:
  void TearDown() override {
    internal::base::g_failpoint_hook = nullptr;
    internal::base::g_fault_hook = nullptr;
    g_errors.clear();
    FolderTest::TearDown();
  }

  CheckpointManager make(CheckpointManagerOptions options = {}) {
    return CheckpointManager(Checkpoint({{"n", &n_}}), path("run"), std::move(options));
  }
  static void act_at(const std::string& place, std::function<void()> action) {
    g_place = place;
    g_action = std::move(action);
    internal::base::g_failpoint_hook = at_place;
  }
  static void let_fail(const std::string& call, int error) {
    g_errors[call] = error;
    internal::base::g_fault_hook = error_of_call;
  }

  // libomp looks into /proc/<pid>, which must be of this process namespace as it is in a container.
  static void mount_own_proc() {
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    ::mount("proc", "/proc", "proc", 0, nullptr);
  }
  /// What `work` ends with in a process of its own that is the first of its process namespace, as
  /// in a container: all of them have process id 1. Where that is not allowed, any process.
  static pid_t start_as_process_1(const std::function<void()>& work) {
    const pid_t outer = ::fork();
    if (outer != 0) return outer;
    constexpr int kNames = CLONE_NEWPID | CLONE_NEWNS;
    const bool allowed = ::unshare(kNames) == 0 || ::unshare(CLONE_NEWUSER | kNames) == 0;
    // Without what libraries do at a fork: libomp would look for its /proc before it is there.
    const auto inner = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (inner == 0) {
      if (allowed && ::getpid() != 1) ::_exit(3);
      if (allowed) mount_own_proc();
      try {
        work();
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        ::_exit(2);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(inner, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status));
  }
  static int end_of(pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static int run_as_process_1(const std::function<void()>& work) {
    return end_of(start_as_process_1(work));
  }
  /// Saves in another process, which is killed at `place`.
  static void kill_at(const std::string& place, const std::function<void()>& save) {
    const int code = run_as_process_1([&] {
      act_at(place, [] { ::_exit(42); });
      save();
    });
    EXPECT_EQ(code, 42);
  }

  Names names_in(const std::string& folder) const {
    Names out;
    for (const auto& entry : fs::directory_iterator(path(folder))) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  static Names last_parts(const std::vector<std::string>& paths) {
    Names out;
    for (const std::string& path : paths) out.push_back(fs::path(path).filename().string());
    return out;
  }
  int64_t value_in(const std::string& checkpoint) const {
    int64_t n = -1;
    Checkpoint({{"n", &n}}).restore(checkpoint).assert_consumed();
    return n;
  }

  int64_t n_ = 0;
};

// ---- several names ----

TEST_F(Writers, OfOtherNamesLeaveEachOtherAlone) {
  CheckpointManager latest = make({.max_to_keep = 1, .checkpoint_name = "ckpt"});
  CheckpointManager tuned = make({.max_to_keep = 2, .checkpoint_name = "ckpt-1"});
  CheckpointManager best = make({.max_to_keep = 1, .checkpoint_name = "best"});
  EXPECT_EQ(best.save(), path("run/best-1"));
  for (n_ = 1; n_ <= 3; ++n_) {
    EXPECT_EQ(latest.save(), path("run/ckpt-") + std::to_string(n_));
    n_ += 10;
    EXPECT_EQ(tuned.save(), path("run/ckpt-1-") + std::to_string(n_ - 10));
    n_ -= 10;
  }
  EXPECT_EQ(names_in("run"), (Names{"best-1", "checkpoint", "ckpt-1-2", "ckpt-1-3", "ckpt-3"}));
  EXPECT_EQ(last_parts(latest.checkpoints()), Names{"ckpt-3"});
  EXPECT_EQ(last_parts(tuned.checkpoints()), (Names{"ckpt-1-2", "ckpt-1-3"}));
  EXPECT_EQ(last_parts(best.checkpoints()), Names{"best-1"});
  EXPECT_EQ(latest_checkpoint(path("run")), path("run/ckpt-1-3"));
  for (const auto& [name, n] :
       std::map<std::string, int64_t>{{"ckpt", 3}, {"ckpt-1", 13}, {"best", 0}}) {
    n_ = -1;
    EXPECT_TRUE(make({.checkpoint_name = name}).restore_latest());
    EXPECT_EQ(n_, n) << name;
  }
  // One that has none does not take those of others for its own.
  EXPECT_FALSE(make({.checkpoint_name = "other"}).restore_latest());
  EXPECT_EQ(make({.checkpoint_name = "other"}).save(), path("run/other-1"));
}

TEST_F(Writers, OfOtherNamesFindTheirOwnWithoutTheStateFile) {
  make({.checkpoint_name = "ckpt"}).save(7);
  make({.checkpoint_name = "ckpt-7"}).save(8);
  fs::remove(path("run/checkpoint"));
  EXPECT_EQ(make({.checkpoint_name = "ckpt-7"}).latest_checkpoint(), path("run/ckpt-7-8"));
  EXPECT_EQ(make({.checkpoint_name = "ckpt"}).save(), path("run/ckpt-8"));
  // The file names the other one's only as far as that one has saved since.
  EXPECT_EQ(make({.checkpoint_name = "ckpt-7"}).latest_checkpoint(), path("run/ckpt-7-8"));
}

TEST_F(Writers, OfOtherNamesPreserveTheirOwnEverySoOften) {
  const CheckpointManagerOptions a{
      .max_to_keep = 1, .keep_every = std::chrono::hours(1), .checkpoint_name = "a"};
  const CheckpointManagerOptions b{
      .max_to_keep = 1, .keep_every = std::chrono::hours(1), .checkpoint_name = "b"};
  make(a).save();
  make(b).save();
  const std::string names =
      "model_checkpoint_path: \"b-1\"\nall_model_checkpoint_paths: \"a-1\"\n"
      "all_model_checkpoint_paths: \"b-1\"\n";
  write_bytes(path("run/checkpoint"),
              names +
                  "all_model_checkpoint_timestamps: 10000\n"
                  "all_model_checkpoint_timestamps: 10000\nlast_preserved_timestamp: 9999\n"
                  "# last_preserved_timestamp \"a\": 6400\n# anything else\n");
  make(b).save();
  make(a).save();
  EXPECT_EQ(names_in("run"), (Names{"a-1", "a-2", "b-2", "checkpoint"}));
}

// ---- names that look temporary ----

TEST_F(Writers, RemoveOnlyWhatHasExactlyATemporaryName) {
  make().save();
  const std::string id = "0f3a9c21-5d0be1f8a7c34e19";
  const Names precious = {"ckpt-1.tmp-mybackup",
                          "ckpt-1.tmp-",
                          "ckpt-1.tmp-4242-0",
                          "ckpt-1.tmp-" + id + "0",
                          "ckpt-1.tmp-" + id + ".lock2",
                          "ckpt-1.tmp-" + id + "-old",
                          "ckpt.tmp-" + id};
  for (const std::string& name : precious) {
    fs::create_directory(path("run/" + name));
    write_bytes(path("run/" + name + "/data"), "precious");
  }
  make().save();
  for (const std::string& name : precious) {
    EXPECT_TRUE(fs::exists(path("run/" + name + "/data"))) << name;
  }
}

// ---- killed ones ----

TEST_F(Writers, ThatWereKilledLeaveNothingAfterTheNextSave) {
  for (const char* place : {"checkpoint.made", "checkpoint.shard_written", "checkpoint.flushed"}) {
    kill_at(place, [&] { make().save(); });
    EXPECT_GE(names_in("run").size(), 2u) << "a test that cannot fail";
    const std::string saved = make().save();
    EXPECT_EQ(names_in("run"), (Names{"checkpoint", fs::path(saved).filename()})) << place;
    fs::remove_all(path("run"));
    kill_at(place, [&] { Checkpoint({{"n", &n_}}).save(path("run/step-9")); });
    EXPECT_EQ(names_in("run").size(), 2u);
    Checkpoint({{"n", &n_}}).save(path("run/step-10"));
    EXPECT_EQ(names_in("run"), Names{"step-10"}) << place;
    fs::remove_all(path("run"));
  }
  fs::create_directory(path("run"));
  kill_at("save_tensors.written", [&] {
    save_tensors(path("run/w.09-0.5.safetensors"), {{"w", ones({2})}});
  });
  EXPECT_EQ(names_in("run").size(), 1u);
  save_tensors(path("run/other.safetensors"), {{"w", ones({2})}});
  EXPECT_EQ(names_in("run").size(), 2u) << "of another series";
  save_tensors(path("run/w.10-0.25.safetensors"), {{"w", ones({2})}});
  EXPECT_EQ(names_in("run"), (Names{"other.safetensors", "w.10-0.25.safetensors"}));
}

TEST_F(Writers, ThatWereKilledOfOneNameLeaveTheirsToThatName) {
  kill_at("checkpoint.flushed", [&] { make({.checkpoint_name = "a"}).save(); });
  const Names before = names_in("run");
  make({.checkpoint_name = "a-1"}).save();
  Names after = names_in("run");
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  make({.checkpoint_name = "a"}).save();
  EXPECT_EQ(names_in("run"), (Names{"a-1", "a-1-1", "checkpoint"}));
}

TEST_F(Writers, ThatAreStartedAnewAsProcess1GoOn) {
  for (int i = 1; i <= 3; ++i) {
    kill_at("checkpoint.shard_written", [&] { make().save(); });
    EXPECT_EQ(run_as_process_1([&] { make().save(); }), 0);
    EXPECT_EQ(names_in("run").size(), static_cast<std::size_t>(i) + 1);
  }
  EXPECT_EQ(last_parts(make().checkpoints()), (Names{"ckpt-1", "ckpt-2", "ckpt-3"}));
}

TEST_F(Writers, ThatAreKilledWhileTheyHoldTheFolderBlockNobody) {
  make().save();
  for (const char* place : {"manager.announced", "checkpoint.renamed", "manager.named"}) {
    kill_at(place, [&] { make({.max_to_keep = 1}).save(); });
    n_ = 7;
    const std::string saved = make({.max_to_keep = 1}).save();
    EXPECT_EQ(names_in("run"), (Names{"checkpoint", fs::path(saved).filename()})) << place;
    EXPECT_EQ(value_in(saved), 7);
  }
}

// ---- at the same time ----

TEST_F(Writers, ThatAreStillAtItKeepTheirFiles) {
  int to_parent[2], to_child[2];
  ASSERT_EQ(::pipe(to_parent) | ::pipe(to_child), 0);
  const pid_t child = start_as_process_1([&] {
    act_at("checkpoint.shard_written", [&] {
      char byte = 0;
      if (::write(to_parent[1], &byte, 1) != 1 || ::read(to_child[0], &byte, 1) != 1) ::_exit(4);
    });
    n_ = 11;
    make().save();
  });
  ::close(to_parent[1]);  // So that the end of the child is seen.
  char byte = 0;
  ASSERT_EQ(::read(to_parent[0], &byte, 1), 1);
  const Names before = names_in("run");
  n_ = 12;
  EXPECT_EQ(run_as_process_1([&] { make().save(); }), 0);
  EXPECT_EQ(make().save(), path("run/ckpt-3")) << "number 1 is the other one's";
  const Names after = names_in("run");
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  ASSERT_EQ(::write(to_child[1], &byte, 1), 1);
  EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(names_in("run"), (Names{"checkpoint", "ckpt-1", "ckpt-2", "ckpt-3"}));
  EXPECT_EQ(value_in(path("run/ckpt-1")), 11);
  EXPECT_EQ(value_in(path("run/ckpt-2")), 12);
  for (const int descriptor : {to_parent[0], to_child[0], to_child[1]}) {
    ::close(descriptor);
  }
}

constexpr int kProcesses = 8;
constexpr int kSavesEach = 15;

TEST_F(Writers, OfOneNameAtTheSameTimeAllSucceed) {
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(start_as_process_1([&, i] {
      CheckpointManager manager = make({.max_to_keep = std::nullopt, .background = i % 2 == 1});
      for (int k = 0; k < kSavesEach; ++k) {
        n_ = 100 * i + k;
        manager.save();
      }
      manager.wait();
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  const auto all = make({.max_to_keep = std::nullopt}).checkpoints();
  ASSERT_EQ(all.size(), std::size_t{kProcesses * kSavesEach});
  EXPECT_EQ(names_in("run").size(), all.size() + 1);
  std::set<int64_t> values;
  for (const std::string& checkpoint : all) values.insert(value_in(checkpoint));
  EXPECT_EQ(values.size(), all.size()) << "one has taken another's place";
}

TEST_F(Writers, OfOneNameThatAlsoRemoveLeaveTheNewestWhole) {
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(start_as_process_1([&] {
      CheckpointManager manager = make({.max_to_keep = 2});
      for (int k = 0; k < 5; ++k) {
        n_ = 5;
        manager.save();
        n_ = 0;
        if (!manager.restore_latest() || n_ != 5) ::_exit(5);
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  const auto all = make().checkpoints();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(names_in("run").size(), 3u);
  for (const std::string& checkpoint : all) EXPECT_EQ(value_in(checkpoint), 5);
}

TEST_F(Writers, OfOnePathAtTheSameTimeLeaveAWholeOne) {
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(start_as_process_1([&] {
      n_ = 5;
      for (int k = 0; k < 10; ++k) Checkpoint({{"n", &n_}}).save(path("run/x"));
      for (int k = 0; k < 10; ++k) save_tensors(path("run/w"), {{"w", ones({2})}});
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(names_in("run"), (Names{"w", "x"}));
  EXPECT_EQ(value_in(path("run/x")), 5);
  EXPECT_TRUE(load_tensors(path("run/w")).tensors.at("w").equal(ones({2})));
}

// ---- names that are taken ----

TEST_F(Writers, SkipNumbersThatAreTaken) {
  const auto take = [&](const std::string& name) {
    fs::create_directory(path("run/" + name));
    write_bytes(path("run/" + name + "/data"), "precious");
  };
  act_at("checkpoint.flushed", [&] { take("ckpt-1"); });
  EXPECT_EQ(make().save(), path("run/ckpt-2"));
  CheckpointManager manager = make();
  act_at("checkpoint.flushed", [&] { take("ckpt-9"); });
  testing::expect_error(ErrorCode::kAlreadyExists, {"run/ckpt-9"}, [&] { manager.save(9); });
  EXPECT_EQ(names_in("run"), (Names{"checkpoint", "ckpt-1", "ckpt-2", "ckpt-9"}));
  EXPECT_EQ(bytes_of(path("run/ckpt-1/data")), "precious");
  EXPECT_EQ(bytes_of(path("run/ckpt-9/data")), "precious");
}

TEST_F(Writers, DoNotReplaceWhatAnotherHasSavedMeanwhile) {
  n_ = 1;
  make().save(4);
  CheckpointManager a = make(), b = make();
  n_ = 2;
  a.save(5);
  n_ = 3;
  EXPECT_THROW(b.save(5), Error);
  EXPECT_EQ(value_in(path("run/ckpt-5")), 2);
  b.save(4);  // Was there before: a run that goes on from an older one.
  a.save(5);  // Its own.
  EXPECT_EQ(value_in(path("run/ckpt-4")), 3);
  EXPECT_EQ(value_in(path("run/ckpt-5")), 3);
  EXPECT_THROW(a.save(4), Error) << "is another one by now";
}

TEST_F(Writers, EndAtTheGreatestNumber) {
  CheckpointManager manager = make();
  manager.save(INT64_MAX);
  testing::expect_error(ErrorCode::kOutOfRange, {}, [&] { manager.save(); });
  EXPECT_EQ(names_in("run"), (Names{"checkpoint", "ckpt-9223372036854775807"}));
  EXPECT_EQ(manager.save(3), path("run/ckpt-3"));
}

TEST_F(Writers, PublishNothingThatIsNotWhole) {
  make().save();
  for (const bool all : {false, true}) {
    act_at("checkpoint.flushed", [&] {
      for (const std::string& name : names_in("run")) {
        if (!internal::checkpoint::is_temporary(name) || name.ends_with(".lock")) continue;
        fs::remove_all(path("run/" + name + (all ? "" : "/cohort.json")));
      }
    });
    testing::expect_error(ErrorCode::kAborted, {}, [&] { make().save(); });
    EXPECT_EQ(names_in("run"), (Names{"checkpoint", "ckpt-1"}));
  }
  make().save();
  EXPECT_EQ(names_in("run").size(), 3u);
}

// ---- other file systems, other machines ----

TEST_F(Writers, WithoutLocksSaveAndRemoveNothingOfOthers) {
  kill_at("checkpoint.flushed", [&] { make().save(); });
  const Names left = names_in("run");
  let_fail("lock", ENOLCK);
  ::testing::internal::CaptureStderr();
  n_ = 3;
  const std::string saved = make().save();
  save_tensors(path("run/w"), {{"w", ones({2})}});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(value_in(saved), 3);
  EXPECT_NE(log.find("has no locks"), std::string::npos) << log;
  const Names now = names_in("run");
  EXPECT_TRUE(std::includes(now.begin(), now.end(), left.begin(), left.end()));
  EXPECT_EQ(now.size(), left.size() + 3);
}

TEST_F(Writers, OfAnotherMachineHaveAnHour) {
  make().save();
  const std::string left = path("run/ckpt-7.tmp-00000000-5d0be1f8a7c34e19");
  fs::create_directory(left);
  write_bytes(left + "/shard", "part");
  write_bytes(left + ".lock", "");
  make().save();
  EXPECT_TRUE(fs::exists(left + "/shard"));
  EXPECT_TRUE(fs::exists(left + ".lock"));
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const char* part : {"/shard", "", ".lock"}) fs::last_write_time(left + part, before);
  make().save();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(left + ".lock"));
}

TEST_F(Writers, WithPlainRenamesReplaceAndSkipAllTheSame) {
  let_fail("renameat2", EINVAL);
  const Checkpoint checkpoint({{"n", &n_}});
  for (n_ = 1; n_ <= 2; ++n_) checkpoint.save(path("run/x"));
  EXPECT_EQ(value_in(path("run/x")), 2);
  EXPECT_EQ(names_in("run"), Names{"x"});
  act_at("checkpoint.flushed", [&] {
    fs::create_directory(path("run/ckpt-1"));
    write_bytes(path("run/ckpt-1/data"), "precious");
  });
  EXPECT_EQ(make().save(), path("run/ckpt-2"));
  EXPECT_EQ(bytes_of(path("run/ckpt-1/data")), "precious");
  // Killed while nothing had the name: the old one gets it back.
  n_ = 3;
  kill_at("checkpoint.set_aside", [&] { checkpoint.save(path("run/x")); });
  EXPECT_FALSE(fs::exists(path("run/x")));
  act_at("checkpoint.made", [] { throw Cancelled("stopped"); });
  EXPECT_THROW(checkpoint.save(path("run/x")), Cancelled);
  EXPECT_EQ(value_in(path("run/x")), 2);
  EXPECT_EQ(names_in("run"), (Names{"checkpoint", "ckpt-1", "ckpt-2", "x"}));
}

}  // namespace
}  // namespace cohort
