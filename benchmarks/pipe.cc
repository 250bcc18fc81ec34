// SPDX-License-Identifier: Apache-2.0
#include "pipe.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace cohort::bench {

int serve_lines(const std::string& versions,
                const std::function<std::string(const std::string& line)>& answer) {
  std::FILE* out = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::fprintf(out, "ready %s\n", versions.c_str());
  std::fflush(out);
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::string reply;
    try {
      const std::string text = answer(line);
      reply = text.empty() ? "ok" : "ok " + text;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      reply = "error " + text.substr(0, text.find('\n'));
    }
    std::fprintf(out, "%s\n", reply.c_str());
    std::fflush(out);
  }
  std::fclose(out);
  return 0;
}

}  // namespace cohort::bench
