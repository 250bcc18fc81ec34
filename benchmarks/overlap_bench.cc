// SPDX-License-Identifier: Apache-2.0
//
// Measures how much of a step's exchange two workers hide behind its arithmetic, over a link that
// is slow: two network namespaces with a veth between them, tbf on both ends. Needs root, ip and
// tc.
//
//   overlap_bench                    a model whose pass takes half as long as its bytes
//   overlap_bench --rows 1280        as long
//
// A trace follows: of one step, what left the card in each bin of time, and what the step was at.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "cli_main.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/check.h"
#include "cohort/base/strings.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/runtime/tensor.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/variables/variable.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct OverlapOptions {
  int layers = 8;
  int width = 512;
  int rows = 640;
  int mbit = 400;
  int bucket_kb = 1024;
  int steps = 10;
  int rounds = 2;
  int worker = -1;
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// What others that use the machine have taken least from.
double least(std::vector<double> values) { return *std::min_element(values.begin(), values.end()); }

/// Looks every millisecond at what has left the card, and at what the step is at.
class Trace {
 public:
  enum Phase { kForward, kBackward, kBehind, kOver };

  void begin() {
    begin_ = Clock::now();
    phase_ = kForward;
    watcher_ = std::jthread([this] {
      while (phase_ != kOver) {
        seen_.push_back({ms_since(begin_), sent_bytes(), phase_});
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void enter(Phase phase) { phase_ = phase; }
  void end() {
    phase_ = kOver;
    watcher_.join();
  }
  std::string text(int worker, double bin_ms) const {
    constexpr std::array kNames = {"forward", "backward", "behind the pass", ""};
    std::string out;
    std::array<char, 160> line{};
    for (std::size_t from = 0; from + 1 < seen_.size();) {
      std::size_t to = from + 1;
      while (to + 1 < seen_.size() && seen_[to].ms < seen_[from].ms + bin_ms) ++to;
      const double mbit = static_cast<double>(seen_[to].bytes - seen_[from].bytes) * 8e-3 /
                          (seen_[to].ms - seen_[from].ms);
      std::snprintf(line.data(), line.size(), "worker %d  %4.0f ms  %-16s %4.0f Mbit/s out  ",
                    worker, seen_[from].ms, kNames[seen_[from].phase], std::max(mbit, 0.0));
      out +=
          line.data() + std::string(static_cast<std::size_t>(std::max(mbit, 0.0) / 10), '#') + '\n';
      from = to;
    }
    return out;
  }

 private:
  struct Look {
    double ms;
    std::int64_t bytes;
    Phase phase;
  };
  static std::int64_t sent_bytes() {
    std::int64_t bytes = 0;
    std::ifstream("/sys/class/net/eth0/statistics/tx_bytes") >> bytes;
    return bytes;
  }

  Clock::time_point begin_;
  std::atomic<Phase> phase_ = kOver;
  std::vector<Look> seen_;
  std::jthread watcher_;
};

enum class Way { kPass, kApply, kMinimize };

/// One worker's side.
class Worker {
 public:
  explicit Worker(const OverlapOptions& options)
      : options_(options),
        strategy_({.communication_options = {.bytes_per_pack = int64_t{1024} * options.bucket_kb},
                   .allow_insecure = true,
                   .intra_op_threads = 1}) {
    const auto scope = strategy_.scope();
    const int64_t width = options.width;
    for (int k = 0; k < options.layers; ++k) {
      layers_.push_back(Variable((arange(width * width, kFloat32) * (0.7 + k))
                                     .sin()
                                     .mul(1.4 / std::sqrt(static_cast<double>(width)))
                                     .reshape({width, width}),
                                 {.name = str_cat("layer", k)}));
    }
    optimizer_ = keras::SGD({.learning_rate = 1e-4});
  }

  void step(int64_t rows, Way way, Trace* trace = nullptr) {
    strategy_.run([&] {
      GradientTape tape;
      Tensor x = inputs(rows);
      for (const Variable& layer : layers_) {
        x = x.matmul(layer.value());
        // Once it has been called, only the first layer's gradient is missing.
        if (trace != nullptr && &layer == &layers_.front()) {
          x.register_hook([trace](const Tensor&) { trace->enter(Trace::kBehind); });
        }
        x = x.relu();
      }
      const Tensor loss = x.pow(2).mean();
      if (trace != nullptr) trace->enter(Trace::kBackward);
      if (way == Way::kMinimize) return optimizer_.minimize(loss, layers_, tape);
      const Gradients gradients = tape.gradient(loss, layers_);
      if (way == Way::kApply) optimizer_.apply_gradients(gradients);
    });
  }
  /// Steps, each begun by both workers.
  void time(int64_t rows, Way way, std::vector<double>& ms) {
    for (int i = 0; i < options_.steps + 2; ++i) {
      const auto begin = Clock::now();
      step(rows, way);
      if (i >= 2) ms.push_back(ms_since(begin));
    }
  }
  void measure() {
    const int64_t rows = options_.rows;
    const double bytes_sent = 4.0 * options_.layers * options_.width * options_.width;
    const double wire = bytes_sent * 8e-3 / options_.mbit;
    std::vector<double> pass, bytes, apply, minimize;
    for (int round = 0; round < options_.rounds; ++round) {
      time(rows, Way::kPass, pass);
      time(1, Way::kApply, bytes);
      time(rows, Way::kApply, apply);
      time(rows, Way::kMinimize, minimize);
    }
    const std::string trace = trace_of_fastest();
    if (options_.worker == 0) {
      const auto print = [&](const char* what, double (*of)(std::vector<double>)) {
        const double larger = std::max(of(pass), of(bytes));
        std::printf(
            "overlap_bench: %s rows=%d pass_ms=%.1f bytes_ms=%.1f wire_ms=%.1f apply_ms=%.1f "
            "minimize_ms=%.1f apply_of_larger=%.2f minimize_of_larger=%.2f\n",
            what, options_.rows, of(pass), of(bytes), wire, of(apply), of(minimize),
            of(apply) / larger, of(minimize) / larger);
      };
      print("median", median);
      print("least", least);
    }
    std::fputs(trace.c_str(), stdout);
  }

 private:
  // Of several steps; both workers choose the same one, for they end together.
  std::string trace_of_fastest() {
    std::vector<Trace> traces(10);
    std::vector<double> ms;
    for (Trace& trace : traces) {
      const auto begin = Clock::now();
      trace.begin();
      step(options_.rows, Way::kMinimize, &trace);
      trace.end();
      ms.push_back(ms_since(begin));
    }
    const auto fastest = std::min_element(ms.begin(), ms.end()) - ms.begin();
    return traces[static_cast<std::size_t>(fastest)].text(options_.worker, 10);
  }
  Tensor inputs(int64_t rows) const {
    return (arange(rows * options_.width, kFloat32) * 0.31).cos().reshape({rows, options_.width});
  }

  const OverlapOptions options_;
  MultiWorkerMirroredStrategy strategy_;
  std::vector<Variable> layers_;
  keras::Optimizer optimizer_;
};

void shell(const std::string& line) {
  COHORT_CHECK(std::system(line.c_str()) == 0,
               "expected to be root and to have ip and tc, got an "
               "error from: ",
               line);
}

/// Two hosts with a link of so many Mbit/s each way. A burst holds the largest packet that a card
/// would cut by itself: cutting it, and a timer for each piece, takes half of two cores.
class SlowLink {
 public:
  explicit SlowLink(int mbit) {
    try {
      make(mbit);
    } catch (...) {
      remove();
      throw;
    }
  }
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;
  ~SlowLink() { remove(); }
  /// The command as a worker on that host, which has a core and a machine's id of its own.
  static std::string on(int h, const std::string& command) {
    const std::string config =
        str_cat(R"(TF_CONFIG='{"cluster": {"worker": ["10.78.0.1:5000", "10.78.0.2:5000"]}, )",
                R"("task": {"type": "worker", "index": )", h, "}}'");
    return str_cat("ip netns exec ", host(h), " sh -c 'cat /proc/sys/kernel/random/uuid > /run/",
                   host(h), ".id && mount --bind /run/", host(h),
                   ".id /proc/sys/kernel/random/boot_id && exec \"$@\"' sh taskset -c ", h, " env ",
                   config, " COHORT_MIN_LOG_LEVEL=1 ", command);
  }

 private:
  static void make(int mbit) {
    for (const int h : {0, 1}) shell("ip netns add " + host(h));
    shell(str_cat("ip -n ", host(0), " link add eth0 type veth peer name eth0 netns ", host(1)));
    for (const int h : {0, 1}) {
      shell(str_cat(
          "ip -n ", host(h), " addr add 10.78.0.", h + 1, "/24 dev eth0 && ip -n ", host(h),
          " link set lo up && ip -n ", host(h), " link set eth0 up && ip netns exec ", host(h),
          " tc qdisc add dev eth0 root tbf rate ", mbit, "mbit burst 140kb latency 50ms"));
    }
  }
  static void remove() {
    for (const int h : {0, 1}) {
      if (std::system(("ip netns del " + host(h)).c_str()) != 0) {
        std::cerr << host(h) << " is left\n";
      }
    }
  }
  static std::string host(int h) { return str_cat("overlap", ::getpid(), "h", h); }
};

int run(const OverlapOptions& options) {
  if (options.worker >= 0) {
    Worker(options).measure();
    return 0;
  }
  const SlowLink link(options.mbit);
  std::array<int, 2> status{};
  {
    std::vector<std::jthread> workers;
    for (const int h : {0, 1}) {
      const std::string command = str_cat(
          "/proc/", ::getpid(), "/exe --layers ", options.layers, " --width ", options.width,
          " --rows ", options.rows, " --mbit ", options.mbit, " --bucket-kb ", options.bucket_kb,
          " --steps ", options.steps, " --rounds ", options.rounds, " --worker ", h);
      workers.emplace_back([&status, h, line = SlowLink::on(h, command)] {
        status[static_cast<std::size_t>(h)] = std::system(line.c_str());
      });
    }
  }
  return status[0] == 0 && status[1] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using cohort::bench::OverlapOptions;
  OverlapOptions options;
  const auto declare = [&](CLI::App& app) {
    app.add_option("--layers", options.layers, "Square matrices in a row");
    app.add_option("--width", options.width, "Of each");
    app.add_option("--rows", options.rows, "Of a worker's batch");
    app.add_option("--mbit", options.mbit, "Mbit/s of the link, each way");
    app.add_option("--bucket-kb", options.bucket_kb, "Gradients that travel at once");
    app.add_option("--steps", options.steps, "Of each kind in a round");
    app.add_option("--rounds", options.rounds, "Of whose steps the median is taken");
    app.add_option("--worker", options.worker, "Be this worker");
  };
  return examples::run_cli(argc, argv, "Measures how much of an exchange a step hides.", declare,
                           [&] { return cohort::bench::run(options); });
}
