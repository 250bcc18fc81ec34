// SPDX-License-Identifier: Apache-2.0
//
// The only unit that includes torch/torch.h: what a C++ programmer has without Cohort.
#include <torch/torch.h>

#include <barrier>
#include <chrono>
#include <thread>

#include "contender.h"
#include "machine.h"

namespace cohort::bench {
namespace {

torch::nn::Sequential build(const Workload& workload) {
  namespace nn = torch::nn;
  if (workload.benchmark_case().model == "cnn") {
    return nn::Sequential(nn::Conv2d(1, 32, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(32, 64, 3),
                          nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(1600, 128),
                          nn::ReLU(), nn::Linear(128, 10));
  }
  nn::Sequential dense;
  const std::size_t count = workload.parameters().size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& shape = workload.parameters()[2 * i].shape;
    dense->push_back(nn::Linear(shape[0], shape[1]));
    if (i + 1 < count) dense->push_back(nn::ReLU());
  }
  return dense;
}

// The workload's weights (Keras's layout) as LibTorch orders them.
torch::Tensor torch_layout(const Workload& workload, std::size_t index) {
  const auto& shape = workload.parameters()[index].shape;
  auto weight = torch::from_blob(const_cast<float*>(workload.weights(index)), shape);
  if (shape.size() == 4) return weight.permute({3, 2, 0, 1});
  if (shape.size() == 1) return weight;
  if (shape[0] == 1600) {  // rows after Flatten: (5, 5, 64) there, (64, 5, 5) here
    weight = weight.view({5, 5, 64, -1}).permute({2, 0, 1, 3}).reshape({1600, -1});
  }
  return weight.t();
}

// A model, its optimizer and its share of the batches.
struct Replica {
  Replica(const Workload& workload, int index) : model(build(workload)) {
    const Case& c = workload.benchmark_case();
    const bool images = c.model == "cnn";
    for (std::int64_t i = 0; i < Workload::kBatches; ++i) {
      auto* x = const_cast<float*>(workload.features(i, index));
      auto* y = const_cast<std::int64_t*>(workload.labels(i, index));
      auto features = torch::from_blob(x, {c.batch, workload.features_per_row()}).clone();
      batches.emplace_back(images ? features.view({c.batch, 1, 28, 28}) : features,
                           torch::from_blob(y, {c.batch}, torch::kLong).clone());
    }
    reset(workload);
  }

  void reset(const Workload& workload) {
    torch::NoGradGuard no_grad;
    auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].copy_(torch_layout(workload, i));
    }
    auto options = torch::optim::AdamOptions(1e-3).betas({0.9, 0.999}).eps(1e-12);
    optimizer = std::make_unique<torch::optim::Adam>(parameters, options);
  }

  void backward(std::int64_t index) {
    const auto& [x, y] = batches[index % batches.size()];
    optimizer->zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
    loss.backward();
    last_loss = loss.detach();
  }

  torch::nn::Sequential model;
  std::unique_ptr<torch::optim::Adam> optimizer;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;
  torch::Tensor last_loss;
};

class LibtorchContender : public Contender {
 public:
  void init(const Workload& workload) override {
    workload_ = &workload;
    replicas_.clear();
    for (int r = 0; r < workload.benchmark_case().replicas; ++r) {
      replicas_.push_back(std::make_unique<Replica>(workload, r));
    }
    next_ = 0;
    run(3);
  }

  void reset() override {
    for (auto& replica : replicas_) replica->reset(*workload_);
    next_ = 0;
  }

  StepTime run(std::int64_t steps) override {
    StepTime time;
    if (replicas_.size() == 1) {
      set_up_thread(0);
      time.nanoseconds = train(0, steps, nullptr);
    } else {
      time.nanoseconds = run_threads(steps);
    }
    next_ += steps;
    for (auto& replica : replicas_) {
      time.loss += replica->last_loss.item<double>() / replicas_.size();
    }
    return time;
  }

  double divergence() override {
    double worst = 0;
    const auto first = replicas_[0]->model->parameters();
    for (auto& replica : replicas_) {
      const auto parameters = replica->model->parameters();
      for (std::size_t i = 0; i < first.size(); ++i) {
        worst = std::max(worst, (first[i] - parameters[i]).abs().max().item<double>());
      }
    }
    return worst;
  }

 private:
  using Barrier = std::barrier<>;

  static void set_up_thread(std::size_t replica) {
    if (!default_threads()) {
      const auto cores = contender_cores();
      pin_to(cores[replica % cores.size()]);
      at::set_num_threads(1);
    }
    at::globalContext().setFlushDenormal(true);
  }

  std::int64_t run_threads(std::int64_t steps) {
    Barrier barrier(replicas_.size());
    std::int64_t nanoseconds = 0;
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      threads.emplace_back([&, r] {
        set_up_thread(r);
        barrier.arrive_and_wait();
        const std::int64_t mine = train(r, steps, &barrier);
        if (r == 0) nanoseconds = mine;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return nanoseconds;
  }

  std::int64_t train(std::size_t r, std::int64_t steps, Barrier* barrier) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < steps; ++i) {
      replicas_[r]->backward(next_ + i);
      if (barrier) average_gradients(r, *barrier);
      replicas_[r]->optimizer->step();
    }
    if (barrier) barrier->arrive_and_wait();
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }

  // Each thread averages every R-th tensor over the replicas and hands the mean out.
  void average_gradients(std::size_t r, Barrier& barrier) {
    torch::NoGradGuard no_grad;
    barrier.arrive_and_wait();
    const std::size_t n = replicas_[0]->model->parameters().size();
    for (std::size_t i = r; i < n; i += replicas_.size()) {
      auto mean = replicas_[0]->model->parameters()[i].grad();
      for (std::size_t k = 1; k < replicas_.size(); ++k) {
        mean.add_(replicas_[k]->model->parameters()[i].grad());
      }
      mean.div_(static_cast<double>(replicas_.size()));
      for (std::size_t k = 1; k < replicas_.size(); ++k) {
        replicas_[k]->model->parameters()[i].mutable_grad().copy_(mean);
      }
    }
    barrier.arrive_and_wait();
  }

  const Workload* workload_ = nullptr;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_libtorch_contender() {
  return std::make_unique<LibtorchContender>();
}

std::string libtorch_version() { return TORCH_VERSION; }

}  // namespace cohort::bench
