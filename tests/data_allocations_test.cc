// SPDX-License-Identifier: Apache-2.0
//
// Reading batches allocates for a batch, not for its elements: rows in memory through shuffle,
// batch, map and prefetch, and records and tables out of files.
#include <gtest/gtest.h>

#include "cohort/data/dataset.h"
#include "cohort/data/formats/example/example.h"
#include "cohort/data/formats/example/example_parser.h"
#include "cohort/data/formats/tf_record/tf_record.h"
#include "cohort/data/test_files.h"
#include "cohort/runtime/memory.h"
#include "cohort/testing/allocation_hook.h"

namespace cohort::proof {
namespace {

constexpr int64_t kRows = 16384;

int64_t allocations() {
  return testing::g_allocations.load() + static_cast<int64_t>(memory_stats().allocations);
}

/// Of one batch in the middle of a pass, on average over some.
double per_batch(Iterator& it, int warm_up, int batches) {
  for (int i = 0; i < warm_up; ++i) it.next()->materialize();
  const int64_t before = allocations();
  for (int i = 0; i < batches; ++i) it.next()->materialize();
  return static_cast<double>(allocations() - before) / batches;
}

/// What a batch of 512 allocates more often than one of 64.
double for_more_elements(const std::function<Dataset(int64_t batch)>& pipeline) {
  set_memory_policy(MemoryPolicy::kCaching);
  double counts[2] = {};
  const int64_t sizes[2] = {64, 512};
  for (int i = 0; i < 2; ++i) {
    Iterator it = pipeline(sizes[i]).repeat().make_iterator();
    counts[i] = per_batch(it, 4, 16);
    EXPECT_GT(counts[i], 0);
  }
  std::printf("allocations: %.1f for a batch of %d, %.1f for one of %d\n", counts[0],
              static_cast<int>(sizes[0]), counts[1], static_cast<int>(sizes[1]));
  return counts[1] - counts[0];
}

Dataset rows() {
  return Dataset::from_tensor_slices({zeros({kRows, 16}, kUint8), zeros({kRows}, kInt64)});
}

class Allocations : public testing::FilesTest {
 protected:
  void SetUp() override {
#if COHORT_UNDER_SANITIZER
    GTEST_SKIP() << "a sanitizer allocates itself";
#endif
  }
};

TEST_F(Allocations, RowsInMemoryNeedNoneForAnElement) {
  const auto scale = [](const Tensor& x, const Tensor& y) {
    return std::tuple(x.to(kFloat32).div_(255), y);
  };
  EXPECT_EQ(for_more_elements([](int64_t n) { return rows().shuffle(kRows).batch(n); }), 0);
  EXPECT_EQ(for_more_elements([&](int64_t n) { return rows().shuffle(kRows).batch(n).map(scale); }),
            0);
}

// The thread that reads ahead is where it is: less than one for every hundredth element.
TEST_F(Allocations, NorDoesAPrefetch) {
  const auto pipeline = [](int64_t n) { return rows().shuffle(kRows).batch(n).prefetch(2); };
  EXPECT_LT(for_more_elements(pipeline), 4.5);
}

class FileAllocations : public Allocations {
 protected:
  std::string records() const {
    TfRecordWriter writer(path("records"));
    for (int64_t i = 0; i < kRows; ++i) {
      const Example example{{{"name", std::vector<std::string>{std::string(40, 'x')}},
                             {"x", std::vector<float>{1, 2, 3}},
                             {"y", std::vector<int64_t>{i}}}};
      writer.write(example.serialize());
    }
    writer.close();
    return path("records");
  }
};

// Memory for strings grows a few times while a batch is collected.
TEST_F(FileAllocations, NorDoExamplesOutOfRecords) {
  const FeatureSpecs specs = {{"name", FixedLenFeature{FeatureType::kString}},
                              {"x", FixedLenFeature{FeatureType::kFloat32, {3}}},
                              {"y", FixedLenFeature{FeatureType::kInt64}}};
  const std::string file = records();
  EXPECT_LT(for_more_elements([&](int64_t n) { return Dataset::tf_records({file}).batch(n); }), 4);
  const auto parsed = [&](int64_t n) {
    return Dataset::tf_records({file}).batch(n).apply(parse_example_dataset(specs));
  };
  EXPECT_LT(for_more_elements(parsed), 10);
}

TEST_F(FileAllocations, NorDoTables) {
  std::string text;
  for (int64_t i = 0; i < kRows; ++i) text += "1.5,2,a word that is longer than most\n";
  const std::string file = write("table.csv", text);
  const CsvOptions options{.columns = {{CsvType::kFloat32}, {CsvType::kInt64}, {CsvType::kString}}};
  EXPECT_LT(for_more_elements([&](int64_t n) { return Dataset::csv({file}, options).batch(n); }),
            4);
}

}  // namespace
}  // namespace cohort::proof
