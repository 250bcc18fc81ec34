// SPDX-License-Identifier: Apache-2.0
#include "ps_contender.h"

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/cohort.h"
#include "machine.h"
#include "ps_limits.h"
#include "ps_recommender.h"

namespace cohort::bench {
namespace {

constexpr const char* kFileVariable = "COHORT_BENCH_IMPRESSIONS";
constexpr int kWorkers = 2;
constexpr int kServers = 2;
constexpr std::int64_t kDense = 1 << 20;  // numbers: 4 MB
constexpr double kRate = 1.0 / 1024;      // sums of it are exact

/// What pushes and pulls are about. A row of numbers is in one piece for every partitioner.
struct Weights {
  Variable dense{1.0, {.name = "dense", .shape = Shape{1, kDense}, .dtype = kFloat32}};
  Variable table{1.0, {.name = "table", .shape = Shape{kTableRows, kWidth}, .dtype = kFloat32}};
  keras::SGD of_dense{{.learning_rate = kRate}};
  keras::SGD of_table{{.learning_rate = kRate}};
  Tensor ids = some_rows();

  static Tensor some_rows() {
    std::vector<std::int64_t> out(kIds);
    for (std::int64_t i = 0; i < kIds; ++i) {
      out[static_cast<std::size_t>(i)] = i * (kTableRows / kIds) + (i * 7919) % 200;
    }
    return from_vector(out, {kIds});
  }
};

// What workers run.

std::shared_ptr<Weights> make_weights() { return std::make_shared<Weights>(); }
std::shared_ptr<Recommender> make_recommender() { return std::make_shared<Recommender>(); }

Dataset make_impressions() {
  const auto [words, numbers, clicked] = read_impressions(std::getenv(kFileVariable));
  return Dataset::from_tensor_slices({words, numbers, clicked})
      .take(kBatches - 1)
      .repeat()
      .prefetch(4);
}

void nothing() {}

void push(Weights& all, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    all.of_dense.apply_gradients({{ones({1, kDense}), all.dense}});
  }
}

void push_rows(Weights& all, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    all.of_table.apply_gradients(
        {{IndexedSlices{ones({kIds, kWidth}), all.ids, {kTableRows, kWidth}}, all.table}});
  }
}

double pull(Weights& all, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += all.dense.value().flatten()[0].item<double>();
  return sum;
}

double pull_rows(Weights& all, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += embedding_lookup(all.table, all.ids).flatten()[0].item<double>();
  }
  return sum;
}

double train_step(Recommender& model, DistributedIterator& data) {
  const auto step = [&](const Tensor& words, const Tensor& numbers, const Tensor& clicked) {
    double loss = 0;
    model.train(words, numbers, clicked, loss);
    return loss;
  };
  return get_strategy().run(step, *data.next());
}

COHORT_REGISTER_FUNCTION(make_weights);
COHORT_REGISTER_FUNCTION(make_recommender);
COHORT_REGISTER_FUNCTION(make_impressions);
COHORT_REGISTER_FUNCTION(nothing);
COHORT_REGISTER_FUNCTION(push);
COHORT_REGISTER_FUNCTION(push_rows);
COHORT_REGISTER_FUNCTION(pull);
COHORT_REGISTER_FUNCTION(pull_rows);
COHORT_REGISTER_FUNCTION(train_step);

/// Answers the lines.
class Chief {
 public:
  explicit Chief(const ParameterServerStrategy& strategy)
      : coordinator_(strategy),
        here_(make_weights()),
        there_(coordinator_.create_per_worker_resource(make_weights)) {}

  std::string answer(const std::string& command, const std::string& argument) {
    if (command == "load") {
      recommender_ = make_recommender();
      models_ = coordinator_.create_per_worker_resource(make_recommender);
      data_ = coordinator_.make_iterator(coordinator_.create_per_worker_dataset(make_impressions));
      const auto [words, numbers, clicked] = read_impressions(argument);
      held_out_ = {words[kBatches - 1], numbers[kBatches - 1], clicked[kBatches - 1]};
      return "ok";
    }
    if (command == "loss") {
      const auto& [words, numbers, clicked] = held_out_;
      return text("ok ", recommender_->loss(words, numbers, clicked).item<double>());
    }
    count_ = std::stoll(argument);
    if (command == "schedule") return timed([&] { return schedule(nothing); });
    if (command == "train") return timed([&] { return schedule(train_step, models_, data_); });
    if (command == "push") return pushed(here_->dense, push);
    if (command == "push_rows") return pushed(here_->table, push_rows);
    if (command == "pull") return pulled(here_->dense, pull);
    if (command == "pull_rows") return pulled(here_->table, pull_rows);
    throw InvalidArgument(str_cat("[ps_peers_bench] unknown command ", command));
  }

 private:
  template <class... Parts>
  static std::string text(const Parts&... parts) {
    std::ostringstream out;
    out.precision(17);
    (out << ... << parts);
    return out.str();
  }

  template <class Work>
  std::string timed(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    const double count = work();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return text("ok ", static_cast<std::int64_t>(took.count()), " ", count);
  }

  template <class F, class... A>
  double schedule(F* function, const A&... arguments) {
    for (std::int64_t i = 0; i < count_; ++i) coordinator_.schedule(function, arguments...);
    coordinator_.join();
    return static_cast<double>(count_);
  }

  // Of a row that all pushes and pulls are about.
  double first_number(const Variable& v) const {
    return embedding_lookup(v, tensor({0}, kInt64)).flatten()[0].item<double>();
  }

  std::string pushed(const Variable& v, void (*function)(Weights&, std::int64_t)) {
    const double before = first_number(v);
    const std::string out = timed([&] {
      coordinator_.schedule(function, there_, count_).get();
      return 0;
    });
    return out.substr(0, out.rfind(' ')) + text(" ", (before - first_number(v)) / kRate);
  }

  std::string pulled(const Variable& v, double (*function)(Weights&, std::int64_t)) {
    const double each = first_number(v);
    return timed([&] { return coordinator_.schedule(function, there_, count_).get() / each; });
  }

  ClusterCoordinator coordinator_;
  std::shared_ptr<Weights> here_;
  PerWorkerValues<Weights> there_;
  std::shared_ptr<Recommender> recommender_;
  PerWorkerValues<Recommender> models_;
  PerWorkerIterator data_;
  std::tuple<Tensor, Tensor, Tensor> held_out_;
  std::int64_t count_ = 0;
};

std::vector<int> free_ports(int count) {
  std::vector<int> held, ports;
  for (int i = 0; i < count; ++i) {
    held.push_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    COHORT_CHECK(bind(held.back(), address, size) == 0, "no port");
    COHORT_CHECK(getsockname(held.back(), address, &size) == 0, "no port");
    ports.push_back(ntohs(at.sin_port));
  }
  for (const int each : held) close(each);
  return ports;
}

std::string addresses(const std::vector<int>& ports, int first, int count) {
  std::string out;
  for (int i = first; i < first + count; ++i) {
    out += str_cat(i > first ? ", " : "", "\"127.0.0.1:", ports[static_cast<std::size_t>(i)], "\"");
  }
  return out;
}

// In the chief's process group, and ended with it, however it ends.
void start_task(const std::string& config) {
  const std::string program = program_path();
  const pid_t chief = getpid();
  const pid_t pid = fork();
  COHORT_CHECK(pid >= 0, "cannot fork");
  if (pid != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != chief) _exit(1);
  setenv("TF_CONFIG", config.c_str(), 1);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  execl(program.c_str(), program.c_str(), "--parameter-job", nullptr);
  _exit(1);
}

// Sets TF_CONFIG to the chief's, and starts the others.
void start_job() {
  const std::vector<int> ports = free_ports(kServers + kWorkers + 1);
  const std::string cluster =
      str_cat(R"({"cluster": {"ps": [)", addresses(ports, 0, kServers), R"(], "worker": [)",
              addresses(ports, kServers, kWorkers), R"(], "chief": [)",
              addresses(ports, kServers + kWorkers, 1), R"(]}, "task": {"type": ")");
  const auto config = [&](const char* type, int index) {
    return str_cat(cluster, type, R"(", "index": )", index, "}}");
  };
  for (int i = 0; i < kServers; ++i) start_task(config("ps", i));
  for (int i = 0; i < kWorkers; ++i) start_task(config("worker", i));
  setenv("TF_CONFIG", config("chief", 0).c_str(), 1);
}

void answer_lines() {
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<TFConfigClusterResolver>(),
       .variable_partitioner = recommender_partitioner()});
  const auto scope = strategy.scope();
  Chief chief(strategy);
  std::cout << "ready cohort" << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::istringstream words(line);
    std::string command, argument;
    words >> command >> argument;
    try {
      std::cout << chief.answer(command, argument) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
}

}  // namespace

int serve_parameter_job() {
  flush_denormals();
  if (std::getenv("TF_CONFIG") == nullptr) {
    start_job();
  } else if (run_task(TFConfigClusterResolver())) {
    return 0;
  }
  answer_lines();
  return 0;
}

}  // namespace cohort::bench
