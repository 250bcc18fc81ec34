// SPDX-License-Identifier: Apache-2.0
//
// Changes files of models, and reads them.
//
//   keras_fuzz TARGET FOLDER [INPUT...]
//
// Runs the given inputs and the target's seeds, which must be read, then for COHORT_FUZZ_SECONDS
// (3) of a processor's time changed ones, with the random seed COHORT_FUZZ_SEED (1; 0: another one
// every time): changes of the seeds, and of inputs that led to an error that was not seen before. A
// process of its own runs them, which may crash, hang or take memory; the input that does is then
// kept in FOLDER/TARGET.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>

#include "cohort/base/crc32c.h"
#include "cohort/base/error.h"
#include "cohort/checkpoint/internal/file.h"
#include "tests/fuzz/keras_targets.h"

namespace cohort::fuzz {

const std::string& work_folder() {
  static const std::string folder = [] {
    std::string shape = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp");
    shape += "/cohort_keras_fuzz_XXXXXX";
    if (::mkdtemp(shape.data()) == nullptr) broken("cannot make a folder");
    return shape;
  }();
  return folder;
}

void broken(const std::string& what) {
  std::cerr << "keras_fuzz: " << what << std::endl;
  std::abort();
}

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongest = std::size_t{4} << 20;
// Of an input, and of making the seeds: of a processor, however busy the machine is; and of waiting
// for what never comes.
constexpr double kMostSeconds = 20, kMostSecondsOfSeeds = 120;
constexpr auto kMostWaiting = std::chrono::minutes(10);
constexpr long kMostKilobytes = 512 * 1024;         // more than before, of one input
constexpr rlim_t kMostAddresses = rlim_t{2} << 30;  // more than at first
constexpr std::size_t kMostFound = 2'000;

/// What both processes see: the input that is run; number 0: none yet, the seeds are made.
struct Running {
  std::atomic<uint64_t> number;
  std::size_t size;
  char bytes[kLongest];
};

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::stoull(value) : otherwise;
}

// That a process has had of all processors.
double seconds_of(clockid_t clock) {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

long peak_kilobytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// The sanitizer takes the addresses of its shadow, and limits memory itself.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__)
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMostAddresses;
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

/// The error without what differs from input to input; empty: none.
std::string outcome_of(const FileTarget& target, const Input& input) {
  try {
    target.run(input);
    return "";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) broken(error.what());
    if (target.is_bounded && error.code() == ErrorCode::kResourceExhausted) broken(error.what());
    std::string text;
    for (const char* c = error.what(); *c != '\0' && text.size() < 200; ++c) {
      if (std::isdigit(static_cast<unsigned char>(*c)) == 0) text += *c;
    }
    const std::size_t got = text.find(", got ");
    return got == std::string::npos ? text : text.substr(0, got);
  } catch (const std::bad_alloc&) {
    if (target.is_bounded) broken("it asked for more memory than there is");
    return "no memory";
  } catch (const std::exception& error) {
    broken(std::string("an error that is not Cohort's: ") + error.what());
  }
}

class Fuzz {
 public:
  Fuzz(const FileTarget& target, Running& running)
      : target_(target), running_(running), random_(random_seed()) {}

  void run_all(const std::vector<std::string>& given) {
    pool_ = target_.seeds();
    seeds_ = pool_.size();
    for (std::size_t i = 0; i < seeds_; ++i) {
      const std::string outcome = run({pool_[i]});
      if (!outcome.empty()) broken("a seed is not read: " + outcome);
    }
    limit_memory();
    for (const std::string& bytes : given) run({bytes});
    const double end = seconds_of(CLOCK_PROCESS_CPUTIME_ID) +
                       static_cast<double>(setting("COHORT_FUZZ_SECONDS", 3));
    while (seconds_of(CLOCK_PROCESS_CPUTIME_ID) < end) {
      const bool of_seed = random_.once_in(2);
      const std::size_t number = random_.below(of_seed ? seeds_ : pool_.size());
      run(target_.change(pool_[number], number < seeds_, random_));
    }
    std::cout << target_.name << ": " << runs_ << " inputs, " << read_ << " of them read, "
              << outcomes_.size() << " kinds of errors" << std::endl;
  }

 private:
  static uint64_t random_seed() {
    const uint64_t seed = setting("COHORT_FUZZ_SEED", 1);
    return seed != 0 ? seed : static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  }

  // What came of it.
  std::string run(const Input& input) {
    if (input.bytes.size() > kLongest) return "too long";
    running_.size = input.bytes.size();
    std::memcpy(running_.bytes, input.bytes.data(), input.bytes.size());
    ++running_.number;
    const long before = peak_kilobytes();
    const std::string outcome = outcome_of(target_, input);
    ++runs_;
    if (outcome.empty()) ++read_;
    if (target_.is_bounded && runs_ > seeds_ && peak_kilobytes() - before > kMostKilobytes) {
      broken("it took " + std::to_string((peak_kilobytes() - before) / 1024) + " MB");
    }
    const bool is_new = outcomes_.insert(outcome).second && runs_ > seeds_;
    if (is_new && pool_.size() < kMostFound + seeds_) pool_.push_back(input.bytes);
    return outcome;
  }

  const FileTarget& target_;
  Running& running_;
  Random random_;
  std::vector<std::string> pool_ = {};
  std::size_t seeds_ = 0;
  uint64_t runs_ = 0, read_ = 0;
  std::set<std::string> outcomes_ = {};
};

const FileTarget& target_of(const std::string& name) {
  for (const FileTarget& target : keras_targets()) {
    if (name == target.name) return target;
  }
  std::cerr << "keras_fuzz: expected a target, got \"" << name << "\"\n";
  std::exit(2);
}

// Its exit code, or that it crashed, or did not come to an end.
std::string fate_of(pid_t child, const Running& running) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  ::clock_getcpuclockid(child, &clock);
  uint64_t seen = 0;
  double begin = 0;
  auto since = Clock::now();
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (running.number != seen) {
      seen = running.number;
      since = Clock::now();
      begin = seconds_of(clock);
      continue;
    }
    const bool waits = Clock::now() - since > kMostWaiting;
    if (!waits && seconds_of(clock) - begin < (seen == 0 ? kMostSecondsOfSeeds : kMostSeconds)) {
      continue;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return seen == 0 ? "the seeds were not made in time"
           : waits   ? "it waited for what did not come"
                     : "it took more than " + std::to_string(static_cast<int>(kMostSeconds)) +
                         " seconds of a processor";
  }
  if (WIFSIGNALED(status)) return std::string("it ended by ") + ::strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "it ended with " + std::to_string(WEXITSTATUS(status));
  return "";
}

int main_of(int argc, char** argv) {
  if (argc < 3) return std::cerr << "keras_fuzz: expected TARGET FOLDER [INPUT...]\n", 2;
  const FileTarget& target = target_of(argv[1]);
  std::vector<std::string> given;
  for (int i = 3; i < argc; ++i) {
    given.push_back(internal::checkpoint::InputFile("keras_fuzz", argv[i]).read_all(kLongest));
  }
  void* shared =
      ::mmap(nullptr, sizeof(Running), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& running = *new (shared) Running;
  const fs::path work = work_folder();
  const pid_t child = ::fork();
  if (child == 0) {
    Fuzz(target, running).run_all(given);
    ::_exit(0);  // libhdf5 complains at an exit of what its own errors have leaked
  }
  const std::string fate = fate_of(child, running);
  fs::remove_all(work);
  if (fate.empty()) return 0;
  if (running.number == 0) {
    std::cerr << "keras_fuzz: " << fate << "\n";
    return 1;
  }
  const std::string_view input(running.bytes, running.size);
  const fs::path folder = fs::path(argv[2]) / target.name;
  fs::create_directories(folder);
  const std::string path = folder / ("input-" + std::to_string(internal::base::crc32c(input)));
  std::ofstream(path, std::ios::binary) << input;
  std::cerr << "keras_fuzz: " << fate << ", of " << path << "\n";
  return 1;
}

}  // namespace
}  // namespace cohort::fuzz

int main(int argc, char** argv) { return cohort::fuzz::main_of(argc, argv); }
