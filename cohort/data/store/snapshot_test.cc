// SPDX-License-Identifier: Apache-2.0
//
// snapshot, save and load, assert_cardinality.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::expect_resumes;
using testing::texts_of;
using Texts = std::vector<std::string>;

Texts sorted(Texts texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

class Snapshot : public testing::FilesTest {
 protected:
  Dataset counted(int64_t n) {
    return Dataset::range(n).map([this](int64_t x) {
      ++calls_;
      return 10 * x;
    });
  }
  Texts names_in(const std::string& folder) const {
    Texts out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      out.push_back(entry.path().filename().string());
    }
    return sorted(out);
  }
  int64_t calls_ = 0;
};

TEST_F(Snapshot, LaterPassesReadWhatTheFirstWrote) {
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    calls_ = 0;
    const auto make = [&] {
      return counted(10).snapshot(path("s"), {.compression = compression, .shards = 3});
    };
    const Texts all = texts_of(make());
    EXPECT_EQ(calls_, 10);
    EXPECT_EQ(texts_of(make()), all);  // In the same order.
    EXPECT_EQ(texts_of(make().repeat(2)).size(), 20U);
    EXPECT_EQ(calls_, 10);
    EXPECT_EQ(make().cardinality(), 10);
    EXPECT_EQ(make().element_spec().to_string(), "int64[]");
  }
  const Texts folders = names_in(path("s"));
  ASSERT_EQ(folders.size(), 2U);  // One for each compression.
  EXPECT_EQ(
      names_in(path("s/" + folders[0])),
      (Texts{"elements", "shard-00000-of-00003", "shard-00001-of-00003", "shard-00002-of-00003"}));
}

// Before the pass, not when all is written.
TEST_F(Snapshot, AFolderThatIsNotWholeIsNamed) {
  const auto make = [&] { return counted(10).snapshot(path("s")); };
  texts_of(make());
  calls_ = 0;
  const Texts folders = names_in(path("s"));
  std::filesystem::remove(path("s/" + folders[0] + "/elements"));
  testing::expect_error<Error>({"[dataset.snapshot]", folders[0], "\"elements\"", "remove it"},
                               [&] { texts_of(make()); });
  EXPECT_EQ(calls_, 0);
  std::filesystem::remove_all(path("s/" + folders[0]));
  EXPECT_EQ(texts_of(make()).size(), 10U);
}

TEST_F(Snapshot, AnotherPipelineGetsAnotherFolder) {
  const auto shot = [this](const Dataset& ds, const std::string& version = "") {
    return texts_of(ds.snapshot(path("s"), {.version = version})).size();
  };
  const auto slices = [](double first) {
    return Dataset::from_tensor_slices(tensor({first, 1, 2, 3}));
  };
  shot(counted(6));
  EXPECT_EQ(shot(counted(7)), 7U);
  EXPECT_EQ(shot(counted(6).take(2)), 2U);
  EXPECT_EQ(shot(counted(6).take(3)), 3U);
  shot(counted(6).batch(2));
  EXPECT_EQ(shot(counted(6).batch(4)), 2U);
  shot(counted(6).shuffle(6, {.seed = 1}));
  shot(counted(6).shuffle(6, {.seed = 2}));
  shot(slices(0));
  shot(slices(5));
  EXPECT_EQ(names_in(path("s")).size(), 10U);
  // These are known already, also with seeds that nobody gave.
  shot(counted(6).take(3));
  shot(slices(5));
  shot(counted(6).shuffle(6));
  shot(counted(6).shuffle(6));
  EXPECT_EQ(names_in(path("s")).size(), 11U);
  shot(counted(6), "other function");
  EXPECT_EQ(names_in(path("s")).size(), 12U);
  const auto mixed = [&](uint64_t seed) {
    return Dataset::sample_from_datasets({counted(6), counted(9)}, {}, {.seed = seed});
  };
  EXPECT_NE(texts_of(mixed(1).snapshot(path("s"))), texts_of(mixed(2).snapshot(path("s"))));
  const auto sums = [&](int64_t first) {
    return counted(3).scan(scalar(first, kInt64), [](const Element& sum, const Element& x) {
      const Tensor next = sum.tensor() + x.tensor();
      return std::pair<Element, Element>(next, next);
    });
  };
  EXPECT_EQ(texts_of(sums(0).snapshot(path("s"))), (Texts{"[0]", "[10]", "[30]"}));
  EXPECT_EQ(texts_of(sums(1).snapshot(path("s"))), (Texts{"[1]", "[11]", "[31]"}));
}

TEST_F(Snapshot, WorkersThatShareFilesHaveSnapshotsOfTheirOwn) {
  const std::string a = write("a", "1\n2\n"), b = write("b", "3\n4\n");
  // A seed that nobody gave is another one in the next process, whose snapshot this is, too.
  const auto make = [&] { return Dataset::text_lines({a, b}).shuffle(2).snapshot(path("s")); };
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(sorted(texts_of(make().auto_shard(2, 0))), (Texts{"1", "2"}));
    EXPECT_EQ(sorted(texts_of(make().auto_shard(2, 1))), (Texts{"3", "4"}));
    EXPECT_EQ(names_in(path("s")).size(), 2U);
  }
}

TEST_F(Snapshot, OfLoadedElementsBelongToOneFolder) {
  Dataset::range(4).save(path("a"));
  Dataset::range(10, 14).save(path("b"));
  const auto shot = [&](const char* folder) {
    return texts_of(Dataset::load(path(folder)).snapshot(path("s")));
  };
  EXPECT_EQ(shot("a"), texts_of(Dataset::range(4)));
  EXPECT_EQ(shot("b"), texts_of(Dataset::range(10, 14)));
  EXPECT_EQ(shot("a"), texts_of(Dataset::range(4)));
}

TEST_F(Snapshot, OfALongRangeDoesNotReadIt) {
  const auto make = [&] {
    return Dataset::range(std::numeric_limits<int64_t>::max()).take(3).snapshot(path("s"));
  };
  EXPECT_EQ(texts_of(make()), texts_of(Dataset::range(3)));
  EXPECT_EQ(texts_of(make()), texts_of(Dataset::range(3)));
}

TEST_F(Snapshot, APartOfAPassLeavesNothing) {
  const Dataset ds = counted(6).snapshot(path("s"));
  EXPECT_EQ(texts_of(ds.take(2)).size(), 2U);
  EXPECT_EQ(names_in(path("s")), Texts{});
  EXPECT_EQ(texts_of(ds).size(), 6U);
  EXPECT_EQ(names_in(path("s")).size(), 1U);
}

TEST_F(Snapshot, TwoWritersAtOnce) {
  const Dataset ds = counted(4).snapshot(path("s"));
  auto first = ds.make_iterator();
  auto second = ds.make_iterator();
  first.next();
  second.next();
  EXPECT_EQ(testing::rest_of(first).size(), 3U);
  EXPECT_EQ(testing::rest_of(second).size(), 3U);
  EXPECT_EQ(names_in(path("s")).size(), 1U);
  EXPECT_EQ(calls_, 8);
  EXPECT_EQ(texts_of(ds).size(), 4U);
  EXPECT_EQ(calls_, 8);
}

TEST_F(Snapshot, FunctionsSayWhereElementsGoAndComeFrom) {
  const auto make = [this] {
    return Dataset::range(9).snapshot(
        path("s"),
        {.shards = 3,
         .shard_function = [](const Element& x) { return x.as<int64_t>() / 3; },
         .reader =
             [](const Dataset& shards) {
               return shards.skip(1).flat_map([](const Dataset& shard) { return shard; });
             }});
  };
  EXPECT_EQ(texts_of(make()).size(), 9U);
  const auto missing = error_text<FailedPrecondition>([&] {
    auto it = make().make_iterator();
    while (it.next()) {
    }
  });
  // The reader left a file out.
  EXPECT_EQ(missing, "[dataset.assert_cardinality] expected 9 elements, got 6");
  const Dataset bad = Dataset::range(3).snapshot(
      path("s"), {.shards = 2, .shard_function = [](const Element&) { return int64_t{2}; }});
  EXPECT_NE(error_text<InvalidArgument>([&] { texts_of(bad); }).find("in [0, 2), got 2"),
            std::string::npos);
}

TEST_F(Snapshot, ReadersMayShuffleFiles) {
  const auto make = [this] {
    return Dataset::range(9).snapshot(path("s"),
                                      {.shards = 3, .reader = [](const Dataset& shards) {
                                         return shards.shuffle(3, {.seed = 8})
                                             .interleave([](const Dataset& shard) { return shard; },
                                                         {.cycle_length = 2});
                                       }});
  };
  const Texts first = texts_of(make());
  const Texts later = texts_of(make());
  EXPECT_NE(later, first);
  EXPECT_EQ(sorted(later), sorted(first));
  expect_resumes(make);
}

TEST_F(Snapshot, ResumesEverywhere) {
  expect_resumes([this] { return Dataset::range(7).snapshot(path("a"), {.shards = 2}).batch(2); });
  int folder = 0;
  expect_resumes([&] { return Dataset::range(5).snapshot(path(str_cat("b", folder++))); });
}

TEST_F(Snapshot, RefusesImpossibleOptions) {
  const Dataset ds = Dataset::range(3);
  EXPECT_THROW(ds.snapshot(path("s"), {.shards = 0}), InvalidArgument);
  EXPECT_THROW(ds.snapshot(path("s"), {.compression = Compression::kZlib}), InvalidArgument);
  EXPECT_THROW(ds.snapshot(""), InvalidArgument);
}

TEST_F(Snapshot, SaveAndLoad) {
  const Dataset ds =
      Dataset::from_tensor_slices({arange(7), Texts{"a", "b", "c", "d", "e", "f", "g"}}).batch(2);
  ds.save(path("d"), {.compression = Compression::kGzip, .shards = 2});
  const Dataset loaded = Dataset::load(path("d"));
  EXPECT_EQ(texts_of(loaded), texts_of(ds));
  EXPECT_EQ(loaded.cardinality(), 4);
  EXPECT_EQ(loaded.element_spec(), ds.element_spec());
  EXPECT_EQ(error_text<Error>([&] { ds.save(path("d")); }),
            "[dataset.save] expected a path that does not exist yet, got " + path("d") +
                "; remove it or name another");
  EXPECT_EQ(error_text<Error>([&] { Dataset::load(path("e")); }),
            "[dataset.load] expected a folder that save wrote, got " + path("e"));
  const Dataset backwards = Dataset::load(path("d"), [](const Dataset& shards) {
    return shards.flat_map([](const Dataset& shard) { return shard; });
  });
  EXPECT_EQ(sorted(texts_of(backwards)), sorted(texts_of(ds)));
  expect_resumes([this] { return Dataset::load(path("d")).shuffle(3, {.seed = 1}); });
}

TEST_F(Snapshot, SaveDoesNotTakeAnotherOnesFolderForItsOwn) {
  const Dataset late = Dataset::range(3).map([this](int64_t x) {
    if (x == 2) Dataset::range(7).save(path("s"));
    return x;
  });
  testing::expect_error(ErrorCode::kAlreadyExists, {}, [&] { late.save(path("s")); });
  EXPECT_EQ(texts_of(Dataset::load(path("s"))), texts_of(Dataset::range(7)));
  EXPECT_EQ(names_in(path("")), Texts{"s"});
}

TEST_F(Snapshot, LinksAndPipesInPlaceOfFilesAreErrors) {
  const std::string victim = write("victim", "precious");
  std::filesystem::create_symlink(path("not_there"), path("saved"));
  EXPECT_THROW(Dataset::range(3).save(path("saved")), Error);
  EXPECT_FALSE(std::filesystem::exists(path("not_there")));
  Dataset::range(3).save(path("pipes"));
  for (const auto& entry : std::filesystem::directory_iterator(path("pipes"))) {
    std::filesystem::remove(entry.path());
    ASSERT_EQ(mkfifo(entry.path().c_str(), 0600), 0);
  }
  testing::run_with_deadline(std::chrono::seconds(20),
                             [&] { EXPECT_THROW(Dataset::load(path("pipes")), DataLoss); });
  EXPECT_EQ(read("victim"), "precious");
}

TEST_F(Snapshot, SaveLeavesNothingWhenAPassThrows) {
  const Dataset ds = Dataset::range(4).map([](int64_t x) {
    if (x == 2) throw DataLoss("bad record");
    return x;
  });
  EXPECT_THROW(ds.save(path("folder/d")), DataLoss);
  EXPECT_EQ(names_in(path("folder")), Texts{});
}

TEST_F(Snapshot, DamagedShardsAreDataLoss) {
  Dataset::range(6).save(path("d"), {.shards = 2});
  const std::string whole = read("d/shard-00001-of-00002");
  write("d/shard-00001-of-00002", whole.substr(0, whole.size() - 5));
  const std::string text = error_text<DataLoss>([&] {
    for (const Element& e : Dataset::load(path("d"))) static_cast<void>(e);
  });
  EXPECT_NE(text.find(path("d/shard-00001-of-00002")), std::string::npos) << text;
  std::filesystem::remove(path("d/shard-00001-of-00002"));
  EXPECT_THROW(texts_of(Dataset::load(path("d"))), Error);
}

TEST(AssertCardinality, IsBelievedAndChecked) {
  const Dataset odd = Dataset::range(10).filter([](int64_t x) { return x % 2 == 1; });
  EXPECT_EQ(odd.cardinality(), kUnknownCardinality);
  EXPECT_EQ(odd.assert_cardinality(5).cardinality(), 5);
  EXPECT_EQ(texts_of(odd.assert_cardinality(5)).size(), 5U);
  EXPECT_EQ(error_text<FailedPrecondition>([&] { texts_of(odd.assert_cardinality(6)); }),
            "[dataset.assert_cardinality] expected 6 elements, got 5");
  EXPECT_EQ(error_text<FailedPrecondition>([&] { texts_of(odd.assert_cardinality(4)); }),
            "[dataset.assert_cardinality] expected 4 elements, got more");
  EXPECT_EQ(error_text<FailedPrecondition>(
                [&] { texts_of(odd.assert_cardinality(kInfiniteCardinality)); }),
            "[dataset.assert_cardinality] expected elements without end, got 5");
  EXPECT_THROW(odd.assert_cardinality(-3), InvalidArgument);
  expect_resumes([&] { return odd.assert_cardinality(5).batch(2); });
}

}  // namespace
}  // namespace cohort
