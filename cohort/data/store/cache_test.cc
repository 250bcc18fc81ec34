// SPDX-License-Identifier: Apache-2.0
//
// cache(file): what a complete pass leaves for later ones and other processes.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "cohort/data/dataset.h"
#include "cohort/data/test_elements.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/file_size_limit.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::expect_resumes;
using testing::texts_of;
using Texts = std::vector<std::string>;

/// Every element of range(n), counted.
Dataset counted(int64_t n, int64_t& calls) {
  return Dataset::range(n).map([&calls](int64_t x) {
    ++calls;
    return 10 * x;
  });
}
const Texts kFour = {"[0]", "[10]", "[20]", "[30]"};

class FileCache : public testing::FilesTest {
 protected:
  std::size_t files_in(const std::string& folder) const {
    const std::filesystem::directory_iterator all(path(folder));
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  static void read_through(const std::string& file) {
    for ([[maybe_unused]] const Element& element : Dataset::range(3).cache(file)) {
    }
  }
  int64_t calls_ = 0;
};

TEST_F(FileCache, ACompletePassIsReadFromThenOn) {
  const Dataset first = counted(4, calls_).cache(path("new/folder/c"));
  EXPECT_EQ(first.cardinality(), 4);
  EXPECT_EQ(texts_of(first), kFour);
  EXPECT_EQ(texts_of(first.repeat(2)).size(), 8U);
  EXPECT_EQ(calls_, 4);
  const Dataset another_process = counted(4, calls_).cache(path("new/folder/c"));
  EXPECT_EQ(texts_of(another_process), kFour);
  EXPECT_EQ(calls_, 4);
  EXPECT_EQ(files_in("new/folder"), 1U);
}

TEST_F(FileCache, RepeatReadsTheFileFromTheSecondPassOn) {
  EXPECT_EQ(texts_of(counted(4, calls_).cache(path("c")).repeat(3)).size(), 12U);
  EXPECT_EQ(calls_, 4);
}

TEST_F(FileCache, APartOfAPassLeavesNothing) {
  const Dataset ds = counted(4, calls_).cache(path("folder/c"));
  {
    auto it = ds.make_iterator();
    it.next();
    EXPECT_EQ(files_in("folder"), 2U);  // What is written and the lock.
  }
  EXPECT_EQ(files_in("folder"), 0U);
  EXPECT_EQ(texts_of(ds.take(2)).size(), 2U);
  EXPECT_EQ(files_in("folder"), 0U);
  EXPECT_EQ(texts_of(ds), kFour);
  EXPECT_EQ(calls_, 1 + 2 + 4);
}

TEST_F(FileCache, APassThatThrewLeavesNothing) {
  bool bad = true;
  const Dataset ds = Dataset::range(4)
                         .map([&bad](int64_t x) {
                           if (bad && x == 2) throw DataLoss("bad record");
                           return 10 * x;
                         })
                         .cache(path("c"));
  EXPECT_EQ(texts_of(ds).size(), 4U);  // Three elements and the text of the error.
  EXPECT_FALSE(std::filesystem::exists(path("c")));
  bad = false;
  EXPECT_EQ(texts_of(ds), kFour);
  EXPECT_TRUE(std::filesystem::exists(path("c")));
}

TEST_F(FileCache, TwoPassesCannotFillAtOnce) {
  const Dataset ds = counted(4, calls_).cache(path("c"));
  auto first = ds.make_iterator();
  first.next();
  auto second = ds.make_iterator();
  testing::expect_error(
      ErrorCode::kAlreadyExists,
      {"[dataset.cache] expected no other pass that writes the file, got process ",
       path("c.lockfile")},
      [&] { second.next(); });
  EXPECT_EQ(testing::rest_of(first).size(), 3U);
  EXPECT_EQ(texts_of(ds), kFour);
}

TEST_F(FileCache, LeftoversOfACrashAreNoHindrance) {
  write("c.lockfile", "process 1 on elsewhere, long gone");
  write("c.partial", "half an element");
  EXPECT_EQ(texts_of(counted(4, calls_).cache(path("c"))), kFour);
  EXPECT_FALSE(std::filesystem::exists(path("c.lockfile")));
  EXPECT_FALSE(std::filesystem::exists(path("c.partial")));
}

// In a folder that others may write to, a name says nothing about who has laid what there.
TEST_F(FileCache, LinksThatOthersLaidAreNotFollowed) {
  const std::string victim = write("victim", "precious");
  const auto read_all = [&](const std::string& file) { read_through(path(file)); };
  std::filesystem::create_symlink(victim, path("a.partial"));
  read_all("a");
  std::filesystem::create_symlink(victim, path("b.lockfile"));
  EXPECT_THROW(read_all("b"), Error);
  std::filesystem::create_hard_link(victim, path("c.lockfile"));
  EXPECT_THROW(read_all("c"), Error);
  std::filesystem::create_symlink(path("not_there"), path("d"));
  read_all("d");
  EXPECT_EQ(read("victim"), "precious");
  EXPECT_FALSE(std::filesystem::exists(path("not_there")));
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path("d"))));
}

TEST_F(FileCache, PipesAreErrorsAndBlockNobody) {
  for (const char* name : {"a", "b.partial", "c.lockfile"})
    ASSERT_EQ(mkfifo(path(name).c_str(), 0600), 0);
  testing::run_with_deadline(std::chrono::seconds(20), [&] {
    const auto read_all = [&](const std::string& file) { read_through(path(file)); };
    EXPECT_THROW(read_all("a"), DataLoss);
    read_all("b");
    EXPECT_TRUE(std::filesystem::is_regular_file(path("b")));
    EXPECT_THROW(read_all("c"), Error);
  });
}

TEST_F(FileCache, RefusesAnotherPipelinesFile) {
  texts_of(counted(4, calls_).cache(path("c")));
  const auto text = error_text<InvalidArgument>(
      [&] { Dataset::range(4).take(3).cache(path("c")).make_iterator(); });
  EXPECT_NE(
      text.find("expected the elements of take[3] int64[] (range[0 to 4 by 1] int64[]; ) in "),
      std::string::npos);
  EXPECT_NE(text.find("got those of map[] int64[] (range[0 to 4 by 1] int64[]; )"),
            std::string::npos);
  const Dataset other_type =
      Dataset::range(4).map([](int64_t x) { return static_cast<float>(x); }).cache(path("c"));
  EXPECT_THROW(other_type.make_iterator(), InvalidArgument);
  // The same steps of other sizes, and other files.
  texts_of(Dataset::range(6).batch(2).cache(path("batches")));
  EXPECT_THROW(Dataset::range(6).batch(3).cache(path("batches")).make_iterator(), InvalidArgument);
  const std::string a = write("a", "1\n"), b = write("b", "2\n");
  texts_of(Dataset::text_lines({a}).cache(path("lines")));
  EXPECT_THROW(Dataset::text_lines({b}).cache(path("lines")).make_iterator(), InvalidArgument);
}

TEST_F(FileCache, WorkersThatShareFilesDoNotShareAFile) {
  const std::string a = write("a", "1\n2\n"), b = write("b", "3\n4\n");
  const Dataset ds = Dataset::text_lines({a, b}).cache(path("c"));
  EXPECT_EQ(texts_of(ds.auto_shard(2, 0)), (Texts{"1", "2"}));
  EXPECT_EQ(texts_of(ds.auto_shard(2, 0)), (Texts{"1", "2"}));
  EXPECT_THROW(ds.auto_shard(2, 1).make_iterator(), InvalidArgument);
}

TEST_F(FileCache, DamageNamesFileAndByte) {
  const Dataset ds = counted(4, calls_).cache(path("c"));
  texts_of(ds);
  const std::string whole = read("c");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write("c", changed);
    const std::string text = error_text<DataLoss>([&] {
      auto it = ds.make_iterator();
      while (it.next()) {
      }
    });
    EXPECT_NE(text.find(path("c")), std::string::npos) << i << text;
    write("c", whole.substr(0, i));
    EXPECT_THROW(
        {
          auto it = ds.make_iterator();
          while (it.next()) {
          }
        },
        DataLoss)
        << i;
  }
  write("c", whole);
  EXPECT_EQ(texts_of(ds), kFour);
  EXPECT_EQ(calls_, 4);
}

TEST_F(FileCache, KeepsEveryKindOfElement) {
  const auto make = [this] {
    return Dataset::from_tensor_slices(
               Element::named({{"text", Texts{"a", "", "c"}},
                               {"x", {arange(6).reshape({3, 2}), ones({3}, kFloat64)}}}))
        .map([](const Element& e) { return e; })
        .cache(path("c"));
  };
  const Texts all = texts_of(make());
  EXPECT_EQ(texts_of(make()), all);
  const auto e = make().make_iterator().next();
  ASSERT_TRUE(e);
  EXPECT_EQ(e->spec().to_string(), "(text string[], x (int64[2], float64[]))");
  const auto windows = [this] {
    return Dataset::range(5).window(2).cache(path("w")).flat_map(
        [](const Dataset& w) { return w; });
  };
  EXPECT_EQ(texts_of(windows()), texts_of(Dataset::range(5)));
  EXPECT_EQ(texts_of(windows()), texts_of(Dataset::range(5)));
}

TEST_F(FileCache, AFullDiskLosesNoElement) {
  const Dataset ds = Dataset::range(3)
                         .map([](int64_t x) { return full({300'000}, static_cast<double>(x)); })
                         .cache(path("c"));
  auto it = ds.make_iterator();
  testing::expect_error(ErrorCode::kResourceExhausted, {}, [&] {
    const testing::FileSizeLimit full_disk(100'000);
    it.next();
  });
  auto resumed = ds.make_iterator(it.save());
  for (float expected = 0; expected < 3; ++expected) {
    for (Iterator* one : {&it, &resumed}) {
      const auto e = one->next();
      ASSERT_TRUE(e);
      EXPECT_EQ(e->tensor()[0].item<float>(), expected);
    }
  }
  EXPECT_FALSE(it.next());
  EXPECT_FALSE(std::filesystem::exists(path("c")));
}

TEST_F(FileCache, FoldersThatCannotBeAreErrors) {
  write("file", "no folder");
  EXPECT_THROW(texts_of(Dataset::range(3).cache(path("file/c"))), Error);
  EXPECT_THROW(texts_of(Dataset::range(3).snapshot(path("file/s"))), Error);
  EXPECT_THROW(Dataset::range(3).save(path("file/s")), Error);
  EXPECT_THROW(Dataset::load(path("file/s")), Error);
}

TEST_F(FileCache, ResumesEverywhere) {
  int file = 0;
  expect_resumes([&] { return Dataset::range(6).shuffle(6, {.seed = 1}).cache(path("full")); });
  expect_resumes([&] { return Dataset::range(5).cache(path("some")).batch(2).repeat(3); });
  // While the file is filled: everybody has another one.
  expect_resumes([&] { return Dataset::range(5).cache(path(str_cat(file++))).batch(2); });
}

TEST_F(FileCache, PositionsBelongToOneWriting) {
  const auto make = [this] { return Dataset::range(5).cache(path("c")); };
  texts_of(make());
  auto it = make().make_iterator();
  it.next();
  const std::string state = it.save();
  std::filesystem::remove(path("c"));
  EXPECT_THROW(make().make_iterator(state), FailedPrecondition);
  texts_of(make());
  EXPECT_THROW(make().make_iterator(state), FailedPrecondition);
}

}  // namespace
}  // namespace cohort
