// SPDX-License-Identifier: Apache-2.0
//
// For tests: losses, metrics and training on a device beside the CPU. What differs comes as text,
// so that one run shows all of it.
#pragma once

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/keras.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"

namespace cohort::keras::testing {

/// Collects what is not as expected, a line each.
class Differences {
 public:
  explicit Differences(double tolerance) : tolerance_(tolerance) {}
  /// Relative to the largest number of `want`, or to 0.1.
  void compare(const std::string& what, const Tensor& got, const Tensor& want) {
    if (!got.defined() || !want.defined()) {
      if (got.defined() != want.defined()) out_ << "  " << what << ": one is undefined\n";
      return;
    }
    const Tensor a = got.detach().to(at::kCPU, kFloat64);
    const Tensor b = want.detach().to(at::kCPU, kFloat64);
    if (a.sizes() != b.sizes()) {
      out_ << "  " << what << ": " << a.sizes() << " for " << b.sizes() << '\n';
      return;
    }
    if (b.numel() == 0) return;
    const double largest = std::max(b.abs().max().item<double>(), 0.1);
    const double off = (a - b).abs().max().item<double>() / largest;
    if (!(off <= tolerance_)) {
      out_ << "  " << what << ": off by " << off << ", got "
           << cohort::internal::runtime::values_text(a.flatten().slice(0, 0, 6)) << " for "
           << cohort::internal::runtime::values_text(b.flatten().slice(0, 0, 6)) << '\n';
    }
  }
  /// What body throws is a difference.
  void guarded(const std::string& what, const std::function<void()>& body) {
    try {
      body();
    } catch (const std::exception& e) {
      const std::string text = e.what();
      out_ << "  " << what << " throws: " << text.substr(0, text.find('\n')) << '\n';
    }
  }
  std::string text() const { return out_.str(); }

 private:
  const double tolerance_;
  std::ostringstream out_;
};

struct LossCase {
  std::string name;
  Loss loss;
  Tensor y_true, y_pred, weight = {};
};

inline std::vector<LossCase> loss_cases() {
  at::manual_seed(1);
  const Tensor scores = at::randn({8, 5}), shares = at::rand({8, 5}) * 0.9 + 0.05;
  const Tensor numbers = at::rand({8}).mul(5).to(kInt64);
  const Tensor targets = at::rand({8, 5}), weights = at::rand({8});
  const Tensor bits = at::rand({8, 5}).gt(0.5).to(kFloat32), signs = bits * 2 - 1;
  std::vector<LossCase> all;
  for (const char* name : {"mse", "mae", "huber", "mape", "msle", "log_cosh", "poisson", "kld",
                           "cosine_similarity", "categorical_crossentropy", "dice", "tversky",
                           "categorical_hinge", "categorical_focal_crossentropy"}) {
    all.push_back({name, Loss(name), targets, shares});
    all.push_back({str_cat(name, ", weighted"), Loss(name), targets, shares, weights});
  }
  for (const char* name : {"hinge", "squared_hinge"}) {
    all.push_back({name, Loss(name), signs, scores});
  }
  for (const char* name : {"bce", "binary_focal_crossentropy"}) {
    all.push_back({name, Loss(name), bits, shares});
  }
  const auto sparse = [&](const char* what, SparseCategoricalCrossentropyOptions o,
                          const Tensor& labels, const Tensor& y_pred, const Tensor& w = {}) {
    all.push_back({str_cat("sparse, ", what), SparseCategoricalCrossentropy(std::move(o)), labels,
                   y_pred, w});
  };
  sparse("logits", {.from_logits = true}, numbers, scores);
  sparse("logits, uint8", {.from_logits = true}, numbers.to(kUint8), scores);
  sparse("logits, float column", {.from_logits = true}, numbers.to(kFloat32).unsqueeze(1), scores);
  sparse("logits, weighted", {.from_logits = true}, numbers, scores, weights);
  sparse("logits, sum", {.from_logits = true, .reduction = Reduction::kSum}, numbers, scores);
  sparse("logits, none", {.from_logits = true, .reduction = Reduction::kNone}, numbers, scores);
  sparse("logits, ignored", {.from_logits = true, .ignore_class = 2}, numbers, scores);
  sparse("logits, places", {.from_logits = true}, numbers.view({2, 4}), scores.view({2, 4, 5}));
  sparse("shares", {}, numbers, shares);
  all.push_back({"bce, logits", BinaryCrossentropy({.from_logits = true}), bits, scores});
  all.push_back({"bce, logits, weighted",
                 BinaryCrossentropy({.from_logits = true, .label_smoothing = 0.1}), bits, scores,
                 weights});
  all.push_back({"categorical, logits", CategoricalCrossentropy({.from_logits = true}),
                 bits / bits.sum(1, true).clamp_min(1), scores});
  all.push_back({"generalized", Loss("categorical_generalized_cross_entropy"), numbers, shares});
  all.push_back({"circle", Loss("circle"), numbers, scores / scores.norm(2, 1, true)});
  all.push_back({"ctc", Loss("ctc"), at::rand({2, 3}).mul(4).to(kInt64) + 1, at::randn({2, 9, 6})});
  return all;
}

/// Values and gradients of losses in a replica on `device`.
inline std::string loss_differences(const Strategy& strategy, const Device& device,
                                    double tolerance) {
  Differences out(tolerance);
  const auto computed = [](const LossCase& one, const std::function<Tensor(const Tensor&)>& place) {
    GradientTape tape;
    Tensor y_pred = place(one.y_pred);
    tape.watch(y_pred);
    const Tensor weight = one.weight.defined() ? place(one.weight) : Tensor();
    const Tensor loss = one.loss(place(one.y_true), y_pred, weight);
    return std::pair(loss.detach(), tape.gradient(loss, y_pred));
  };
  for (const LossCase& one : loss_cases()) {
    out.guarded(one.name, [&] {
      const auto want = computed(one, [](const Tensor& x) { return x; });
      strategy.run([&] {
        const auto got = computed(
            one, [&](const Tensor& x) { return cohort::internal::runtime::tensor_on(device, x); });
        out.compare(one.name, got.first, want.first);
        out.compare("gradient of " + one.name, got.second, want.second);
      });
    });
  }
  return out.text();
}

struct MetricCase {
  std::string name;
  std::function<Metric()> make;
  Tensor y_true, y_pred, weight = {};
};

inline std::vector<MetricCase> metric_cases() {
  at::manual_seed(2);
  const Tensor shares = at::rand({16, 4}), targets = at::rand({16, 4}), weights = at::rand({16});
  const Tensor numbers = at::rand({16}).mul(4).to(kInt64);
  const Tensor bits = at::rand({16, 4}).gt(0.5).to(kFloat32);
  std::vector<MetricCase> all;
  const auto add = [&](const char* name, const Tensor& y, const Tensor& p) {
    const auto make = [=] { return Metric(name).resolve(shape_of(y), shape_of(p)); };
    all.push_back({name, make, y, p});
    all.push_back({str_cat(name, ", weighted"), make, y, p, weights});
  };
  for (const char* name : {"mse", "mae", "mape", "msle", "cosine_similarity", "log_cosh", "poisson",
                           "kld", "root_mean_squared_error", "r2_score", "pearson_correlation",
                           "concordance_correlation", "categorical_crossentropy"}) {
    add(name, targets, shares);
  }
  for (const char* name :
       {"binary_accuracy", "auc", "precision", "recall", "f1_score", "fbeta_score", "bce",
        "true_positives", "false_positives", "true_negatives", "false_negatives", "binary_io_u",
        "hinge", "squared_hinge", "categorical_hinge", "categorical_accuracy"}) {
    add(name, bits, shares);
  }
  for (const char* name : {"sparse_categorical_accuracy", "sparse_categorical_crossentropy",
                           "sparse_top_k_categorical_accuracy"}) {
    if (std::string(name).find("top_k") == std::string::npos) add(name, numbers, shares);
  }
  const auto also = [&](const char* name, std::function<Metric()> make, const Tensor& y,
                        const Tensor& p) {
    all.push_back({name, make, y, p});
    all.push_back({str_cat(name, ", weighted"), std::move(make), y, p, weights});
  };
  also(
      "top 2", [] { return SparseTopKCategoricalAccuracy(2); }, numbers, shares);
  also(
      "precision at thresholds",
      [] {
        return Precision({.thresholds = std::vector<double>{0.7, 0.1, 0.4}});
      },
      bits, shares);
  also(
      "recall of top 2", [] { return Recall({.top_k = 2}); }, bits, shares);
  also(
      "auc of labels", [] { return AUC({.num_thresholds = 20, .multi_label = true}); }, bits,
      shares);
  also(
      "precision at recall", [] { return PrecisionAtRecall(0.5); }, bits, shares);
  also(
      "mean io_u", [] { return MeanIoU(4); }, numbers, numbers.flip(0));
  return all;
}

/// Results of metrics that a replica on `device` has updated twice.
inline std::string metric_differences(const Strategy& strategy, const Device& device,
                                      double tolerance) {
  Differences out(tolerance);
  for (const MetricCase& one : metric_cases()) {
    out.guarded(one.name, [&] {
      const auto result = [&](const Strategy& under,
                              const std::function<Tensor(const Tensor&)>& place) {
        const Scope scope = under.scope();
        const Metric metric = one.make();
        for (int step = 0; step < 2; ++step) {
          under.run([&] {
            const Tensor p = place(step == 0 ? one.y_pred : one.y_pred.flip(0));
            metric.update_state(place(one.y_true), p,
                                one.weight.defined() ? place(one.weight) : Tensor());
          });
        }
        return metric.result();
      };
      const Tensor want = result(OneDeviceStrategy("CPU:0"), [](const Tensor& x) { return x; });
      out.compare(
          one.name,
          result(strategy,
                 [&](const Tensor& x) { return cohort::internal::runtime::tensor_on(device, x); }),
          want);
    });
  }
  return out.text();
}

struct ModelCase {
  std::string name;
  std::function<std::vector<Layer>()> layers;
  Tensor x, y;
  Loss loss = "mse";
  std::vector<Metric> metrics = {};
  Optimizer optimizer = {};
};

inline std::vector<Layer> convolutions() {
  return {Conv2D(8, 3, {.padding = "same", .activation = "relu"}),
          BatchNormalization(),
          MaxPooling2D(),
          Conv2D(8, 3, {.strides = 2, .padding = "same", .use_bias = false}),
          BatchNormalization(),
          ReLU(),
          GlobalAveragePooling2D(),
          Dense(4)};
}

inline std::vector<ModelCase> model_cases() {
  at::manual_seed(3);
  const Tensor rows = at::randn({48, 12}), images = at::rand({48, 8, 8, 3});
  const Tensor words = at::rand({48, 6}).mul(20).to(kInt64);
  const Tensor classes = at::rand({48}).mul(4).to(kInt64);
  const auto logits = [] { return SparseCategoricalCrossentropy({.from_logits = true}); };
  return {
      {"dense",
       [] {
         return std::vector<Layer>{Dense(16, {.activation = "relu"}), Dense(4)};
       },
       rows,
       classes,
       logits(),
       {"accuracy"},
       Adam({.learning_rate = 0.01})},
      {"dense, clipped",
       [] {
         return std::vector<Layer>{Dense(16, {.activation = "tanh"}), Dense(1)};
       },
       rows,
       rows.narrow(1, 0, 1),
       "mse",
       {"mae"},
       SGD({.learning_rate = 0.05, .momentum = 0.9, .global_clipnorm = 0.5})},
      {"convolutions",
       &convolutions,
       images,
       classes,
       logits(),
       {"accuracy"},
       SGD({.learning_rate = 0.05})},
      {"words",
       [] {
         return std::vector<Layer>{Embedding(20, 8), LSTM(8), Dense(4, {.activation = "softmax"})};
       },
       words,
       classes,
       "sparse_categorical_crossentropy",
       {"accuracy"},
       Adam({.learning_rate = 0.01})},
      {"gru, normalised",
       [] {
         return std::vector<Layer>{Embedding(20, 8), GRU(8, {.return_sequences = true}),
                                   LayerNormalization(), GlobalAveragePooling1D(), Dense(4)};
       },
       words,
       classes,
       logits(),
       {},
       RMSprop({.learning_rate = 0.01})},
  };
}

/// Everything that a training of `one` under `strategy` says.
struct Trained {
  std::vector<std::pair<std::string, Tensor>> all;
};

inline Trained train(const ModelCase& one, const Strategy& strategy) {
  set_seed(7);
  Trained out;
  const Scope scope = strategy.scope();
  Sequential model(one.layers());
  std::vector<Metric> metrics;
  for (const Metric& metric : one.metrics) metrics.push_back(Metric(metric.name()));
  model.compile({.optimizer = Optimizer::deserialize(one.optimizer.serialize()),
                 .loss = one.loss,
                 .metrics = metrics});
  const History history = model.fit(
      one.x, one.y, {.epochs = 3, .batch_size = 16, .verbose = Verbose::kSilent, .shuffle = false});
  for (const auto& [name, values] : history.history) {
    out.all.emplace_back("history of " + name,
                         from_vector(values, {static_cast<int64_t>(values.size())}));
  }
  const Logs logs = model.evaluate(one.x, one.y, {.verbose = Verbose::kSilent});
  for (const std::string& name : logs.names()) {
    out.all.emplace_back("evaluated " + name, scalar(logs.number(name), kFloat64));
  }
  out.all.emplace_back("predictions", model.predict(one.x, {.verbose = Verbose::kSilent}));
  for (const Variable& v : model.variables()) {
    out.all.emplace_back("weight " + v.name(), v.value().to(at::kCPU).clone());
  }
  return out;
}

inline std::string training_differences(const Strategy& strategy, double tolerance,
                                        const Strategy& beside = OneDeviceStrategy("CPU:0")) {
  Differences out(tolerance);
  for (const ModelCase& one : model_cases()) {
    std::fprintf(stderr, "training %s\n", one.name.c_str());
    out.guarded(one.name, [&] {
      const Trained want = train(one, beside);
      const Trained got = train(one, strategy);
      for (std::size_t i = 0; i < std::min(want.all.size(), got.all.size()); ++i) {
        out.compare(one.name + ": " + want.all[i].first, got.all[i].second, want.all[i].second);
      }
    });
  }
  return out.text();
}

}  // namespace cohort::keras::testing
