// SPDX-License-Identifier: Apache-2.0
//
// Which elements and files a worker reads, by policy.
#include "cohort/data/pipeline/auto_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cohort/base/strings.h"
#include "cohort/data/core/input_context.h"
#include "cohort/data/test_files.h"
#include "cohort/data/test_values.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using Strings = std::vector<std::string>;
using testing::Numbers;
using testing::values;

Strings strings_of(const Dataset& dataset) {
  Strings out;
  for (const Element& e : dataset) out.push_back(e.string());
  return out;
}

class AutoShard : public testing::FilesTest {
 protected:
  /// File i has the lines "i a" and "i b".
  Strings files(int count) const {
    Strings out;
    for (int i = 0; i < count; ++i) {
      const std::string n = std::to_string(i);
      out.push_back(write(str_cat("file", n), str_cat(n, " a\n", n, " b\n")));
    }
    return out;
  }
  static Strings lines_of(const Strings& numbers) {
    Strings out;
    for (const std::string& n : numbers) out.insert(out.end(), {n + " a", n + " b"});
    return out;
  }
};

TEST_F(AutoShard, D20_FilesOfAWorker) {
  const auto shard = auto_shard_dataset(Dataset::text_lines(files(10)), 5, 3);
  EXPECT_EQ(shard.applied, AutoShardPolicy::kFile);
  EXPECT_EQ(strings_of(shard.dataset), lines_of({"3", "8"}));
  EXPECT_EQ(strings_of(Dataset::text_lines(files(10)).auto_shard(5, 3, AutoShardPolicy::kFile)),
            lines_of({"3", "8"}));
}

TEST_F(AutoShard, D20_FilesBehindOtherSteps) {
  const auto ds = Dataset::text_lines(files(4))
                      .map([](const std::string& line) { return line + "!"; })
                      .batch(2)
                      .repeat(2)
                      .prefetch(1);
  const auto shard = auto_shard_dataset(ds, 4, 2, AutoShardPolicy::kFile);
  auto it = shard.dataset.make_iterator();
  EXPECT_EQ(it.next()->strings(), (Strings{"2 a!", "2 b!"}));
  EXPECT_EQ(it.next()->strings(), (Strings{"2 a!", "2 b!"}));
  EXPECT_FALSE(it.next());
  const auto zipped = Dataset::zip({Dataset::text_lines(files(2)), Dataset::text_lines(files(2))});
  EXPECT_EQ(zipped.auto_shard(2, 1).make_iterator().next()->operator[](1).string(), "1 a");
  // One input without files: by elements.
  const auto mixed = Dataset::zip({Dataset::text_lines(files(2)), Dataset::range(4)});
  EXPECT_EQ(auto_shard_dataset(mixed, 2, 1).applied, AutoShardPolicy::kData);
}

TEST_F(AutoShard, D20_NamesOfFilesBeforeTheyAreShuffled) {
  files(10);
  auto read = [](const std::string& file) { return Dataset::text_lines({file}); };
  // Workers of another process have another order of the names: still no file is read twice.
  Strings all;
  for (int worker = 0; worker < 5; ++worker) {
    const auto names = Dataset::list_files(path("file*"));
    const auto shard = auto_shard_dataset(names.interleave(read), 5, worker);
    EXPECT_EQ(shard.applied, AutoShardPolicy::kFile);
    const Strings lines = strings_of(shard.dataset);
    EXPECT_EQ(lines.size(), 4U);
    all.insert(all.end(), lines.begin(), lines.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, lines_of({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
  // A function that reads no files is no reader.
  const auto plain = Dataset::range(4).flat_map([](int64_t x) { return Dataset::range(x); });
  EXPECT_EQ(auto_shard_dataset(plain, 2, 0).applied, AutoShardPolicy::kData);
  EXPECT_EQ(values(plain.auto_shard(2, 0)), (Numbers{0, 1, 1}));
}

// Each worker in a process of its own: the orders of an unseeded shuffle have nothing in common.
TEST_F(AutoShard, NamesThatAreShuffledFarAboveTheReader) {
  files(10);
  const auto read = [](const std::string& file) { return Dataset::text_lines({file}); };
  using Names = std::function<Dataset(const Dataset&)>;
  const std::vector<std::pair<const char*, Names>> pipelines = {
      {"repeat", [](const Dataset& names) { return names.repeat(3); }},
      {"endless repeat", [](const Dataset& names) { return names.repeat(); }},
      {"map",
       [](const Dataset& names) {
         return names.map([](const std::string& name) { return name; }).repeat(3);
       }},
      {"filter",
       [](const Dataset& names) {
         return names.repeat(3).filter([](const std::string&) { return true; });
       }},
      {"enumerate",
       [](const Dataset& names) {
         return names.enumerate().shuffle(10).map(
             [](const Tensor&, const std::string& name) { return name; });
       }},
  };
  Strings everything;
  for (int i = 0; i < 10; ++i) everything.push_back(std::to_string(i));
  for (const auto& [name, pipeline] : pipelines) {
    Strings all;
    const bool once = name == std::string("enumerate");
    for (int worker = 0; worker < 5; ++worker) {
      const auto names = pipeline(Dataset::list_files(path("file*")));
      const Dataset ds = names.interleave(read, {.cycle_length = 1});
      const auto shard = auto_shard_dataset(ds, 5, worker);
      ASSERT_EQ(shard.applied, AutoShardPolicy::kFile) << name;
      const Strings lines = strings_of(shard.dataset.take(once ? 4 : 12));
      EXPECT_EQ(lines.size(), once ? 4U : 12U) << name;
      all.insert(all.end(), lines.begin(), lines.end());
    }
    std::sort(all.begin(), all.end());
    Strings expected;
    for (const std::string& line : lines_of(everything)) {
      for (int pass = 0; pass < (once ? 1 : 3); ++pass) expected.push_back(line);
    }
    EXPECT_EQ(all, expected) << name << ": every file as often, by one worker or another";
  }
}

TEST_F(AutoShard, D20_FilesThatAreReadInParallel) {
  const auto ds = Dataset::text_lines(files(8), {.parallel_reads = 2});
  const auto shard = auto_shard_dataset(ds, 4, 1);
  EXPECT_EQ(shard.applied, AutoShardPolicy::kFile);
  EXPECT_EQ(strings_of(shard.dataset), (Strings{"1 a", "5 a", "1 b", "5 b"}));
}

TEST_F(AutoShard, D20_LookingDoesNotChangeTheOrder) {
  files(6);
  auto read = [](const std::string& file) { return Dataset::text_lines({file}); };
  auto make = [&] { return Dataset::list_files(path("file*"), {.seed = 3}).flat_map(read); };
  const Dataset looked_at = make();
  looked_at.auto_shard(1, 0);
  looked_at.auto_shard(2, 1);
  EXPECT_EQ(strings_of(looked_at), strings_of(make()));
}

TEST(AutoShardData, D21_EveryNthElement) {
  EXPECT_EQ(values(Dataset::range(10).auto_shard(5, 0, AutoShardPolicy::kData)), (Numbers{0, 5}));
  const auto shard =
      auto_shard_dataset(Dataset::range(10).batch(2).prefetch(1).with_options({}), 2, 1);
  EXPECT_EQ(shard.applied, AutoShardPolicy::kData);
  EXPECT_EQ(values(shard.dataset), (Numbers{2, 3, 6, 7}));
  EXPECT_EQ(values(Dataset::range(2).auto_shard(5, 4)),
            Numbers{});  // An empty worker is not an error.
}

TEST_F(AutoShard, D22_FewerFilesThanWorkers) {
  const auto ds = Dataset::text_lines(files(2));
  EXPECT_EQ(error_text<InvalidArgument>([&] { ds.auto_shard(5, 0, AutoShardPolicy::kFile); }),
            "[dataset.auto_shard] expected at least one file for each of 5 workers to share by "
            "files, got 2");
  // kAuto does the right thing instead: nothing is lost, nothing is read twice.
  const auto shard = auto_shard_dataset(ds, 3, 2);
  EXPECT_EQ(shard.applied, AutoShardPolicy::kData);
  EXPECT_EQ(strings_of(shard.dataset), Strings{"1 a"});
}

TEST(AutoShardFile, NothingReadsFiles) {
  testing::expect_error(ErrorCode::kNotFound, {},
                        [&] { Dataset::range(4).auto_shard(2, 0, AutoShardPolicy::kFile); });
  EXPECT_THROW(Dataset::range(4).auto_shard(2, 2), InvalidArgument);
  EXPECT_THROW(Dataset::range(4).auto_shard(0, 0), InvalidArgument);
}

TEST(AutoShardHint, D23_AShardWhereTheProgramSays) {
  const auto ds = Dataset::range(100).shard(kShardHint, 0).batch(3);
  const auto shard = auto_shard_dataset(ds, 10, 0, AutoShardPolicy::kHint);
  EXPECT_EQ(values(shard.dataset), (Numbers{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}));
  EXPECT_EQ(values(Dataset::range(3).auto_shard(2, 1, AutoShardPolicy::kHint)), (Numbers{0, 1, 2}));
}

TEST(AutoShardHint, D24_NotReplaced) {
  const auto ds = Dataset::range(100).shard(kShardHint, 0).batch(3);
  EXPECT_THROW(ds.make_iterator(), FailedPrecondition);
}

TEST(AutoShardOff, EveryWorkerReadsEverything) {
  const auto shard = auto_shard_dataset(Dataset::range(3), 2, 1, AutoShardPolicy::kOff);
  EXPECT_EQ(values(shard.dataset), (Numbers{0, 1, 2}));
  EXPECT_EQ(shard.applied, AutoShardPolicy::kOff);
}

TEST(InputContext, D25_BatchOfAReplica) {
  const InputContext context{.num_replicas_in_sync = 6};
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  EXPECT_THROW(context.get_per_replica_batch_size(13), InvalidArgument);
}

TEST(WithInputs, EveryStepCanBeRebuiltOverOthers) {
  const auto ds =
      Dataset::range(20)
          .shard(kShardHint, 0)
          .shuffle(20, {.seed = 1})
          .take(9)
          .skip(1)
          .repeat(2)
          .map([](const Tensor& x) { return x; })
          .filter([](int64_t x) { return x >= 0; })
          .cache()
          .enumerate()
          .map([](const Tensor&, const Tensor& x) { return x; })
          .ignore_errors()
          .batch(3)
          .unbatch()
          .scan(scalar(0), [](const Element& s, const Element& x) { return std::pair(s, x); })
          .flat_map([](const Tensor& x) { return Dataset::from_tensors(x); })
          .concatenate(Dataset::range(2))
          .padded_batch(4)
          .prefetch(2);
  const Numbers got = values(ds.auto_shard(2, 1, AutoShardPolicy::kHint));
  ASSERT_EQ(got.size(), 18U);
  EXPECT_TRUE(std::all_of(got.begin(), got.begin() + 16, [](int64_t x) { return x % 2 == 1; }));
  EXPECT_EQ(got.back(), 1);
  const auto mixed = Dataset::sample_from_datasets({Dataset::range(4).shard(kShardHint, 0)});
  EXPECT_EQ(values(mixed.auto_shard(2, 1, AutoShardPolicy::kHint)), (Numbers{1, 3}));
}

}  // namespace
}  // namespace cohort
