// SPDX-License-Identifier: Apache-2.0
//
// Workers that share a disk each write their own slices of the optimizer's slots into one
// checkpoint: whole or not there, whatever fails on whom, and restored by any number of them.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/write_guard.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/keras.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

namespace fs = std::filesystem;
using cohort::testing::error_text;
using cohort::testing::expect_words;
using cohort::testing::run_with_deadline;
using cohort::testing::Workers;

constexpr auto kLimit = std::chrono::seconds(90);

// Of hooks, which are plain functions.
std::string g_fails_at;  // NOLINT: as of all tests with hooks
std::mutex g_written_mutex;
std::set<std::string> g_written;  // NOLINT

int worker_of(const Strategy& strategy) { return strategy.extended().layout().worker(); }

/// Variables of every number of axes, none of a size that workers divide, with an optimizer.
struct Trained {
  explicit Trained(const Strategy& s) : scope(s.scope()), strategy(s) {
    for (const Shape& shape : std::vector<Shape>{{}, {7}, {3, 5}, {2, 3, 5}, {3, 2, 2, 3}, {41}}) {
      const std::string name = str_cat("v", variables.size());
      variables.emplace_back(zeros(shape) + 0.5, VariableOptions{.name = name});
    }
    optimizer.build(variables);
  }
  void train(int64_t steps = 2) {
    for (int64_t i = 0; i < steps; ++i, ++step) {
      strategy.run([this] {
        GradientTape tape;
        Tensor loss = zeros({});
        for (const Variable& v : variables) {
          const Tensor x = arange(v.value().numel()).to(kFloat32).reshape(v.shape()) + 1;
          loss = loss + (v * x * static_cast<double>(step + 1)).sum();
        }
        optimizer.apply_gradients(tape.gradient(loss, variables));
      });
    }
  }
  Checkpoint checkpoint() {
    std::map<std::string, TrackableRef> roots = {{"optimizer", optimizer}, {"step", &step}};
    for (const Variable& v : variables) roots.emplace(v.name(), v);
    return Checkpoint(roots);
  }
  std::vector<double> numbers() const {
    std::vector<double> out = {static_cast<double>(step)};
    const auto add = [&](const Variable& v) {
      for (const double x : to_vector<double>(v.value().to(kFloat64))) out.push_back(x);
    };
    for (const Variable& v : variables) add(v);
    for (const Variable& v : optimizer.variables()) add(v);
    return out;
  }

  Scope scope;
  std::vector<Variable> variables;
  Adam optimizer{{.learning_rate = 0.01}};
  int64_t step = 0;
  const Strategy strategy;
};

class SeveralWriters : public cohort::testing::FolderTest {
 protected:
  void TearDown() override {
    cohort::internal::base::g_fault_hook = nullptr;
    FolderTest::TearDown();
  }
  template <class Play>
  static auto on_workers(int workers, const Play& play) {
    return run_with_deadline(kLimit, [&] { return Workers(workers, 1).run(play); });
  }
  /// Writes fail where the file's path has `part`.
  static void fill_disk_of(const std::string& part) {
    g_fails_at = part;
    cohort::internal::base::g_fault_hook = [](const char* call, const std::string& path) {
      const bool fails =
          std::string_view(call) == "write_file" && path.find(g_fails_at) != std::string::npos;
      return fails ? ENOSPC : 0;
    };
  }
  static std::vector<std::string> files_in(const std::string& folder) {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder)) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  std::vector<double> restored_by(int workers, const std::string& from) const {
    const auto all = on_workers(workers, [&](const Strategy& strategy) {
      Trained fresh(strategy);
      fresh.checkpoint().restore(from).assert_consumed();
      return fresh.numbers();
    });
    for (const auto& one : all) EXPECT_EQ(one, all[0]);
    return all[0];
  }
};

TEST_F(SeveralWriters, WhatTheyHaveWrittenIsRestoredByAnyNumber) {
  for (const int writers : {2, 3, 5}) {
    const auto numbers = on_workers(writers, [&](const Strategy& strategy) {
      Trained trained(strategy);
      trained.train();
      trained.checkpoint().save(path("x"));
      return trained.numbers();
    });
    EXPECT_EQ(names(), std::vector<std::string>{"x"});
    EXPECT_GT(files_in(path("x")).size(), static_cast<std::size_t>(writers));
    for (const int readers : {1, 2, 3}) EXPECT_EQ(restored_by(readers, path("x")), numbers[0]);
    const MirroredStrategy two({Device("CPU:0"), Device("CPU:1")});
    Trained mirrored(two);
    mirrored.checkpoint().restore(path("x")).assert_consumed();
    EXPECT_EQ(mirrored.numbers(), numbers[0]);
  }
}

// No slot travels: every element is in a file of its worker, in one only, and the chief's file has
// what all have in common.
TEST_F(SeveralWriters, EachWritesItsOwnSlices) {
  cohort::internal::base::g_fault_hook = [](const char* call, const std::string& path) {
    if (std::string_view(call) != "write_file") return 0;
    const std::lock_guard lock(g_written_mutex);
    g_written.insert(fs::path(path).filename().string());
    return 0;
  };
  on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    trained.train();
    trained.checkpoint().save(path("x"));
    return true;
  });
  int64_t elements = 0;
  int files = 0;
  for (const std::string& name : files_in(path("x"))) {
    EXPECT_TRUE(g_written.contains(name)) << name;
    if (!name.ends_with(".safetensors")) continue;
    const auto loaded = load_tensors(path("x/" + name));
    EXPECT_EQ(loaded.tensors.contains("v5"), ++files == 1) << name;
    EXPECT_TRUE(loaded.metadata.contains("DCP_SHARDING_INFO")) << name;
    for (const auto& [value, tensor] : loaded.tensors) {
      if (value == "optimizer/v5/momentum") elements += tensor.numel();
    }
  }
  EXPECT_EQ(elements, 41);
}

// As a worker on another host has it, whose disk is its own.
TEST_F(SeveralWriters, WhereOneDoesNotSeeTheFolderTheChiefWritesAll) {
  cohort::internal::base::g_fault_hook = [](const char* call, const std::string&) {
    return std::string_view(call) == "find" ? ENOENT : 0;
  };
  const auto numbers = on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    trained.train();
    trained.checkpoint().save(path("x"));
    return trained.numbers();
  });
  EXPECT_EQ(
      files_in(path("x")),
      (std::vector<std::string>{"cohort.json", "shard-00001-model-00001-of-00001.safetensors"}));
  cohort::internal::base::g_fault_hook = nullptr;
  EXPECT_EQ(restored_by(3, path("x")), numbers[0]);
}

// The disk has another path on the other worker.
TEST_F(SeveralWriters, TheFolderIsLookedForBesideAWorkersOwnPathToo) {
  fs::create_directory(path("run"));
  fs::create_directory_symlink(path("run"), path("elsewhere"));
  g_fails_at = path("run");
  cohort::internal::base::g_fault_hook = [](const char* call, const std::string& at) {
    return std::string_view(call) == "find" && at.starts_with(g_fails_at) ? ENOENT : 0;
  };
  on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    trained.train();
    CheckpointManager manager(trained.checkpoint(),
                              path(worker_of(strategy) == 0 ? "run" : "elsewhere"));
    EXPECT_EQ(manager.save(), path("run/ckpt-1"));
    return true;
  });
  EXPECT_GT(files_in(path("run/ckpt-1")).size(), 2U);
  cohort::internal::base::g_fault_hook = nullptr;
  restored_by(1, path("run/ckpt-1"));
}

TEST_F(SeveralWriters, AFullDiskOnOneIsNamedOnAllAndLosesNothing) {
  const std::vector<double> before = on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    trained.train();
    trained.checkpoint().save(path("x"));
    return trained.numbers();
  })[0];
  // The last of the files is the other worker's.
  const std::string last = files_in(path("x")).back();
  const std::string first = "shard-00001-";
  for (const std::string& full : {last, first, std::string("cohort.json")}) {
    fill_disk_of(full);
    on_workers(2, [&](const Strategy& strategy) {
      Trained trained(strategy);
      trained.train(3);
      const std::string text = error_text<Error>([&] { trained.checkpoint().save(path("x")); });
      expect_words(text, {full, "No space left"});
      // The one that it is of throws it as it is.
      const int whose = full == last ? 1 : 0;
      if (worker_of(strategy) != whose) expect_words(text, {str_cat("rank ", whose)});
      return true;
    });
    EXPECT_EQ(names(), std::vector<std::string>{"x"}) << "nothing is left of " << full;
    EXPECT_EQ(restored_by(2, path("x")), before);
  }
  cohort::internal::base::g_fault_hook = nullptr;
  on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    trained.train(3);
    trained.checkpoint().save(path("x"));
    return true;
  });
  EXPECT_NE(restored_by(2, path("x")), before);
}

// It was stopped, and the others may have gone on without it: it writes nothing, not even beside
// what counts.
TEST_F(SeveralWriters, AWorkerThatMustNotWriteDoesNot) {
  static thread_local bool is_given_up = false;
  const cohort::internal::base::WriteGuard guard([] {
    if (is_given_up) throw FailedPrecondition("given up");
  });
  on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    trained.train();
    trained.checkpoint().save(path("x"));
    is_given_up = worker_of(strategy) == 1;
    expect_words(error_text<Error>([&] { trained.checkpoint().save(path("y")); }), {"given up"});
    return true;
  });
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(SeveralWriters, AManagerRemovesAllFilesAndPassesOverWhatLacksOne) {
  on_workers(3, [&](const Strategy& strategy) {
    Trained trained(strategy);
    CheckpointManager manager(trained.checkpoint(), path("run"), {.max_to_keep = 2});
    for (int i = 0; i < 4; ++i) {
      trained.train(1);
      manager.save();
    }
    return true;
  });
  EXPECT_EQ(files_in(path("run")), (std::vector<std::string>{"checkpoint", "ckpt-3", "ckpt-4"}));
  fs::remove(path("run/ckpt-4/") + files_in(path("run/ckpt-4")).back());
  on_workers(2, [&](const Strategy& strategy) {
    Trained trained(strategy);
    CheckpointManager manager(trained.checkpoint(), path("run"));
    EXPECT_TRUE(manager.restore_latest());
    EXPECT_EQ(trained.step, 3);
    return true;
  });
}

// Threads that write behind the program do not meet. What the chief's options say counts for all.
TEST_F(SeveralWriters, InTheBackgroundTheChiefWritesAll) {
  for (const std::vector<bool>& who : {std::vector{true, true}, {true, false}, {false, true}}) {
    fs::remove_all(path("run"));
    const auto numbers = on_workers(2, [&](const Strategy& strategy) {
      Trained trained(strategy);
      const bool background = who[static_cast<std::size_t>(worker_of(strategy))];
      CheckpointManager manager(trained.checkpoint(), path("run"), {.background = background});
      trained.train();
      manager.save();
      std::vector<double> out = trained.numbers();
      trained.train();
      manager.wait();
      return out;
    });
    EXPECT_EQ(files_in(path("run/ckpt-1")).size() == 2, who[0]);
    EXPECT_EQ(restored_by(2, path("run/ckpt-1")), numbers[0]);
  }
}

}  // namespace
}  // namespace cohort::keras
