// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints that cannot be read: what restore_latest and max_to_keep make of them, and what never
// is opened.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::damage;
using testing::error_text;
using testing::run_with_deadline;
using testing::shard_of;
using testing::write_bytes;
using Names = std::vector<std::string>;

constexpr auto kSoon = std::chrono::seconds(100);
constexpr uint64_t kSparse = uint64_t{1} << 40;

std::string g_unreadable;

class Damage : public testing::FolderTest {
 protected:
  void TearDown() override {
    internal::base::g_fault_hook = nullptr;
    FolderTest::TearDown();
  }
  CheckpointManager make(CheckpointManagerOptions options = {}) {
    return CheckpointManager(Checkpoint({{"n", &n_}}), path("run"), std::move(options));
  }
  /// Saves until there are three, with their number as value.
  void save_three(CheckpointManagerOptions options = {}) {
    CheckpointManager manager = make(std::move(options));
    for (n_ = 1; n_ <= 3; ++n_) manager.save();
  }
  /// The log of a restore_latest that has to end with the one before the newest.
  std::string restore_passes_over(const std::string& what) {
    ::testing::internal::CaptureStderr();
    n_ = 0;
    run_with_deadline(kSoon, [&] { EXPECT_TRUE(make().restore_latest()) << what; });
    EXPECT_EQ(n_, 2) << what;
    return ::testing::internal::GetCapturedStderr();
  }
  Names kept() {
    Names out;
    for (const std::string& path : make().checkpoints()) out.push_back(fs::path(path).filename());
    return out;
  }
  static void let_reads_fail(const std::string& in) {
    g_unreadable = in;
    internal::base::g_fault_hook = [](const char* call, const std::string& path) {
      const bool fails = std::string_view(call) == "read" && path.starts_with(g_unreadable);
      return fails ? EIO : 0;
    };
  }

  int64_t n_ = 0;
};

TEST_F(Damage, InTheNewestIsPassedOverWithItsReason) {
  const std::string newest = path("run/ckpt-3");
  const std::string shard = shard_of(newest), manifest = newest + "/cohort.json";
  const auto replaced = [](const std::string& file, const std::function<void()>& make_other) {
    return [=] {
      fs::remove(file);
      make_other();
    };
  };
  struct Case {
    const char* expected;
    std::function<void()> damage;
  };
  const std::vector<Case> cases = {
      {"Input/output error", [&] { let_reads_fail(shard); }},
      {"Input/output error", [&] { let_reads_fail(manifest); }},
      {"got a folder", replaced(shard, [&] { fs::create_directory(shard); })},
      {"got a folder", replaced(manifest, [&] { fs::create_directory(manifest); })},
      {"at most", [&] { fs::resize_file(manifest, kSparse); }},
      {"expected a file of", [&] { fs::resize_file(shard, kSparse); }},
      {"got a link",
       replaced(shard, [&] { fs::create_symlink(shard_of(path("run/ckpt-1")), shard); })},
      {"got a link",
       replaced(manifest, [&] { fs::create_symlink(path("run/ckpt-1/cohort.json"), manifest); })},
      {"got a link", replaced(shard, [&] { fs::create_symlink("nowhere", shard); })},
      {"got a pipe", replaced(shard, [&] { ASSERT_EQ(::mkfifo(shard.c_str(), 0666), 0); })},
      {"got a pipe", replaced(manifest, [&] { ASSERT_EQ(::mkfifo(manifest.c_str(), 0666), 0); })},
      {"No such file", replaced(manifest, [] {})},
  };
  for (const Case& c : cases) {
    fs::remove_all(path("run"));
    internal::base::g_fault_hook = nullptr;
    save_three();
    c.damage();
    const std::string log = restore_passes_over(c.expected);
    EXPECT_NE(log.find("passing over ckpt-3: "), std::string::npos) << log;
    EXPECT_NE(log.find(c.expected), std::string::npos) << log;
  }
}

TEST_F(Damage, OfALinkedShardIsNotReadFromOutside) {
  const Checkpoint checkpoint({{"n", &n_}});
  n_ = 1;
  checkpoint.save(path("x"));
  fs::rename(shard_of(path("x")), path("outside"));
  fs::create_symlink("../outside", shard_of(path("x")));
  n_ = 5;
  EXPECT_THROW(checkpoint.restore(path("x")), DataLoss);
  EXPECT_EQ(n_, 5);
}

TEST_F(Damage, PipesInPlaceOfFilesBlockNobody) {
  save_three();
  const std::string state = path("run/checkpoint");
  fs::remove(state);
  ASSERT_EQ(::mkfifo(state.c_str(), 0666), 0);
  ASSERT_EQ(::mkfifo(path("weights").c_str(), 0666), 0);
  ::testing::internal::CaptureStderr();
  run_with_deadline(kSoon, [&] {
    EXPECT_TRUE(make().restore_latest());
    EXPECT_EQ(n_, 3);
    make().save();
    EXPECT_THROW(load_tensors(path("weights")), InvalidArgument);
    EXPECT_THROW(load_tensors("/dev/tty0"), Error);
  });
  ::testing::internal::GetCapturedStderr();
}

TEST_F(Damage, DoesNotEvictTheGoodOneBefore) {
  save_three({.max_to_keep = 3});
  damage(shard_of(path("run/ckpt-2")));
  fs::remove(path("run/ckpt-3/cohort.json"));
  ::testing::internal::CaptureStderr();
  CheckpointManager manager = make({.max_to_keep = 2});
  manager.save();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(kept(), (Names{"ckpt-1", "ckpt-2", "ckpt-4"})) << log;
  EXPECT_NE(log.find("ckpt-2 does not count"), std::string::npos) << log;
  ::testing::internal::CaptureStderr();
  manager.save();
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(kept(), (Names{"ckpt-4", "ckpt-5"})) << "two good ones are enough";
  EXPECT_FALSE(fs::exists(path("run/ckpt-2")));
}

TEST_F(Damage, ThatOnlyReadingShowsDoesNotEvictTheGoodOneBefore) {
  save_three({.max_to_keep = 3});
  let_reads_fail(shard_of(path("run/ckpt-3")));
  ::testing::internal::CaptureStderr();
  make({.max_to_keep = 2}).save();
  ::testing::internal::GetCapturedStderr();
  internal::base::g_fault_hook = nullptr;
  EXPECT_EQ(kept(), (Names{"ckpt-2", "ckpt-3", "ckpt-4"}));
}

TEST_F(Damage, OfTheStateFileByItsSizeIsNoObstacle) {
  save_three();
  fs::resize_file(path("run/checkpoint"), kSparse);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(make().restore_latest());
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(n_, 3);
}

TEST_F(Damage, OfASparseFileOfWeightsIsOurError) {
  const std::string header = R"({"w":{"dtype":"U8","shape":[4611686018427387904],)"
                             R"("data_offsets":[0,4611686018427387904]}})";
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  write_bytes(path("w"), bytes + header);
  const uint64_t most = uint64_t{1} << 43;
  std::error_code error;
  fs::resize_file(path("w"), most, error);
  if (error) GTEST_SKIP() << "no sparse files here";
  EXPECT_THROW(load_tensors(path("w")), Error);
}

// ---- durability ----

std::vector<std::string> g_flushed;
int g_flush_error = 0;

class Durability : public Damage {
 protected:
  static void let_flushes_fail(int error) {
    g_flush_error = error;
    internal::base::g_fault_hook = [](const char* call, const std::string&) {
      return std::string_view(call) == "fsync" ? g_flush_error : 0;
    };
  }
};

TEST_F(Durability, FlushesEveryNewFolderUpToTheOneThatWasThere) {
  g_flushed.clear();
  internal::base::g_fault_hook = [](const char* call, const std::string& at) {
    if (std::string_view(call) == "fsync") g_flushed.push_back(at);
    return 0;
  };
  Checkpoint({{"n", &n_}}).save(path("a/b/c/x"));
  for (const std::string& folder : {folder_, path("a"), path("a/b"), path("a/b/c")}) {
    EXPECT_NE(std::find(g_flushed.begin(), g_flushed.end(), folder), g_flushed.end()) << folder;
  }
}

TEST_F(Durability, SaysThatAFolderCannotBeFlushed) {
  fs::create_directory(path("run"));
  let_flushes_fail(EIO);
  for (const auto& save :
       std::vector<std::function<void()>>{[&] {
                                            Checkpoint({{"n", &n_}}).save(path("run/x"));
                                          },
                                          [&] { make().save(); },
                                          [&] {
                                            save_tensors(path("run/w"), {{"w", ones({2})}});
                                          }}) {
    const std::string text = error_text<Error>(save);
    EXPECT_NE(text.find("failed to flush the folder"), std::string::npos) << text;
  }
  let_flushes_fail(EINVAL);  // A file system that knows no such thing.
  make().save();
}

}  // namespace
}  // namespace cohort
