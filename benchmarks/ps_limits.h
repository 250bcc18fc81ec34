// SPDX-License-Identifier: Apache-2.0
//
// What two bare processes need for the bytes of a push or a pull, for ps_bench: over a socket, and
// over memory that both share. The server reads bytes to where they stay, sends those that are
// there, gathers rows, or adds rows: the least that a parameter server has to do. Over memory rows
// go by pieces, so that both sides work at the same time, rows that follow are on their way to the
// server's core while one is worked on, and the table lies in huge pages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "process.h"
#include "ways.h"

namespace cohort::bench {

inline constexpr std::int64_t kTableRows = 1'000'000;
inline constexpr std::int64_t kWidth = 32;
inline constexpr std::int64_t kIds = 4096;
inline constexpr std::size_t kRowBytes = kWidth * sizeof(float);

std::string program_path();
double us_since(std::chrono::steady_clock::time_point begin, std::int64_t steps);

/// The server's process, and where it listens.
struct Server {
  explicit Server(const char* kind)
      : process({program_path(), kind}, {}, std::string(kind + 2) + ".log"),
        port(process.receive(std::chrono::seconds(60))) {}
  ContenderProcess process;
  std::string port;
};

struct Request {
  std::uint64_t brings = 0;  ///< Bytes that follow.
  std::uint64_t wants = 0;   ///< Bytes of the answer; of rows: rows, whose numbers follow.
  std::uint64_t rows = 0;    ///< 1: they are rows of the table.
};

Way sockets_way(const Request& request, const std::vector<std::int64_t>& rows);
Way memory_way(const Request& request, const std::vector<std::int64_t>& rows);

int serve_bytes();
int serve_memory();

}  // namespace cohort::bench
