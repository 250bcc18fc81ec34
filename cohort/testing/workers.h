// SPDX-License-Identifier: Apache-2.0
//
// What tells a program that a test starts which worker of a job it is:
//
//   const std::vector<std::string> addresses = loopback_addresses(free_ports(3));
//   Process worker({PROGRAM}, {worker_config(addresses, 0)});
#pragma once

#include <string>
#include <vector>

#include "cohort/base/strings.h"

namespace cohort::testing {

/// "localhost:PORT" of each.
inline std::vector<std::string> loopback_addresses(const std::vector<int>& ports) {
  std::vector<std::string> out;
  for (const int port : ports) out.push_back(str_cat("localhost:", port));
  return out;
}

/// "TF_CONFIG=...": that of worker `index` of a job with these workers alone.
inline std::string worker_config(const std::vector<std::string>& addresses, int index) {
  std::string workers;
  for (const std::string& address : addresses) {
    workers += str_cat(workers.empty() ? "\"" : ", \"", address, '"');
  }
  return str_cat(R"(TF_CONFIG={"cluster": {"worker": [)", workers,
                 R"(]}, "task": {"type": "worker", "index": )", index, "}}");
}

}  // namespace cohort::testing
