// SPDX-License-Identifier: Apache-2.0
//
// Batches on their way into a GPU's memory, beside what it computes.
#include "cohort/data/dataset.h"
#include "cohort/strategy/strategies.h"
#include "tests/gpu/gpu_fixture.h"

namespace cohort::gpu_tests {
namespace {

class GpuInput : public GpuTest {};

// The memory of a step's batch is given anew while later steps are copied: none may be read late.
TEST_F(GpuInput, BatchesArriveWholeWhileTheGpuIsBusy) {
  constexpr int64_t kSteps = 40;
  constexpr int64_t kRows = 512;
  const Tensor rows = arange(kSteps * kRows, kFloat32).floor_divide(kRows).reshape({-1, 1});
  const auto batches =
      Dataset::from_tensor_slices({rows.expand({-1, 256}).contiguous(), arange(kSteps * kRows)})
          .batch(kRows);
  const MirroredStrategy two({"GPU:0", "GPU:1"});
  const auto scope = two.scope();
  const Variable wrong(zeros({}, kFloat64), {.synchronization = Synchronization::kOnRead,
                                             .aggregation = Aggregation::kSum});
  int64_t step = 0;
  for (const auto& [x, id] : two.distribute_dataset(batches)) {
    two.run(
        [&](const Tensor& mine) {
          Tensor busy = mine.transpose(0, 1).matmul(mine);
          for (int i = 0; i < 20; ++i) busy = busy.matmul(busy).tanh();
          wrong.assign_add(mine.ne(static_cast<double>(step)).sum().to(kFloat64) + busy.sum() * 0);
        },
        x);
    ++step;
  }
  EXPECT_EQ(step, kSteps);
  EXPECT_EQ(wrong.value().item<double>(), 0);
}

TEST_F(GpuInput, PrefetchToDeviceGivesTensorsThere) {
  const auto data = Dataset::from_tensor_slices({arange(10, kFloat32), arange(10)})
                        .batch(4)
                        .prefetch_to_device("GPU:0", 2);
  double sum = 0;
  for (const auto& [x, y] : data) {
    EXPECT_TRUE(x.is_cuda());
    sum += (x + y).sum().item<double>();
  }
  EXPECT_EQ(sum, 90);
}

}  // namespace
}  // namespace cohort::gpu_tests
