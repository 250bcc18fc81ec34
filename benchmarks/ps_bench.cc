// SPDX-License-Identifier: Apache-2.0
//
// Pushes to and pulls from a parameter server, which is a process of its own on this machine,
// beside what two bare processes need for the same bytes over a socket, and to two servers that
// have copies of each other's variables.
//
//   ps_bench --failovers 5 --lease 2000    // kills a primary five times, with a lease of 2000 ms
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/coordinator/parameters/parameter_servers.h"
#include "cohort/coordinator/parameters/parameter_service.h"
#include "process.h"
#include "ps_groups.h"
#include "ways.h"

namespace cohort::bench {
namespace {

using internal::coordinator::ParameterHandle;
using internal::coordinator::ParameterServers;
using internal::coordinator::ParameterService;
using internal::coordinator::UpdateStep;
using internal::variables::RowSum;

constexpr std::int64_t kTableRows = 1'000'000;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kIds = 4096;
constexpr std::size_t kRowBytes = kWidth * sizeof(float);
constexpr std::int64_t kDense = 1 << 20;  // numbers: 4 MB

std::string program_path() {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return path;
}

double us_since(std::chrono::steady_clock::time_point begin, std::int64_t steps) {
  const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - begin;
  return all.count() / static_cast<double>(steps);
}

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

// ---- Two bare processes: a header of two numbers, then bytes, whichever way they go.

struct Request {
  std::uint64_t brings = 0;  // bytes that follow
  std::uint64_t wants = 0;   // bytes of the answer; of rows: rows, whose numbers follow
  std::uint64_t rows = 0;    // 1: they are rows of the table
};

void send_all(int socket, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) throw Internal("[ps_bench] expected to send, got a closed socket");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

bool receive_all(int socket, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// What a server has to do at the least: read bytes to where they stay, send those that are there,
// gather rows, add rows.
void answer(int socket) {
  std::vector<float> table(static_cast<std::size_t>(kTableRows * kWidth), 1.0F);
  std::vector<char> bytes(std::size_t{64} << 20);
  std::vector<int64_t> rows(kIds);
  Request request;
  while (receive_all(socket, &request, sizeof(request))) {
    if (request.rows == 0) {
      receive_all(socket, bytes.data(), request.brings);
      send_all(socket, bytes.data(), request.wants);
      continue;
    }
    receive_all(socket, rows.data(), rows.size() * sizeof(int64_t));
    receive_all(socket, bytes.data(), request.brings);
    auto* at = reinterpret_cast<float*>(bytes.data());
    for (const int64_t row : rows) {
      float* const here = table.data() + row * kWidth;
      if (request.brings > 0) {
        for (std::int64_t i = 0; i < kWidth; ++i) here[i] -= 0.01F * at[i];
      } else {
        std::memcpy(at, here, kRowBytes);
      }
      at += kWidth;
    }
    send_all(socket, bytes.data(), request.wants);
  }
}

int serve_bytes() {
  std::string address;
  const internal::collectives::Socket listener =
      internal::collectives::listen_on_free_port(&address);
  std::printf("ready %d\n", internal::collectives::parse_address("[ps_bench] ", address).port);
  std::fflush(stdout);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  if (!internal::collectives::wait_for_fd(listener.fd(), /*to_write=*/false, deadline)) return 1;
  const int socket = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);  // one that blocks
  set_no_delay(socket);
  answer(socket);
  ::close(socket);
  return 0;
}

int serve_parameters() {
  const auto service = std::make_shared<ParameterService>();
  const internal::rpc::RpcServer server({}, internal::coordinator::parameter_methods(service));
  std::printf("ready %d\n", server.port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

/// The server's process, and where it listens.
struct Server {
  explicit Server(const char* kind)
      : process({program_path(), kind}, {}, std::string(kind + 2) + ".log"),
        port(process.receive(std::chrono::seconds(60))) {}
  ContenderProcess process;
  std::string port;
};

struct Sockets {
  Sockets() : server("--serve-bytes"), socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(server.port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    COHORT_CHECK(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
                 "no connection");
    set_no_delay(socket);
  }
  ~Sockets() { ::close(socket); }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void exchange(const Request& request, const std::vector<int64_t>* rows) {
    send_all(socket, &request, sizeof(request));
    if (rows != nullptr) send_all(socket, rows->data(), rows->size() * sizeof(int64_t));
    send_all(socket, buffer.data(), request.brings);
    receive_all(socket, buffer.data(), request.wants);
  }

  Server server;
  const int socket;
  std::vector<char> buffer = std::vector<char>(std::size_t{64} << 20);
};

struct Parameters {
  Parameters()
      : server("--serve-parameters"),
        servers({std::make_shared<internal::rpc::RpcClient>(
            internal::rpc::RpcClientOptions{.address = "127.0.0.1:" + server.port})}),
        dense(make("dense", {kDense})),
        table(make("table", {kTableRows, kWidth})) {}
  ParameterHandle make(const char* name, const Shape& shape) {
    return servers.make_or_bind({.name = name, .shape = shape},
                                [&](std::int64_t, std::int64_t) { return ones(shape); });
  }

  Server server;
  ParameterServers servers;
  const ParameterHandle dense;
  const ParameterHandle table;
  const UpdateStep step = {.rule = update_rules::SgdStep{0.01}, .how = {}, .slots = {}};
};

template <class Work>
Way cohort_way(const Work& work) {
  const auto all = std::make_shared<Parameters>();
  return {"cohort",
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

Way sockets_way(const Request& request, const std::vector<int64_t>& rows) {
  const auto all = std::make_shared<Sockets>();
  return {"sockets",
          [all, request, rows](std::int64_t steps) {
            const auto begin = std::chrono::steady_clock::now();
            for (std::int64_t i = 0; i < steps; ++i) {
              all->exchange(request, rows.empty() ? nullptr : &rows);
            }
            return us_since(begin, steps);
          },
          all->server.process.process_group()};
}

std::vector<WaysCase> ps_cases(const std::vector<int>&) {
  constexpr std::uint64_t kDenseBytes = kDense * sizeof(float);
  constexpr std::uint64_t kRowsBytes = kIds * kRowBytes;
  const auto rows_tensor = [](const std::vector<int64_t>& rows) {
    return from_vector(rows, {static_cast<std::int64_t>(rows.size())});
  };
  return {
      {"push_dense",
       {{"bytes", kDenseBytes}},
       [] {
         const Tensor gradient = ones({kDense});
         return std::vector<Way>{cohort_way([gradient](Parameters& p) {
                                   ParameterServers::Push push(p.servers);
                                   push.dense(p.dense, p.step, gradient);
                                   push.wait();
                                 }),
                                 sockets_way({.brings = kDenseBytes, .wants = 1}, {})};
       }},
      {"push_copies",
       {{"bytes", kDenseBytes}},
       [] {
         const Tensor gradient = ones({kDense});
         Way one = cohort_way([gradient](Parameters& p) {
           ParameterServers::Push push(p.servers);
           push.dense(p.dense, p.step, gradient);
           push.wait();
         });
         return std::vector<Way>{std::move(one), copies_way(gradient)};
       }},
      {"pull_dense",
       {{"bytes", kDenseBytes}},
       [] {
         return std::vector<Way>{cohort_way([](Parameters& p) { p.servers.pull(p.dense); }),
                                 sockets_way({.brings = 0, .wants = kDenseBytes}, {})};
       }},
      {"push_rows",
       {{"rows", kIds}, {"width", kWidth}},
       [] {
         const RowSum rows{some_rows(1, true), ones({kIds, kWidth})};
         return std::vector<Way>{
             cohort_way([rows](Parameters& p) {
               ParameterServers::Push push(p.servers);
               push.rows(p.table, p.step, rows, /*others_too=*/false);
               push.wait();
             }),
             sockets_way({.brings = kRowsBytes, .wants = 1, .rows = 1}, rows.rows)};
       }},
      {"pull_rows",
       {{"rows", kIds}, {"width", kWidth}},
       [rows_tensor] {
         const std::vector<int64_t> rows = some_rows(2, false);
         const Tensor ids = rows_tensor(rows);
         return std::vector<Way>{
             cohort_way([ids](Parameters& p) { p.servers.pull_rows(p.table, ids); }),
             sockets_way({.brings = 0, .wants = kRowsBytes, .rows = 1}, rows)};
       }},
  };
}

// us=... gb_per_s=... (or million_rows_per_s) of_limit=...
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
                 " of_limit=", summary.ratio[1].p50);
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
