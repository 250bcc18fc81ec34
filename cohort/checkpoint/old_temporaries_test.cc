// SPDX-License-Identifier: Apache-2.0
//
// What versions of before random names left: ckpt-7.tmp-<process>-<count>.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cohort/base/strings.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::write_bytes;
using Names = std::vector<std::string>;

constexpr const char* kShard = "shard-00001-model-00001-of-00001.safetensors";

pid_t ended_process() {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(0);
  ::waitpid(process, nullptr, 0);
  return process;
}

class OldTemporaries : public testing::FolderTest {
 protected:
  void save() {
    CheckpointManager(Checkpoint({{"n", &n_}}), path("run"), CheckpointManagerOptions{}).save();
  }
  /// A folder that a process was writing.
  std::string left(const std::string& base, pid_t process, const Names& files) {
    const std::string folder = path(str_cat("run/", base, ".tmp-", process, "-0"));
    fs::create_directory(folder);
    for (const std::string& file : files) write_bytes(str_cat(folder, "/", file), "part");
    return folder;
  }
  void make_all_older() {
    const auto before = fs::file_time_type::clock::now() - std::chrono::hours(2);
    for (const auto& entry : fs::recursive_directory_iterator(path("run"))) {
      fs::last_write_time(entry.path(), before);
    }
  }

  int64_t n_ = 0;
  const pid_t ended_ = ended_process();
};

TEST_F(OldTemporaries, GoAfterAnHour) {
  save();
  const Names gone = {left("ckpt-1", ended_, {kShard, internal::checkpoint::kManifestName}),
                      left("ckpt-7", ended_, {kShard}), left("ckpt-8", ::getpid(), {}),
                      path(str_cat("run/checkpoint.tmp-", ended_, "-12"))};
  write_bytes(gone.back(), "part");
  save();
  for (const std::string& path : gone) EXPECT_TRUE(fs::exists(path)) << path << ": too young";
  make_all_older();
  save();
  for (const std::string& path : gone) EXPECT_FALSE(fs::exists(path)) << path;
}

TEST_F(OldTemporaries, OfWeightFilesToo) {
  fs::create_directory(path("run"));
  const std::string left = path(str_cat("run/w-1.safetensors.tmp-", ended_, "-3"));
  write_bytes(left, "part");
  make_all_older();
  save_tensors(path("run/w-2.safetensors"), {{"w", ones({2})}});
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(OldTemporaries, OfOthersStay) {
  save();
  Names kept = {
      left("ckpt-3", ::getppid(), {kShard}),                           // its process runs
      left("ckpt-4", ended_, {"my notes"}),                            // nothing that a save writes
      left("other-5", ended_, {kShard}),                               // of another name
      left("ckpt-6-backup", ended_, {kShard}),                         // of no number
      left("ckpt-9", ended_, {internal::checkpoint::kManifestName})};  // perhaps the only ckpt-9
  for (const char* name : {"ckpt-1.tmp-0-0", "ckpt-1.tmp-0042-0", "ckpt-1.tmp-4242",
                           "ckpt-1.tmp-4242-", "ckpt-1.tmp-4242-0-1", "ckpt-1.tmp--4242-0",
                           "ckpt-1.tmp-99999999-0", "ckpt-1.tmp-4242-x"}) {
    kept.push_back(path(str_cat("run/", name)));
    fs::create_directory(kept.back());
  }
  kept.push_back(path(str_cat("run/ckpt-2.tmp-", ended_, "-1")));
  fs::create_symlink(path("run/ckpt-1"), kept.back());
  make_all_older();
  save();
  for (const std::string& path : kept) EXPECT_TRUE(fs::exists(path)) << path;
}

}  // namespace
}  // namespace cohort
