// SPDX-License-Identifier: Apache-2.0
//
// Pushes to and pulls from a parameter server, which is a process of its own on this machine,
// beside the same over gRPC, what two bare processes need for the bytes over shared memory and over
// a socket, and two servers that have copies of each other's variables.
//
//   ps_bench --failovers 5 --lease 2000    // kills a primary five times, with a lease of 2000 ms
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/parameter_service.h"
#include "process.h"
#include "ps_groups.h"
#include "ps_limits.h"
#include "ways.h"

namespace cohort::bench {
namespace {

using internal::coordinator::ParameterHandle;
using internal::coordinator::ParameterServers;
using internal::coordinator::ParameterService;
using internal::coordinator::UpdateStep;
using internal::variables::RowSum;

constexpr std::int64_t kDense = 1 << 20;  // numbers: 4 MB

/// 4,096 rows of the table, each once. ascending: as gradients of a step come.
std::vector<int64_t> some_rows(std::uint32_t seed, bool ascending) {
  std::vector<int64_t> all(kTableRows);
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 random(seed);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(kIds);
  if (ascending) std::sort(all.begin(), all.end());
  return all;
}

int serve_parameters() {
  const auto service = std::make_shared<ParameterService>();
  internal::rpc::RpcServerOptions options;
  options.lanes = internal::coordinator::parameter_lanes();
  const internal::rpc::RpcServer server(std::move(options),
                                        internal::coordinator::parameter_methods(service));
  std::printf("ready %d\n", server.port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

struct Parameters {
  explicit Parameters(bool lanes)
      : server("--serve-parameters"),
        client(std::make_shared<internal::rpc::RpcClient>(internal::rpc::RpcClientOptions{
            .address = "127.0.0.1:" + server.port, .lanes = lanes})),
        servers({client}),
        dense(make("dense", {kDense})),
        table(make("table", {kTableRows, kWidth})) {
    for (int i = 0; lanes && !client->has_lane() && i < 1000; ++i) servers.pull(dense);
    COHORT_CHECK(client->has_lane() == lanes, "no lane");
  }
  ParameterHandle make(const char* name, const Shape& shape) {
    return servers.make_or_bind({.name = name, .shape = shape},
                                [&](std::int64_t, std::int64_t) { return ones(shape); });
  }

  Server server;
  std::shared_ptr<internal::rpc::RpcClient> client;
  ParameterServers servers;
  const ParameterHandle dense;
  const ParameterHandle table;
  const UpdateStep step = {.rule = update_rules::SgdStep{0.01}, .how = {}, .slots = {}};
};

template <class Work>
Way cohort_way(const Work& work, bool lanes = true) {
  const auto all = std::make_shared<Parameters>(lanes);
  return {lanes ? "cohort" : "grpc",
          [all, work](std::int64_t steps) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < steps; ++i) work(*all);
            return us_since(begin, steps);
          },
          all->server.process.process_group()};
}

// The same push to a variable that two servers have.
Way copies_way(const Tensor& gradient) {
  struct Copies {
    Copies() : groups(program_path(), std::chrono::seconds(10)), servers(groups.connect()) {
      dense = servers->make_or_bind({.name = "dense", .shape = {kDense}},
                                    [](std::int64_t, std::int64_t) { return ones({kDense}); });
    }
    PsGroups groups;
    std::shared_ptr<ParameterServers> servers;
    ParameterHandle dense;
    const UpdateStep step = {.rule = update_rules::SgdStep{0.01}, .how = {}, .slots = {}};
  };
  const auto all = std::make_shared<Copies>();
  return {"copies",
          [all, gradient](std::int64_t steps) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < steps; ++i) {
              ParameterServers::Push push(*all->servers);
              push.dense(all->dense, all->step, gradient);
              push.wait();
            }
            return us_since(begin, steps);
          },
          all->groups.process_group(all->dense.shards[0].place.server)};
}

// The limit over shared memory is the second.
template <class Work>
std::vector<Way> all_ways(const Work& work, const Request& request,
                          const std::vector<std::int64_t>& rows = {}) {
  std::vector<Way> out;
  out.push_back(cohort_way(work));
  out.push_back(memory_way(request, rows));
  out.push_back(cohort_way(work, /*lanes=*/false));
  out.push_back(sockets_way(request, rows));
  return out;
}

void push_dense(Parameters& p, const Tensor& gradient) {
  ParameterServers::Push push(p.servers);
  push.dense(p.dense, p.step, gradient);
  push.wait();
}

void push_rows(Parameters& p, const RowSum& rows) {
  ParameterServers::Push push(p.servers);
  push.rows(p.table, p.step, rows, /*others_too=*/false);
  push.wait();
}

std::vector<WaysCase> ps_cases(const std::vector<int>&) {
  constexpr std::uint64_t kDenseBytes = kDense * sizeof(float);
  constexpr std::uint64_t kRowsBytes = kIds * kRowBytes;
  const auto pull_rows = [](const Tensor& ids) {
    return [ids](Parameters& p) { p.servers.pull_rows(p.table, ids); };
  };
  return {
      {"push_dense",
       {{"bytes", kDenseBytes}},
       [] {
         return all_ways([g = ones({kDense})](Parameters& p) { push_dense(p, g); },
                         {.brings = kDenseBytes, .wants = 1});
       }},
      {"push_copies",
       {{"bytes", kDenseBytes}},
       [] {
         const Tensor gradient = ones({kDense});
         Way one = cohort_way([gradient](Parameters& p) { push_dense(p, gradient); });
         return std::vector<Way>{std::move(one), copies_way(gradient)};
       }},
      {"pull_dense",
       {{"bytes", kDenseBytes}},
       [] {
         return all_ways([](Parameters& p) { p.servers.pull(p.dense); },
                         {.brings = 0, .wants = kDenseBytes});
       }},
      {"push_rows",
       {{"rows", kIds}, {"width", kWidth}},
       [] {
         const RowSum rows{some_rows(1, true), ones({kIds, kWidth})};
         return all_ways([rows](Parameters& p) { push_rows(p, rows); },
                         {.brings = kRowsBytes, .wants = 1, .rows = 1}, rows.rows);
       }},
      {"pull_rows",
       {{"rows", kIds}, {"width", kWidth}},
       [pull_rows] {
         const std::vector<std::int64_t> rows = some_rows(2, false);
         return all_ways(pull_rows(from_vector(rows, {kIds})),
                         {.brings = 0, .wants = kRowsBytes, .rows = 1}, rows);
       }},
      {"pull_one_row",
       {{"rows", 1}, {"width", kWidth}},
       [pull_rows] {
         return all_ways(pull_rows(tensor({4711}, kInt64)), {.brings = 8, .wants = kRowBytes});
       }},
  };
}

// us=... gb_per_s=... (or million_rows_per_s) of_limit=... over_grpc=... of_sockets=...
std::string ps_columns(const WaysCase& which, const std::vector<WayResult>&,
                       const WaysSummary& summary) {
  const double us = summary.us[0].p50;
  const auto& fact = which.facts[0];
  const bool is_dense = fact.first == "bytes";
  const double per_us = static_cast<double>(fact.second) / us;
  if (which.name == "push_copies") {
    return str_cat("us=", us, " two_copies_of_one=", summary.ratio[1].p50);
  }
  return str_cat("us=", us,
                 is_dense ? " gb_per_s=" : " million_rows_per_s=", is_dense ? per_us / 1e3 : per_us,
                 " of_limit=", summary.ratio[1].p50, " over_grpc=", summary.ratio[2].p50,
                 " of_sockets=", summary.ratio[3].p50);
}

struct Failovers {
  int rounds = 5;
  int lease_ms = 2000;
};

void declare_failovers(CLI::App& app, Failovers& options) {
  app.add_option("--failovers", options.rounds, "Times that a primary is killed")
      ->check(CLI::Range(1, 1000))
      ->expected(0, 1);
  app.add_option("--lease", options.lease_ms, "Milliseconds that a server lives without a beat")
      ->check(CLI::Range(100, 60000));
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--serve-bytes") return serve_bytes();
  if (first == "--serve-memory") return serve_memory();
  if (first == "--serve-parameters") return serve_parameters();
  if (first == "--serve-group" && argc == 7) return serve_group({argv + 2, argv + argc});
  if (first.starts_with("--failovers")) {
    return examples::run_cli<Failovers>(
        argc, argv, "Times how long no push is acknowledged when a parameter server dies.",
        declare_failovers, [](const Failovers& o) {
          return time_failovers(program_path(), o.rounds, std::chrono::milliseconds(o.lease_ms));
        });
  }
  return ways_main(argc, argv,
                   {"ps_bench",
                    "Times pushes to and pulls from a parameter server on this machine.",
                    {},
                    ps_cases,
                    ps_columns});
}
