// SPDX-License-Identifier: Apache-2.0
//
// What a program, or a job of several, has left behind.
#pragma once

#include <sstream>
#include <string>
#include <vector>

struct Finished {
  int code = -1;
  std::string text = {};

  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
  /// The lines that begin so.
  std::vector<std::string> lines(const std::string& prefix) const {
    std::vector<std::string> out;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) {
      if (line.starts_with(prefix)) out.push_back(line);
    }
    return out;
  }
};
