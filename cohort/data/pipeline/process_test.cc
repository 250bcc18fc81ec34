// SPDX-License-Identifier: Apache-2.0
//
// Iterators after fork, and where the system refuses threads.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/child.h"
#include "cohort/testing/expect_error.h"

namespace cohort::data {
namespace {

using testing::error_text;
using testing::kCanLimitChildren;
using testing::status_of_child;

struct Pipeline {
  const char* name;
  std::function<Dataset()> make;
};

const std::vector<Pipeline>& pipelines() {
  static const auto& all = *new std::vector<Pipeline>{
      {"no thread", [] { return Dataset::range(1000); }},
      {"prefetch", [] { return Dataset::range(1000).prefetch(4); }},
      {"map",
       [] {
         return Dataset::range(1000).map([](const Tensor& x) { return x + 0; },
                                         {.parallel_calls = 2});
       }},
      {"interleave", [] {
         return Dataset::range(10).interleave([](const Tensor&) { return Dataset::range(100); },
                                              {.cycle_length = 2, .parallel_calls = 2});
       }}};
  return all;
}

TEST(Fork, AnIteratorOfTheParentSaysSoInTheChild) {
  for (const Pipeline& pipeline : pipelines()) {
    auto it = std::make_optional<Iterator>(pipeline.make().make_iterator());
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(it->next().has_value());
    EXPECT_EQ(
        status_of_child([&] {
          const std::string text = error_text<FailedPrecondition>([&] { it->next(); });
          it.reset();  // Does not wait for threads of the parent.
          return text.find("an iterator of this process, got one that was made before fork") !=
                         std::string::npos
                     ? 0
                     : 1;
        }),
        0)
        << pipeline.name;
    EXPECT_TRUE(it->next().has_value()) << "the parent goes on: " << pipeline.name;
  }
}

TEST(Fork, TheChildMakesItsOwnIterator) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs threads after fork";
  for (const Pipeline& pipeline : pipelines()) {
    const Dataset dataset = pipeline.make();
    Iterator it = dataset.make_iterator();
    ASSERT_TRUE(it.next().has_value());
    EXPECT_EQ(status_of_child([&] {
                int elements = 0;
                for ([[maybe_unused]] const Element& element : dataset) ++elements;
                return elements == 1000 ? 0 : 1;
              }),
              0)
        << pipeline.name;
  }
}

TEST(Fork, ACacheOfTheParentSaysSoInTheChild) {
  const Dataset dataset = Dataset::range(10).cache();
  for ([[maybe_unused]] const Element& element : dataset) {
  }
  EXPECT_EQ(status_of_child([&] {
              const std::string text =
                  error_text<FailedPrecondition>([&] { dataset.make_iterator().next(); });
              return text.find("made before fork") != std::string::npos ? 0 : 1;
            }),
            0);
}

class ForkWithFiles : public testing::FilesTest {};

// What the parent is writing is not the child's to remove.
TEST_F(ForkWithFiles, TheFileOfACacheStaysTheParents) {
  const std::string file = path("cache");
  const Dataset dataset = Dataset::range(10).cache(file);
  auto it = std::make_optional<Iterator>(dataset.make_iterator());
  ASSERT_TRUE(it->next().has_value());
  EXPECT_EQ(status_of_child([&] {
              it.reset();
              return 0;
            }),
            0);
  while (it->next()) {
  }
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST(RefusedThreads, AreAnErrorOfTheReader) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  for (const Pipeline& pipeline : pipelines()) {
    if (pipeline.name == std::string("no thread")) continue;
    EXPECT_EQ(status_of_child([&] {
                testing::limit_address_space(std::size_t{1} << 20);
                // The C library has kept stacks of threads that ended.
                std::vector<Iterator> iterators;
                try {
                  for (int i = 0; i < 100; ++i) {
                    iterators.push_back(pipeline.make().make_iterator());
                    iterators.back().next();
                  }
                } catch (const Error& e) {
                  return e.code() == ErrorCode::kResourceExhausted ? 0 : 1;
                }
                return 2;
              }),
              0)
        << pipeline.name;
  }
}

}  // namespace
}  // namespace cohort::data
