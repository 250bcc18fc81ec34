// SPDX-License-Identifier: Apache-2.0
#include "places.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>

#include "cohort/base/check.h"
#include "machine.h"

namespace cohort::bench {
namespace {

namespace fs = std::filesystem;

std::string environment_or(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

}  // namespace

Places default_places() {
  const std::string cache =
      environment_or("XDG_CACHE_HOME", environment_or("HOME", "") + "/.cache") + "/cohort";
  return {fs::read_symlink("/proc/self/exe"), COHORT_BENCH_PEER_SCRIPTS,
          environment_or("COHORT_CACHE", cache) + "/peers"};
}

std::vector<std::string> peer_command(const Places& places, const std::string& environment,
                                      const std::string& script) {
  return {places.environments + "/" + environment + "/bin/python", "-u",
          places.peer_scripts + "/" + script};
}

std::vector<std::string> peer_variables(const Places& places) {
  std::vector<std::string> variables = {
      "MALLOC_MMAP_THRESHOLD_=1073741824", "MALLOC_TRIM_THRESHOLD_=2147483647",
      "MALLOC_TOP_PAD_=67108864",
      "CUDA_VISIBLE_DEVICES=", "TORCHINDUCTOR_CACHE_DIR=" + places.environments + "/inductor"};
  if (!default_threads()) variables.push_back("OMP_NUM_THREADS=1");
  return variables;
}

std::string missing_environment(const Places& places, const std::string& environment) {
  const bool there = fs::exists(places.environments + "/" + environment + "/stamp");
  return there ? "" : "run make bench-peers";
}

ScratchFolder::ScratchFolder(const std::string& program) {
  std::string name = (fs::temp_directory_path() / (program + ".XXXXXX")).string();
  COHORT_CHECK_STATE(mkdtemp(name.data()), "[", program, "] cannot create ", name);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace cohort::bench
