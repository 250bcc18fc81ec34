// SPDX-License-Identifier: Apache-2.0
//
// The fuzz program: libFuzzer around one target.
//
//   cohort_fuzz --target=png --work=DIR [libFuzzer's flags] [more inputs]
//
// Starts from the target's seeds and from what earlier runs found, both kept in DIR, for
// COHORT_FUZZ_SECONDS (3), with the random seed COHORT_FUZZ_SEED (1; 0: another one every time).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

namespace fs = std::filesystem;
const Target* t_target = nullptr;

std::vector<Target> all_targets() {
  std::vector<Target> out;
  for (const auto targets : {record_targets(), array_targets(), image_targets(), state_targets(),
                             checkpoint_targets(), coordinator_targets()}) {
    out.insert(out.end(), targets.begin(), targets.end());
  }
  return out;
}

const Target* find_target(const std::string& name) {
  static const std::vector<Target> targets = all_targets();
  for (const Target& target : targets) {
    if (name == target.name) return &target;
  }
  std::cerr << "cohort_fuzz: expected --target= one of:";
  for (const Target& target : targets) std::cerr << ' ' << target.name;
  std::cerr << "\n";
  std::exit(2);
}

/// The value of "--name=value" among the arguments, which is taken out of them.
std::string take_flag(std::vector<std::string>& arguments, const std::string& name) {
  const std::string start = "--" + name + "=";
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    if (!at->starts_with(start)) continue;
    std::string value = at->substr(start.size());
    arguments.erase(at);
    return value;
  }
  return "";
}

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

void write_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  int number = 0;
  for (const std::string& seed : t_target->seeds()) {
    std::ofstream(folder / ("seed" + std::to_string(number++)), std::ios::binary) << seed;
  }
}

}  // namespace

const std::string& memory_file(std::string_view bytes) {
  static const int file = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  const auto size = static_cast<off_t>(bytes.size());
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, bytes.data(), bytes.size(), 0) != size) {
    broken("cannot write a file in memory");
  }
  return path;
}

std::string temporary_file() {
  return (fs::temp_directory_path() / ("cohort_fuzz_" + std::to_string(::getpid()))).string();
}

std::string taken(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string out{std::istreambuf_iterator<char>(in), {}};
  fs::remove(path);
  return out;
}

void broken(const std::string& what) {
  std::cerr << "cohort_fuzz: " << what << "\n";
  std::abort();
}

}  // namespace cohort::fuzz

using namespace cohort::fuzz;

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::vector<std::string> arguments(*argv, *argv + *argc);
  t_target = find_target(take_flag(arguments, "target"));
  const fs::path work = fs::path(take_flag(arguments, "work")) / t_target->name;
  if (work.has_parent_path()) {
    write_seeds(work / "seeds");
    fs::create_directories(work / "found");
    const auto first = arguments.begin() + 1;
    arguments.insert(first, {"-max_total_time=" + setting("COHORT_FUZZ_SECONDS", "3"),
                             "-seed=" + setting("COHORT_FUZZ_SEED", "1"), "-print_final_stats=1",
                             "-artifact_prefix=" + (work / "").string(),
                             // The first folder takes what is found; the others are only read.
                             (work / "found").string()});
    arguments.push_back((work / "seeds").string());
  }
  static std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  *argc = static_cast<int>(arguments.size());
  *argv = pointers.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  t_target->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
