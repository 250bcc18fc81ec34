// SPDX-License-Identifier: Apache-2.0
//
// Reductions of one's own: gradients of all replicas are added in float64 and rounded once, and
// what went over the (here imaginary) wire is counted. Trains a line through noisy points.
//
//   custom_cross_device_ops [--replicas N] [--steps N]
#include <cstdio>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

// A strategy that is given these reduces everything through them: gradients, all_reduce, reduce.
class Float64Reduce : public CrossDeviceOps {
 public:
  int64_t bytes() const { return bytes_; }
  int calls() const { return calls_; }

 protected:
  Mirrored<Gradient> do_reduce(ReduceOp op, const PerReplica<Gradient>& value,
                               const Destinations& to,
                               const CommunicationOptions& options) override {
    ++calls_;
    std::vector<Gradient> wide;
    for (const Gradient& one : value) {
      const Tensor dense = one.as_tensor();  // rows of a table become the whole table
      bytes_ += dense.numel() * static_cast<int64_t>(dense.element_size());
      wide.push_back(dense.to(kFloat64));
    }
    const DType dtype = value[0].as_tensor().scalar_type();
    const auto sum = inner_.reduce(op, PerReplica<Gradient>(std::move(wide)), to, options);
    std::vector<Gradient> rounded;
    for (const Gradient& copy : sum) rounded.push_back(copy.dense().to(dtype));
    return Mirrored<Gradient>(std::move(rounded));
  }

 private:
  ReductionToOneDevice inner_;
  int64_t bytes_ = 0;
  int calls_ = 0;
};

struct Arguments {
  int replicas = 2;
  int steps = 200;
};

void declare(examples::Flags& flags, Arguments& arguments) {
  flags.add("--replicas", arguments.replicas, "Replicas", {.at_least = 1});
  flags.add("--steps", arguments.steps, "Steps", {.at_least = 1});
}

int run(const Arguments& arguments) {
  constexpr int64_t kGlobalBatch = 64;
  std::vector<Device> devices;
  for (int i = 0; i < arguments.replicas; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  const auto ops = std::make_shared<Float64Reduce>();
  MirroredStrategy strategy({.devices = devices, .cross_device_ops = ops});

  set_seed(1);
  const Tensor x = random_uniform({1024, 1});
  const Tensor y = x * 3 - 1 + random_normal({1024, 1}) * 0.01;
  const auto dist = strategy.distribute_dataset(
      Dataset::from_tensor_slices({x, y}).shuffle(1024).repeat().batch(kGlobalBatch));

  const auto scope = strategy.scope();
  const Variable slope(0.0, {.name = "slope", .shape = Shape{1, 1}});
  const Variable offset(0.0, {.name = "offset", .shape = Shape{1}});
  const std::vector<Variable> variables = {slope, offset};
  keras::SGD optimizer({.learning_rate = 0.1, .momentum = 0.9});

  const auto step = [&](const Tensor& inputs, const Tensor& targets) {
    GradientTape tape;
    const Tensor error = inputs.matmul(slope) + offset - targets;
    const Tensor loss = compute_average_loss(error * error, {.global_batch_size = kGlobalBatch});
    optimizer.apply_gradients(tape.gradient(loss, variables));
    return loss;
  };

  double loss = 0;
  auto batches = dist.make_iterator();
  for (int i = 0; i < arguments.steps; ++i) {
    loss = strategy.reduce(ReduceOp::kSum, strategy.run(step, *batches.next())).item<double>();
  }
  std::printf("y = %.3f x + %.3f, loss %.5f\n", slope.value().item<double>(),
              offset.value().item<double>(), loss);
  std::printf("%d reductions of %lld bytes in all\n", ops->calls(),
              static_cast<long long>(ops->bytes()));
  return loss < 0.001 || arguments.steps < 200 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Arguments>(argc, argv, "Trains with reductions of its own.", declare,
                                       run);
}
