// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/internal/local_strategy.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/collectives/worker_layout.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/memory.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/thread_state.h"
#include "cohort/variables/local_variables.h"
#include "cohort/variables/step_undo.h"

namespace cohort::internal::strategy {
namespace {

void check_there(const std::string& name, const Device& device) {
  runtime::check_supported(name.c_str(), "devices", device);
  if (device.kind() != DeviceKind::kGpu) return;
  const std::vector<Device> there = list_devices(DeviceKind::kGpu);
  const bool is_there = std::any_of(
      there.begin(), there.end(), [&](const Device& one) { return one.index() == device.index(); });
  COHORT_CHECK_ARG(is_there, name, "expected one of ", there.front().short_name(), " ... ",
                   there.back().short_name(), ", got ", device.short_name());
}

// One reads what another has only by copies, as between a CPU and a GPU.
bool are_apart(const std::vector<Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [&](const Device& one) {
    return !runtime::share_memory(devices.front(), one);
  });
}

// Replicas compute with leaves over the one copy.
void check_one_memory(const LocalStrategyOptions& options) {
  for (const Device& device : options.devices) {
    if (runtime::share_memory(device, *options.parameter_device)) continue;
    throw Unimplemented(str_cat(
        "[", options.name,
        "] expected compute devices that share the memory of the parameter "
        "device ",
        options.parameter_device->short_name(), ", got ", device.short_name(),
        ", which would have to copy all parameters at each use: keep them with .parameter_device = "
        "\"",
        device.short_name(), "\", or use MirroredStrategy"));
  }
}

LocalStrategyOptions checked(LocalStrategyOptions options) {
  const std::string name = str_cat("[", options.name, "] ");
  if (options.parameter_device) check_there(name, *options.parameter_device);
  for (std::size_t i = 0; i < options.devices.size(); ++i) {
    const Device& device = options.devices[i];
    check_there(name, device);
    const auto first = std::find(options.devices.begin(), options.devices.end(), device);
    COHORT_CHECK_ARG(static_cast<std::size_t>(first - options.devices.begin()) == i, "[",
                     options.name, "] expected each device once, got ", device.short_name(),
                     " twice");
  }
  COHORT_CHECK_ARG(!options.devices.empty(), "[", options.name,
                   "] expected at least 1 device, got none");
  COHORT_CHECK_ARG(options.intra_op_threads >= 0, "[", options.name,
                   "] expected intra_op_threads >= 1, or 0 for the cores' share, got ",
                   options.intra_op_threads);
  if (options.parameter_device) check_one_memory(options);
  if (!options.cross_device_ops && are_apart(options.devices)) {
    options.cross_device_ops = std::make_shared<ReductionToOneDevice>();
  }
  return options;
}

runtime::ReplicaGroupOptions group_options(const LocalStrategyOptions& options) {
  const int replicas = static_cast<int>(options.devices.size());
  // The default strategy leaves LibTorch's threads as the program set them.
  const int threads = options.is_default
                          ? 0
                          : runtime::intra_op_threads_of_replica(options.intra_op_threads,
                                                                 replicas * options.workers_here);
  return {.replicas = replicas, .intra_op_threads = threads, .devices = options.devices};
}

ReplicaLayout layout_of(const LocalStrategyOptions& options) {
  const int local = static_cast<int>(options.devices.size());
  return options.communicator != nullptr ? layout_of(*options.communicator, local)
                                         : ReplicaLayout(options.worker, options.workers, local);
}

variables::UpdateSchedule choose_schedule(runtime::ReplicaGroup& group, bool on_gpus) {
  if (const char* text = std::getenv("COHORT_UPDATE_SCHEDULE"); text != nullptr && *text != '\0') {
    const std::string name = text;
    COHORT_CHECK_ARG(name == "sharded" || name == "pull",
                     "[strategy] expected COHORT_UPDATE_SCHEDULE to be sharded or pull, got \"",
                     name, "\"");
    return name == "sharded" ? variables::UpdateSchedule::kSharded
                             : variables::UpdateSchedule::kPull;
  }
  // Of GPUs each update decides by its size.
  if (on_gpus) return variables::UpdateSchedule::kBySize;
  return group.cores_share_cache() ? variables::UpdateSchedule::kSharded
                                   : variables::UpdateSchedule::kPull;
}

bool are_gpus(const std::vector<Device>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const Device& device) { return device.kind() == DeviceKind::kGpu; });
}

bool wants_checked_copies(const LocalStrategyOptions& options) {
  const char* text = std::getenv("COHORT_CHECK_COPIES");
  if (text == nullptr || *text == '\0') return options.check_copies;
  const std::string value = text;
  COHORT_CHECK_ARG(value == "0" || value == "1",
                   "[strategy] expected COHORT_CHECK_COPIES to be 0 or 1, got \"", value, "\"");
  return options.check_copies || value == "1";
}

}  // namespace

LocalStrategy::LocalStrategy(LocalStrategyOptions options)
    : StrategyExtended(/*is_numbered=*/!options.is_default),
      options_(checked(std::move(options))),
      layout_(layout_of(options_)),
      others_(layout_.workers() > 1 ? options_.communicator.get() : nullptr),
      group_(std::make_unique<runtime::ReplicaGroup>(group_options(options_))),
      undo_(static_cast<std::size_t>(group_->size())),
      ops_(options_.cross_device_ops ? options_.cross_device_ops
                                     : std::make_shared<ReductionToOneDevice>()) {
  if (options_.is_default) {
    variables_ = variables::LocalVariables::default_instance();
    return;
  }
  if (layout_.workers() > 1 && options_.own_random_numbers) seeds_.emplace(layout_.local());
  runtime::install_caching_allocator();
  runtime::note_replica_threads(group_->intra_op_threads());
  variables::LocalVariablesOptions variables{
      .devices = options_.devices,
      .schedule = variables::UpdateSchedule::kPull,
      .cross_device_ops = options_.cross_device_ops,
      .group = group_.get(),
      .worker = layout_.worker(),
      .workers = layout_.workers(),
      .parameter_device = options_.parameter_device,
      .communicator = options_.communicator,
      .bytes_per_bucket = static_cast<std::size_t>(options_.bytes_per_pack),
      .bfloat16_gradients = options_.bfloat16_gradients && layout_.workers() > 1,
      .variable_options = options_.variable_options,
      .owner = description()};
  if (options_.parameter_device) variables.placement = variables::ParameterPlacement::kCentral;
  if (!options_.cross_device_ops) {
    variables.schedule = choose_schedule(*group_, are_gpus(options_.devices));
  }
  const auto made = std::make_shared<variables::LocalVariables>(std::move(variables));
  variables_ = made;
  if (group_->size() > 1 && wants_checked_copies(options_)) watched_ = made;
}

LocalStrategy::~LocalStrategy() = default;

const std::shared_ptr<LocalStrategy>& LocalStrategy::default_instance() {
  // Never destroyed: programs may call get_strategy() while statics die.
  static const auto& instance =
      *new std::shared_ptr<LocalStrategy>(std::make_shared<LocalStrategy>(LocalStrategyOptions{
          .name = "DefaultStrategy", .devices = {runtime::host_device()}, .is_default = true}));
  return instance;
}

std::vector<Device> LocalStrategy::do_parameter_devices() const {
  if (options_.parameter_device) return {*options_.parameter_device};
  return options_.devices;
}

int64_t LocalStrategy::do_sum_of_workers(int64_t here) {
  if (layout_.workers() == 1) return here;
  if (others_ == nullptr) return StrategyExtended::do_sum_of_workers(here);
  return collectives::sum_across(*others_, here);
}

void LocalStrategy::do_run(base::FunctionRef<void(int)> body) {
  // The function may let go of the last handle.
  const std::shared_ptr<StrategyExtended> alive = shared_from_this();
  others_ == nullptr ? run_here(body) : run_with_others(body);
}

// The replica that fails ends the run on all workers, who may be waiting for this one.
void LocalStrategy::run_with_others(base::FunctionRef<void(int)> body) {
  const auto replica_body = [&](int replica) {
    try {
      body(replica);
    } catch (const runtime::PeerFailed&) {
      throw;
    } catch (...) {
      const std::string where = str_cat("strategy.run, replica ", layout_.global_id(replica));
      others_->abort(std::current_exception(), where.c_str());
      throw;
    }
  };
  const auto run = [&] {
    // What replicas count without meeting may differ between workers after a failure of any of
    // them.
    if (std::exchange(generation_, others_->generation()) != others_->generation()) {
      group_->note_failed_run();
    }
    run_here(replica_body);
  };
  others_->take_turn("strategy.run", run, group_.get());
}

// LibTorch's error says how much of its own is in use, and nothing of what Cohort holds.
void LocalStrategy::run_replica(int replica, base::FunctionRef<void(int)> body) const {
  const Device& device = options_.devices[static_cast<std::size_t>(replica)];
  if (device.kind() == DeviceKind::kCpu) return body(replica);
  try {
    body(replica);
  } catch (const c10::OutOfMemoryError& e) {
    throw Error(
        ErrorCode::kResourceExhausted,
        str_cat("[strategy.run] replica ", layout_.global_id(replica), " on ", device.short_name(),
                " is out of memory: ", runtime::device_backend(device).memory_in_words(device),
                "; take a smaller batch or model (LibTorch: ", e.what_without_backtrace(), ")"));
  }
}

void LocalStrategy::run_here(base::FunctionRef<void(int)> body) {
  // The default strategy's run stays in default context: has_strategy() is false inside.
  runtime::ThreadContext context = runtime::current_context();
  context.kind =
      options_.is_default ? runtime::ContextKind::kDefault : runtime::ContextKind::kReplica;
  context.layout = layout_;
  context.workers = others_;
  make_current(context);
  if (group_->size() == 1) {
    variables::StepUndo undo;  // several threads may be in here
    context.undo = &undo;
    group_->run(
        context, [&](runtime::ThreadContext&) { run_replica(0, body); },
        [&](bool failed) {
          if (failed) undo.roll_back();
        });
    return;
  }
  const ThreadState state;
  group_->run(
      context,
      [&](runtime::ThreadContext& here) {
        std::optional<AdoptedThreadState> adopted;
        if (here.replica > 0) adopted.emplace(state);
        here.undo = &undo_[static_cast<std::size_t>(here.replica)];
        run_replica(here.replica, body);
      },
      [&](bool failed) {
        for (variables::StepUndo& undo : undo_) failed ? undo.roll_back() : undo.commit();
        // Here, where no other thread's run has begun: between its writes copies may differ.
        if (!failed && watched_) watched_->check_copies();
      });
}

}  // namespace cohort::internal::strategy
