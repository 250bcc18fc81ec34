// SPDX-License-Identifier: Apache-2.0
//
// The contenders of gpu_bench in turns. Each is a process; those that compile have one for each
// task, all started at once, so that they compile side by side before anything is timed.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu_tasks.h"
#include "process.h"

namespace cohort::bench {

struct GpuContenderSpec {
  std::string name;
  std::string family;  ///< "cohort", "torch" or "jax".
  std::string kind;    ///< What the contender's program is told.
  bool compiles = false;
  std::string only_task = {};  ///< Empty: takes part in all.
};

/// All contenders, in the tables' order.
const std::vector<GpuContenderSpec>& gpu_contenders();

struct GpuOptions {
  std::vector<std::string> tasks;       ///< Empty: all but "..._f32".
  std::vector<std::string> contenders;  ///< Empty: all; see `captured`.
  std::string device = "GPU:0";
  bool tiny = false;
  bool captured = false;  ///< Those that are told to capture, and not to, take part, too.
  bool list = false;
  int samples = 5;
  double seconds = 0.12;     ///< A sample.
  int start_seconds = 110;   ///< Who has not compiled by then is left out.
  int limit_seconds = 225;   ///< The whole run: no task is begun just before, none goes on after.
  std::string peers;         ///< The folder of the Python peers.
  std::string torch_python;  ///< The interpreters; empty: that of peers/setup, else python3.
  std::string jax_python;
  std::string json;
  std::string logs;
};

struct GpuSample {
  std::int64_t steps = 0;
  double us = 0;       ///< A step.
  double host_us = 0;  ///< Of it, until the host was done with it; 0: not known.
};

/// What came of one contender in one task.
struct GpuEntry {
  GpuContenderSpec spec = {};
  std::string versions = {};
  std::string failure = {};  ///< Why there are no samples, or fewer; empty: there are.
  std::vector<double> curve = {};
  double difference = 0;  ///< The largest of curve, of the median's size.
  std::int64_t steps = 0;
  std::vector<GpuSample> samples = {};
  double kernels_us = 0;  ///< The sum of its kernels, by the profiler; 0: not known.
};

struct GpuTable {
  GpuTask task = {};
  std::string failure = {};  ///< Why the task was left out.
  std::vector<GpuEntry> entries = {};
};

/// Adam's update of one large variable beside a copy within the device.
struct GpuUpdate {
  std::string failure = {};
  double update_gbytes = 0;  ///< A second, read and written.
  double copy_gbytes = 0;    ///< Likewise.
  double share() const { return copy_gbytes > 0 ? update_gbytes / copy_gbytes : 0; }
};

/// Threads: used by one thread.
class GpuRounds {
 public:
  GpuRounds(const GpuOptions& options, std::vector<GpuTask> tasks,
            std::vector<GpuContenderSpec> contenders, std::string scratch);

  /// Starts the processes, writes the tasks' files, and waits for those that compile.
  void start();
  // Errors of these: none: what fails is told in what they return.
  GpuTable measure(const GpuTask& task);
  GpuUpdate measure_update();

 private:
  using Clock = std::chrono::steady_clock;
  struct Lane {
    std::unique_ptr<ContenderProcess> process;
    std::string log, versions, failure;
    bool has_greeted = false;
    bool is_ready = false;  // its init was answered
  };

  static bool takes_part(const GpuContenderSpec& spec, const GpuTask& task);
  std::string folder(const GpuTask& task) const;
  Lane& lane(const GpuContenderSpec& spec, const GpuTask& task);
  void launch(Lane& lane, const GpuContenderSpec& spec, const std::string& log_name);
  std::vector<std::string> command(const GpuContenderSpec& spec) const;
  static std::vector<std::string> variables(const GpuContenderSpec& spec, bool is_large);
  static std::string ask(Lane& lane, const std::string& line, std::chrono::seconds limit);
  static std::string answer(Lane& lane, std::chrono::seconds limit);
  static std::string failure_of(const Lane& lane, const std::exception& error);
  static void end(Lane& lane);
  template <class Work>
  void guarded(GpuEntry& entry, const GpuTask& task, const Work& work);
  void prepare(GpuTable& table);
  void sample_all(GpuTable& table);
  void ask_for_kernels(GpuEntry& entry, const GpuTask& task);
  void finish(GpuEntry& entry, const GpuTask& task);
  double seconds_since_start() const;
  std::chrono::seconds left_until(double end) const;
  std::chrono::seconds at_most(std::chrono::seconds limit) const;

  const GpuOptions& options_;
  const std::vector<GpuTask> tasks_;
  const std::vector<GpuContenderSpec> contenders_;
  const std::string scratch_;
  const Clock::time_point began_ = Clock::now();
  std::map<std::string, Lane> lanes_;
};

/// Sets every entry's difference.
void compare_curves(GpuTable& table);

}  // namespace cohort::bench
