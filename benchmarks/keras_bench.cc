// SPDX-License-Identifier: Apache-2.0
//
// Times `fit`, `predict` and `.keras` files of Cohort beside Keras on TensorFlow and on JAX, JAX
// and PyTorch: the same model, data, batch and first weights, and the same losses, or no time
// counts.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "keras_contender.h"
#include "keras_files.h"
#include "keras_tasks.h"
#include "machine.h"
#include "places.h"
#include "process.h"
#include "ways.h"

namespace cohort::bench {
namespace {

// Adam with a small epsilon makes steps of full size of last bits, so that losses part in the end.
constexpr int kProofSteps = 4;
constexpr double kProofTolerance = 1e-4;
// In mixed_bfloat16, whose last bit is 1/256 of a number.
constexpr double kMixedTolerance = 2e-2;
constexpr std::chrono::seconds kStartLimit{180};
constexpr std::chrono::seconds kInitLimit{300};
constexpr std::chrono::seconds kRunLimit{300};

struct KerasOptions {
  bool peers = true;
};

struct PeerKind {
  const char* name;
  const char* environment;
  std::vector<std::string> arguments;  // script and kind
  int replicas;
};

std::vector<PeerKind> peer_kinds() {
  return {
      {"keras_jax", "xla", {"keras_peer.py", "jax", "fit"}, 1},
      {"keras_jax8", "xla", {"keras_peer.py", "jax", "fit8"}, 1},
      {"jax_step", "xla", {"keras_peer.py", "jax", "step"}, 1},
      {"keras_tf", "xla", {"keras_peer.py", "tensorflow", "fit"}, 1},
      {"keras_tf8", "xla", {"keras_peer.py", "tensorflow", "fit8"}, 1},
      {"keras_tf_xla", "xla", {"keras_peer.py", "tensorflow", "xla"}, 1},
      {"torch_eager", "torch", {"keras_torch_peer.py", "eager"}, 1},
      {"torch_compiled", "torch", {"keras_torch_peer.py", "compiled"}, 1},
      {"keras_jax_parallel", "xla", {"keras_peer.py", "jax", "parallel"}, 2},
      {"keras_tf_mirrored", "xla", {"keras_peer.py", "tensorflow", "mirrored"}, 2},
  };
}

bool is_mixed(const KerasCase& c) { return c.model.ends_with("_bf16"); }

// A case's folder and its contenders' processes, for as long as its ways live.
class KerasRound {
 public:
  KerasRound(const KerasCase& c, bool peers) : case_(c), peers_(peers), scratch_("keras_bench") {
    write_task(c, folder());
    if (!is_mixed(c)) return;
    KerasCase plain = c;
    plain.model.resize(plain.model.find("_bf16"));
    write_task(plain, folder() + "_float32");
  }

  /// What is timed is a step, or with `predict` a pass over 60,000 rows.
  std::vector<Way> ways(bool predict) {
    const Places places = default_places();
    const std::vector<std::string> self = {places.program, "--contender", "cohort"};
    // One replica would have a thread for every core, all of them on the core that it is pinned to.
    std::vector<std::string> own;
    if (!default_threads()) own.emplace_back("OMP_NUM_THREADS=1");
    std::vector<Way> all = {way("cohort", self, own, folder(), predict)};
    if (is_mixed(case_)) {
      all.push_back(way("cohort_float32", self, own, folder() + "_float32", predict));
    }
    if (!peers_) return all;
    for (const PeerKind& kind : peer_kinds()) {
      if (!takes_part(kind, predict)) continue;
      const std::string missing = missing_environment(places, kind.environment);
      if (!missing.empty()) {
        std::printf("%s: %s\n", kind.name, missing.c_str());
        continue;
      }
      std::vector<std::string> command =
          peer_command(places, kind.environment, kind.arguments.front());
      command.insert(command.end(), kind.arguments.begin() + 1, kind.arguments.end());
      all.push_back(way(kind.name, command, peer_variables(places), folder(), predict));
    }
    return all;
  }

 private:
  std::string folder() const { return scratch_.path() + "/task"; }

  bool takes_part(const PeerKind& kind, bool predict) const {
    const std::string name = kind.name;
    if (predict && (name == "jax_step" || name == "torch_compiled" || name.ends_with('8'))) {
      return false;
    }
    if (is_mixed(case_) && name.starts_with("torch")) return false;
    return kind.replicas == case_.replicas;
  }

  Way way(const std::string& name, const std::vector<std::string>& command,
          const std::vector<std::string>& variables, const std::string& task, bool predict) {
    Way out{name, [](std::int64_t) { return 0.0; }};
    try {
      processes_.push_back(std::make_unique<ContenderProcess>(
          command, variables, scratch_.path() + "/" + name + ".log"));
      ContenderProcess& process = *processes_.back();
      process.receive(kStartLimit);
      process.send("init " + task);
      process.receive(kInitLimit);
      process.send(predict ? "predict 1" : str_cat("curve ", kProofSteps));
      out.failure = other_work(process.receive(kInitLimit), predict);
      const char* const command_name = predict ? "predict " : "run ";
      out.process_group = process.process_group();
      out.time = [&process, command_name](std::int64_t steps) {
        process.send(command_name + std::to_string(steps));
        return std::stod(process.receive(kRunLimit)) / 1e3 / static_cast<double>(steps);
      };
    } catch (const std::exception& error) {
      out.failure = error.what();
    }
    return out;
  }

  /// Empty, if the numbers are those of the first contender.
  std::string other_work(const std::string& line, bool predict) {
    std::istringstream in(line);
    if (predict) in.ignore(line.find(' ') + 1);  // its time
    std::vector<double> numbers;
    for (double number = 0; in >> number;) numbers.push_back(number);
    if (proof_.empty()) proof_ = numbers;
    COHORT_CHECK_STATE(numbers.size() == proof_.size(), "[keras_bench] expected ", proof_.size(),
                       " numbers, got ", line);
    const double tolerance = is_mixed(case_) ? kMixedTolerance : kProofTolerance;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double error = std::abs(numbers[i] - proof_[i]) / std::abs(proof_[i]);
      if (error <= tolerance) continue;
      return str_cat("expected ", proof_[i], " in step ", i + 1, ", got ", numbers[i]);
    }
    return {};
  }

  const KerasCase case_;
  const bool peers_;
  const ScratchFolder scratch_;
  std::vector<std::unique_ptr<ContenderProcess>> processes_;
  std::vector<double> proof_;
};

WaysCase case_of(const std::string& text, bool predict, bool peers) {
  const KerasCase c = parse_keras_case(text);
  return {predict ? "predict:" + text : text, {{"batch", c.batch}, {"replicas", c.replicas}}, [=] {
            const auto round = std::make_shared<KerasRound>(c, peers);
            std::vector<Way> ways = round->ways(predict);
            for (Way& way : ways) {
              way.time = [round, time = way.time](std::int64_t steps) { return time(steps); };
            }
            return ways;
          }};
}

std::vector<WaysCase> keras_cases(const KerasOptions& options) {
  std::vector<WaysCase> all;
  for (const char* text :
       {"mlp:32:1", "mlp:256:1", "cnn:64:1", "resnet20:32:1", "lstm:32:1", "transformer:32:1",
        "wide_deep:256:1", "mlp:32:2", "mlp:256:2", "cnn:64:2", "lstm:32:2", "wide_deep:256:2",
        "mlp_bf16:512:1", "transformer_bf16:512:1"}) {
    all.push_back(case_of(text, false, options.peers));
  }
  all.push_back(case_of("mlp:32:1", true, options.peers));
  for (WaysCase& files : keras_file_cases()) all.push_back(std::move(files));
  return all;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  if (argc == 3 && std::string(argv[1]) == "--contender") return serve_keras_contender();
  KerasOptions options;
  const auto declare = [&](CLI::App& app) {
    app.add_flag("!--no-peers", options.peers, "Only Cohort");
  };
  return ways_main(
      argc, argv,
      {"keras_bench", "Times fit, predict and .keras files beside Keras, JAX and PyTorch.", declare,
       [&](const std::vector<int>&) { return keras_cases(options); }, columns_beside_others});
}
