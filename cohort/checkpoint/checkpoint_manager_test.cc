// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/checkpoint_manager.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::damage;
using testing::error_text;
using testing::shard_of;
using testing::write_bytes;

class Manager : public testing::FolderTest {
 protected:
  CheckpointManager make(CheckpointManagerOptions options = {}) {
    return CheckpointManager(Checkpoint({{"n", &n_}}), path("run"), std::move(options));
  }
  std::vector<std::string> checkpoints(const CheckpointManager& manager) const {
    std::vector<std::string> out;
    for (const std::string& path : manager.checkpoints()) {
      out.push_back(fs::path(path).filename().string());
    }
    return out;
  }
  std::vector<std::string> run_names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(path("run"))) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  int64_t n_ = 0;
};

using Names = std::vector<std::string>;

TEST_F(Manager, NumbersKeepsAndRemoves) {
  CheckpointManager manager = make({.max_to_keep = 2});
  EXPECT_FALSE(manager.restore_latest());
  EXPECT_EQ(manager.latest_checkpoint(), std::nullopt);
  EXPECT_FALSE(fs::exists(path("run")));
  for (n_ = 1; n_ <= 3; ++n_) {
    EXPECT_EQ(manager.save(), path("run") + "/ckpt-" + std::to_string(n_));
  }
  EXPECT_EQ(checkpoints(manager), (Names{"ckpt-2", "ckpt-3"}));
  EXPECT_EQ(run_names(), (Names{"checkpoint", "ckpt-2", "ckpt-3"}));
  EXPECT_EQ(manager.latest_checkpoint(), path("run/ckpt-3"));
  EXPECT_EQ(latest_checkpoint(path("run")), path("run/ckpt-3"));
  EXPECT_EQ(latest_checkpoint(path("absent")), std::nullopt);
  n_ = 0;
  EXPECT_TRUE(manager.restore_latest());
  EXPECT_EQ(n_, 3);
}

TEST_F(Manager, AnotherProcessGoesOnCounting) {
  make().save();
  CheckpointManager manager = make();
  EXPECT_EQ(manager.save(), path("run/ckpt-2"));
  EXPECT_EQ(manager.save(40), path("run/ckpt-40"));
  EXPECT_EQ(manager.save(), path("run/ckpt-41"));
  EXPECT_EQ(checkpoints(manager), (Names{"ckpt-1", "ckpt-2", "ckpt-40", "ckpt-41"}));
  n_ = 77;
  EXPECT_EQ(manager.save(2), path("run/ckpt-2"));
  EXPECT_EQ(checkpoints(manager), (Names{"ckpt-1", "ckpt-40", "ckpt-41", "ckpt-2"}));
  n_ = 0;
  manager.restore_latest();
  EXPECT_EQ(n_, 77);
}

TEST_F(Manager, WritesTensorFlowsStateFile) {
  CheckpointManager manager = make({.checkpoint_name = "a \"name\""});
  manager.save();
  manager.save();
  const std::string text = bytes_of(path("run/checkpoint"));
  EXPECT_TRUE(
      text.starts_with("model_checkpoint_path: \"a \\\"name\\\"-2\"\n"
                       "all_model_checkpoint_paths: \"a \\\"name\\\"-1\"\n"
                       "all_model_checkpoint_paths: \"a \\\"name\\\"-2\"\n"
                       "all_model_checkpoint_timestamps: "))
      << text;
  EXPECT_EQ(manager.latest_checkpoint(), path("run/a \"name\"-2"));
}

TEST_F(Manager, PassesOverWhatIsDamaged) {
  CheckpointManager manager = make();
  for (n_ = 1; n_ <= 3; ++n_) manager.save();
  damage(shard_of(path("run/ckpt-3")));
  fs::remove_all(path("run/ckpt-2"));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(manager.restore_latest());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(n_, 1);
  EXPECT_NE(log.find("passing over ckpt-3: [checkpoint.restore] " + shard_of(path("run/ckpt-3"))),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("passing over ckpt-2: "), std::string::npos) << log;

  fs::resize_file(path("run/ckpt-1/cohort.json"), 100);
  n_ = 9;
  ::testing::internal::CaptureStderr();
  const std::string text = error_text<DataLoss>([&] { manager.restore_latest(); });
  ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("expected one of 3 checkpoints to be whole"), std::string::npos) << text;
  EXPECT_EQ(n_, 9);
}

TEST_F(Manager, DoesNotPassOverWhatDoesNotMatch) {
  make().save();
  double other = 0;
  const CheckpointManager manager(Checkpoint({{"other", &other}}), path("run"));
  EXPECT_THROW(manager.restore_latest(), InvalidArgument);
  EXPECT_TRUE(manager.restore_latest({.allow_partial = true}));
}

TEST_F(Manager, FindsCheckpointsWithoutTheStateFile) {
  CheckpointManager manager = make();
  for (n_ = 1; n_ <= 11; ++n_) manager.save();
  fs::create_directory(path("run/ckpt-99"));  // Not one of them.
  Checkpoint({{"n", &n_}}).save(path("run/best-77"));
  const std::string state = path("run/checkpoint");
  for (const char* text : {"", "nonsense", "model_checkpoint_path: \"../ckpt-1\"\n",
                           "model_checkpoint_path: \"/ckpt-1\"\n", "model_checkpoint_path: x\n",
                           "all_model_checkpoint_timestamps: 1e\n"}) {
    write_bytes(state, text);
    EXPECT_EQ(make().latest_checkpoint(), path("run/ckpt-11")) << text;
  }
  fs::remove(state);
  EXPECT_EQ(latest_checkpoint(path("run")), path("run/best-77"));
  EXPECT_EQ(make().save(), path("run/ckpt-12"));
  EXPECT_TRUE(fs::exists(path("run/best-77/cohort.json")));
  EXPECT_TRUE(make().restore_latest());
  write_bytes(state, "model_checkpoint_path: \"ckpt-10\"\r\n\nsomething_new: 3\n");
  EXPECT_EQ(make().latest_checkpoint(), path("run/ckpt-10"));
}

TEST_F(Manager, KeepsOneInEverySoOften) {
  CheckpointManager manager = make({.max_to_keep = 1, .keep_every = std::chrono::hours(1)});
  manager.save();
  std::string state = "model_checkpoint_path: \"ckpt-1\"\n";
  state += "all_model_checkpoint_paths: \"ckpt-1\"\nall_model_checkpoint_timestamps: 10000\n";
  write_bytes(path("run/checkpoint"), state + "last_preserved_timestamp: 6401\n");
  manager.save();
  EXPECT_EQ(run_names(), (Names{"checkpoint", "ckpt-2"}));
  state = "model_checkpoint_path: \"ckpt-2\"\n";
  state += "all_model_checkpoint_paths: \"ckpt-2\"\nall_model_checkpoint_timestamps: 10000\n";
  write_bytes(path("run/checkpoint"), state + "last_preserved_timestamp: 6400\n");
  manager.save();
  EXPECT_EQ(run_names(), (Names{"checkpoint", "ckpt-2", "ckpt-3"}));
  EXPECT_NE(bytes_of(path("run/checkpoint")).find("last_preserved_timestamp: 10000.000000"),
            std::string::npos);
}

TEST_F(Manager, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(make({.max_to_keep = 0}), InvalidArgument);
  EXPECT_THROW(make({.checkpoint_name = ""}), InvalidArgument);
  EXPECT_THROW(make({.checkpoint_name = "a/b"}), InvalidArgument);
  EXPECT_THROW(make({.checkpoint_name = "a\nb"}), InvalidArgument);
  EXPECT_THROW(CheckpointManager(Checkpoint({{"n", &n_}}), ""), InvalidArgument);
  EXPECT_THROW(make().save(-1), InvalidArgument);
  CheckpointManager all = make({.max_to_keep = std::nullopt});
  for (int i = 0; i < 8; ++i) all.save();
  EXPECT_EQ(all.checkpoints().size(), 8u);
}

// ---- crashes ----

std::atomic<int> g_calls_left{0};

void end_process(const char*) {
  if (g_calls_left.fetch_sub(1) == 1) ::_exit(42);
}

/// Saves in a process of its own, which ends in the `call`-th place; false: it came to the end.
bool crashes(int call, const std::function<void()>& save) {
  const pid_t child = ::fork();
  if (child == 0) {
    g_calls_left = call;
    internal::base::g_failpoint_hook = end_process;
    save();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_TRUE(WEXITSTATUS(status) == 42 || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  return WEXITSTATUS(status) == 42;
}

TEST_F(Manager, ACrashAnywhereLeavesAWholeOne) {
  const CheckpointManagerOptions options{.max_to_keep = 2};
  {
    CheckpointManager manager = make(options);
    for (n_ = 1; n_ <= 2; ++n_) manager.save();
  }
  int places = 0;
  int64_t saved = 2;
  for (bool crashed = true; crashed; ++places) {
    n_ = 1000 + places;
    crashed = crashes(places + 1, [&] { make(options).save(); });
    const int64_t attempt = n_;
    n_ = 0;
    EXPECT_TRUE(make(options).restore_latest());
    EXPECT_TRUE(n_ == saved || n_ == attempt) << "in place " << places << ": " << n_;
    EXPECT_TRUE(crashed || n_ == attempt);
    // What comes after clears up, and goes on.
    saved = n_ = 5000 + places;
    CheckpointManager next = make(options);
    next.save();
    n_ = 0;
    EXPECT_TRUE(next.restore_latest());
    EXPECT_EQ(n_, saved);
    Names kept = checkpoints(next);
    EXPECT_EQ(kept.size(), 2u);
    kept.push_back("checkpoint");
    std::sort(kept.begin(), kept.end());
    EXPECT_EQ(run_names(), kept) << "in place " << places;
  }
  EXPECT_GE(places, 8);
}

TEST_F(Manager, ACrashThatReplacesACheckpointLeavesAWholeOne) {
  const Checkpoint checkpoint({{"n", &n_}});
  n_ = 1;
  checkpoint.save(path("x"));
  int places = 0;
  for (bool crashed = true; crashed; ++places) {
    const int64_t before = n_;
    const int64_t attempt = ++n_;
    crashed = crashes(places + 1, [&] { checkpoint.save(path("x")); });
    checkpoint.restore(path("x"));
    EXPECT_TRUE(n_ == before || n_ == attempt) << "in place " << places;
  }
  EXPECT_GE(places, 5);
}

void fail(const char* place) {
  if (g_calls_left.fetch_sub(1) == 1) throw Error(ErrorCode::kResourceExhausted, place);
}

TEST_F(Manager, AnErrorAnywhereLeavesAWholeOneAndNothingElse) {
  const CheckpointManagerOptions options{.max_to_keep = 2};
  CheckpointManager manager = make(options);
  for (n_ = 1; n_ <= 2; ++n_) manager.save();
  int places = 0;
  for (bool failed = true; failed; ++places) {
    const int64_t before = n_;
    const int64_t attempt = ++n_;
    g_calls_left = places + 1;
    internal::base::g_failpoint_hook = fail;
    failed = error_text<Error>([&] { manager.save(); }) != "nothing thrown";
    internal::base::g_failpoint_hook = nullptr;
    EXPECT_TRUE(make(options).restore_latest());
    EXPECT_TRUE(n_ == before || n_ == attempt || (places == 0 && n_ == 2)) << places << ": " << n_;
    EXPECT_TRUE(failed || n_ == attempt);
    n_ = attempt;
    manager.save();  // The same manager goes on.
    Names kept = checkpoints(manager);
    EXPECT_EQ(kept.size(), 2u);
    for (const std::string& name : run_names()) {
      const bool is_kept = std::find(kept.begin(), kept.end(), name) != kept.end();
      EXPECT_TRUE(is_kept || name == "checkpoint") << name << " is left, in place " << places;
    }
  }
  EXPECT_GE(places, 8);
}

// ---- in the background ----

TEST_F(Manager, InTheBackgroundKeepsWhatWasThereWhenItWasCalled) {
  const testing::Box box({{"w", ones({1000})}});
  CheckpointManager manager(Checkpoint({{"box", box}}), path("run"),
                            {.max_to_keep = 2, .background = true});
  for (int i = 1; i <= 4; ++i) {
    box["w"].fill_(i);
    EXPECT_EQ(manager.save(), path("run/ckpt-") + std::to_string(i));
    box["w"].fill_(-1);
  }
  manager.wait();
  EXPECT_EQ(checkpoints(manager), (Names{"ckpt-3", "ckpt-4"}));
  EXPECT_TRUE(manager.restore_latest());
  EXPECT_TRUE(box["w"].equal(full({1000}, 4)));
  box["w"].fill_(5);
  manager.save();
  EXPECT_TRUE(manager.restore_latest());  // Waits for it.
  EXPECT_TRUE(box["w"].equal(full({1000}, 5)));
}

TEST_F(Manager, InTheBackgroundErrorsComeLater) {
  fs::create_directories(path("run/ckpt-1"));  // Something else has the name.
  CheckpointManager manager = make({.background = true});
  EXPECT_NO_THROW(manager.save(1));
  EXPECT_THROW(manager.wait(), Error);
  EXPECT_NO_THROW(manager.wait());  // Once.
  manager.save(1);
  EXPECT_THROW(manager.save(), Error);
  EXPECT_EQ(manager.save(2), path("run/ckpt-2"));
  manager.wait();
  EXPECT_EQ(checkpoints(manager), Names{"ckpt-2"});

  ::testing::internal::CaptureStderr();
  { make({.background = true}).save(1); }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("was not written: [checkpoint_manager.save]"), std::string::npos) << log;
}

}  // namespace
}  // namespace cohort
