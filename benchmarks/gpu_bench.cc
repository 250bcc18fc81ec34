// SPDX-License-Identifier: Apache-2.0
//
// Times a training step on a GPU beside PyTorch and JAX on the same one: the same models, weights
// and batches, and the same losses.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "cohort/runtime/device.h"
#include "gpu_contender.h"
#include "gpu_report.h"
#include "gpu_rounds.h"
#include "gpu_tasks.h"
#include "places.h"

namespace cohort::bench {
namespace {

constexpr int kNoGpu = 2;
constexpr int kOtherWork = 3;

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<GpuTask> chosen_tasks(const GpuOptions& options) {
  std::vector<GpuTask> out;
  for (const std::string& name : options.tasks) {
    if (name != "adam") out.push_back(find_gpu_task(name, options.tiny));
  }
  if (!options.tasks.empty()) return out;
  for (GpuTask& task : gpu_tasks(options.tiny)) {
    if (!task.name.ends_with("_f32")) out.push_back(std::move(task));
  }
  return out;
}

std::vector<GpuContenderSpec> chosen_contenders(const GpuOptions& options) {
  std::vector<std::string> names;
  std::vector<GpuContenderSpec> out;
  for (const GpuContenderSpec& spec : gpu_contenders()) {
    names.push_back(spec.name);
    const bool is_named = has(options.contenders, spec.name);
    const bool is_about_capture = spec.name == "cohort_captured" || spec.name == "cohort_fit_eager";
    const bool by_default = !is_about_capture || options.captured;
    if (options.contenders.empty() ? by_default : is_named) out.push_back(spec);
  }
  for (const std::string& name : options.contenders) {
    COHORT_CHECK_ARG(has(names, name), "[gpu_bench] there is no contender ", name,
                     "; --list has them all");
  }
  return out;
}

void print_list() {
  std::printf("tasks:\n");
  for (const GpuTask& task : gpu_tasks(false)) {
    std::printf("  %-18s %lld rows, %s, %s\n", task.name.c_str(),
                static_cast<long long>(task.batch), task.precision.c_str(), task.optimizer.c_str());
  }
  std::printf("  %-18s share of the device's copy bandwidth of the fused update\ncontenders:\n",
              "adam");
  for (const GpuContenderSpec& spec : gpu_contenders()) {
    std::printf("  %-22s%s%s\n", spec.name.c_str(), spec.only_task.empty() ? "" : " only in ",
                spec.only_task.c_str());
  }
}

// The interpreter of an environment that peers/setup made, else the machine's own.
std::string interpreter(const std::string& environment) {
  const Places places = default_places();
  if (!missing_environment(places, environment).empty()) return "python3";
  return places.environments + "/" + environment + "/bin/python";
}

// Where the sources were, else below the current folder, else beside the program.
std::string peers_folder(const Places& places) {
  namespace fs = std::filesystem;
  const std::string beside = fs::path(places.program).parent_path() / "peers";
  for (const std::string& folder : {places.peer_scripts, std::string("benchmarks/peers"), beside}) {
    if (fs::exists(folder + "/gpu_task.py")) return folder;
  }
  return places.peer_scripts;
}

GpuOptions with_defaults(GpuOptions options) {
  const Places places = default_places();
  if (options.peers.empty()) options.peers = peers_folder(places);
  if (options.torch_python.empty()) options.torch_python = interpreter("torch");
  if (options.jax_python.empty()) options.jax_python = interpreter("xla");
  if (options.json.empty()) options.json = places.program + ".json";
  if (options.logs.empty()) options.logs = places.program + "_logs";
  return options;
}

int run(const GpuOptions& given) {
  if (given.list) {
    print_list();
    return 0;
  }
  const Device device(given.device);
  if (device.kind() == DeviceKind::kGpu && list_devices(DeviceKind::kGpu).empty()) {
    std::fprintf(stderr, "gpu_bench: no GPU here\n");
    return kNoGpu;
  }
  const GpuOptions options = with_defaults(given);
  const std::vector<GpuTask> tasks = chosen_tasks(options);
  const ScratchFolder scratch("gpu_bench");
  GpuRounds rounds(options, tasks, chosen_contenders(options), scratch.path());
  rounds.start();
  GpuUpdate update;
  if (options.tasks.empty() || has(options.tasks, "adam")) {
    update = rounds.measure_update();
    std::fputs(gpu_update_line(update).c_str(), stdout);
  }
  std::vector<GpuTable> tables;
  write_gpu_json(options, tables, update);
  for (const GpuTask& task : tasks) {
    tables.push_back(rounds.measure(task));
    std::fputs(gpu_table(tables.back()).c_str(), stdout);
    std::fflush(stdout);
    write_gpu_json(options, tables, update);  // what there is, should the run be ended
  }
  std::printf("\nall samples are in %s, what contenders said in %s\n", options.json.c_str(),
              options.logs.c_str());
  bool equal = true;
  for (const GpuTable& table : tables) {
    for (const GpuEntry& entry : table.entries) {
      equal = equal && entry.difference <= table.task.tolerance;
    }
  }
  return equal ? 0 : kOtherWork;
}

void declare(CLI::App& app, GpuOptions& options) {
  app.add_option("--tasks", options.tasks, "Tasks, between commas (default: all)")->delimiter(',');
  app.add_option("--contenders", options.contenders, "Contenders, between commas (default: all)")
      ->delimiter(',');
  app.add_flag("--captured", options.captured, "Take cohort_captured and cohort_fit_eager along");
  app.add_flag("--list", options.list, "Print tasks and contenders");
  app.add_option("--device", options.device, "Where all train: GPU:0, or CPU:0 to try it out");
  app.add_flag("--tiny", options.tiny, "The same layers of small sizes");
  app.add_option("--samples", options.samples, "Samples of each contender")
      ->check(examples::at_least(1));
  app.add_option("--seconds", options.seconds, "Time of a sample")
      ->check(examples::at_least(0.001));
  app.add_option("--start-seconds", options.start_seconds,
                 "Contenders that have not compiled by then are left out")
      ->check(examples::at_least(1));
  app.add_option("--limit-seconds", options.limit_seconds, "Time of the whole run")
      ->check(examples::at_least(1));
  app.add_option("--peers", options.peers, "Folder of the Python peers");
  app.add_option("--torch-python", options.torch_python, "Interpreter that has PyTorch");
  app.add_option("--jax-python", options.jax_python, "Interpreter that has JAX");
  app.add_option("--json", options.json, "File for all samples");
  app.add_option("--logs", options.logs, "Folder for what contenders print");
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  if (argc == 4 && std::string(argv[1]) == "--contender") {
    return serve_gpu_contender(argv[2], argv[3]);
  }
  return examples::run_cli<GpuOptions>(
      argc, argv, "Times training steps on a GPU beside PyTorch and JAX.", declare,
      [](const GpuOptions& options) { return run(options); });
}
