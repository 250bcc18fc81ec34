// SPDX-License-Identifier: Apache-2.0
//
// Where programs, Python peers and passing files are, and how peers are started.
#pragma once

#include <string>
#include <vector>

namespace cohort::bench {

struct Places {
  std::string program;       ///< This program, which C++ contenders are, too.
  std::string peer_scripts;  ///< The folder of the Python peers.
  std::string environments;  ///< The folder that holds the virtual environments.
};
Places default_places();

/// A script of the peers under the Python of an environment that peers/setup made.
std::vector<std::string> peer_command(const Places& places, const std::string& environment,
                                      const std::string& script);

/// "NAME=value" that show peers at their best: glibc's thresholds raised, as fix_allocator does
/// (eager PyTorch gains most), one thread each, and nothing for the GPU.
std::vector<std::string> peer_variables(const Places& places);

/// What to do where an environment is not there; empty where it is.
std::string missing_environment(const Places& places, const std::string& environment);

/// A folder that is gone when the run ends.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& program);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace cohort::bench
