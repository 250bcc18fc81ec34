// SPDX-License-Identifier: Apache-2.0
#include "cohort/strategy/preemption_checkpoint_handler.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <stop_token>
#include <thread>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/base/termination.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/cluster/cluster_resolver.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHandler = "[preemption_checkpoint_handler] ";
constexpr std::chrono::seconds kWatchEvery{1};
// What workers tell each other ahead of a run: counts of those to whom it applies.
constexpr int64_t kPreempted = 1;
constexpr int64_t kOutOfTime = int64_t{1} << 32;

std::string name_of(const std::shared_ptr<ClusterResolver>& resolver) {
  if (resolver == nullptr || !resolver->task_type()) return "this process";
  const std::string type = *resolver->task_type();
  if (type == "ps") {
    throw Unimplemented(str_cat(kHandler, "expected a chief or worker, got a parameter server"));
  }
  return resolver->task_id() ? str_cat(type, " ", *resolver->task_id()) : type;
}

CheckpointManager manager_of(const Checkpoint& checkpoint, std::string folder) {
  COHORT_CHECK_ARG(!folder.empty(), kHandler,
                   "expected a checkpoint_dir with the Checkpoint, got an empty one");
  return {checkpoint, std::move(folder), {.max_to_keep = 1}};
}

}  // namespace

class PreemptionCheckpointHandler::Impl {
 public:
  Impl(const std::shared_ptr<ClusterResolver>& resolver, CheckpointManager manager,
       TerminationConfig config)
      : name_(name_of(resolver)),
        config_(std::move(config)),
        manager_(std::move(manager)),
        group_(manager_.group("preemption_checkpoint_handler")) {
    manager_.add("total_run_calls", tracked_count());
    if (manager_.restore_latest()) {
      COHORT_LOG(kInfo, kHandler, "going on from ", manager_.directory(), " after ", *runs_,
                 " runs");
    }
    watch();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  // The loop is over, so the program is nearly where SIGTERM wants it: it ends as it likes.
  ~Impl() {
    if (!watcher_->has_fired()) return;
    watcher_->answer();
    if (saved_) return;
    COHORT_LOG(
        kWarning, kHandler, name_, " is about to be ended, and learned it after the last of ",
        *runs_,
        " runs, so nothing is saved; call save_checkpoint_if_preempted() once more after the "
        "loop to save then, too");
  }

  int64_t runs() const { return *runs_; }
  void count_run() { ++*runs_; }

  void save_if_preempted() {
    find_group();
    const int64_t here = news_here();
    const int64_t all = group_ == nullptr ? here : group_->sum(here);
    ++calls_;
    if (all == 0) [[likely]]
      return;
    if (!saved_) {
      COHORT_LOG(kWarning, kHandler, here > 0 ? name_ : std::string("another worker"),
                 " is about to be ended: saving after ", *runs_, " runs");
      save();
      saved_ = true;
      if (config_.grace_period.count() > 0) return;
    } else if (all < kOutOfTime) {
      return;
    } else {
      save();
    }
    end();
  }

 private:
  /// Whether this process is about to lose its machine.
  class Watcher {
   public:
    explicit Watcher(std::function<bool()> asked) {
      if (asked == nullptr) {
        signal_.emplace();
        return;
      }
      thread_ = std::jthread([this, asked = std::move(asked)](const std::stop_token& stop) {
        internal::base::Mutex mutex;  // nobody else's: waiting asks for one
        std::condition_variable_any stopped;
        const internal::base::MutexLock lock(mutex);
        while (!stop.stop_requested()) {
          if (ask(asked)) return;
          stopped.wait_for(mutex, stop, kWatchEvery, [] { return false; });
        }
      });
    }
    bool has_fired() const { return fired_.load() || (signal_ && signal_->has_come()); }
    void answer() const {
      if (signal_) signal_->answer();
    }

   private:
    bool ask(const std::function<bool()>& asked) {
      try {
        if (!asked()) return false;
      } catch (const std::exception& e) {
        COHORT_LOG(kError, kHandler, "termination_watcher_fn is not asked any more: ", e.what());
        return true;
      }
      fired_.store(true);
      return true;
    }

    std::optional<internal::base::TerminationSignal> signal_;
    std::atomic<bool> fired_{false};
    std::jthread thread_;  // last: it uses the others
  };

  // The manager may live longer than this.
  TrackableRef tracked_count() const {
    return trackable_value({.dtype = kInt64,
                            .shape = Shape{},
                            .read = [runs = runs_] { return full({}, 0, kInt64).fill_(*runs); },
                            .write = [runs = runs_](const Tensor& x) { *runs = x.item<int64_t>(); },
                            .identity = runs_.get()});
  }

  void watch() {
    watcher_ = std::make_unique<Watcher>(config_.termination_watcher_fn);
    saved_ = false;
    noticed_.reset();
    calls_ = 0;
    began_ = Clock::now();
  }

  // Layers make their weights in the first run or later ones; before, nothing that is saved says
  // who the other workers are. Seldom, for a process that is alone looks in vain.
  void find_group() {
    const int64_t asked = ++asked_;
    const bool is_power_of_two = (asked & (asked - 1)) == 0;
    if (group_ == nullptr && is_power_of_two) {
      group_ = manager_.group("preemption_checkpoint_handler");
    }
  }

  int64_t news_here() {
    if (!watcher_->has_fired()) return 0;
    const Clock::time_point now = Clock::now();
    if (!noticed_) noticed_ = now;
    // As TensorFlow: two runs, and thrice that for the save.
    const auto mean = (now - began_) / std::max<int64_t>(calls_, 1);
    const bool out_of_time = now + 6 * mean >= *noticed_ + config_.grace_period;
    return kPreempted + (out_of_time ? kOutOfTime : 0);
  }

  void save() {
    if (config_.save_fn) return config_.save_fn();
    manager_.save();
    manager_.wait();
  }

  void end() {
    internal::checkpoint::leave_together(group_.get());
    watcher_->answer();
    if (!config_.exit_fn) internal::base::exit_now(internal::base::kTerminatedExitCode);
    config_.exit_fn();
    watch();  // the loop goes on, and the next time is another one
  }

  const std::string name_;
  const TerminationConfig config_;
  const std::shared_ptr<int64_t> runs_ = std::make_shared<int64_t>(0);
  CheckpointManager manager_;
  std::shared_ptr<internal::checkpoint::SavingGroup> group_;  // null: none that is known yet
  int64_t asked_ = 0;                                         // how often, by all workers
  std::unique_ptr<Watcher> watcher_;
  bool saved_ = false;
  std::optional<Clock::time_point> noticed_;  // here
  int64_t calls_ = 0;                         // since began_
  Clock::time_point began_;
};

PreemptionCheckpointHandler::PreemptionCheckpointHandler(
    std::shared_ptr<ClusterResolver> cluster_resolver, const Checkpoint& checkpoint,
    std::string checkpoint_dir, TerminationConfig config)
    : PreemptionCheckpointHandler(std::move(cluster_resolver),
                                  manager_of(checkpoint, std::move(checkpoint_dir)),
                                  std::move(config)) {}

PreemptionCheckpointHandler::PreemptionCheckpointHandler(
    std::shared_ptr<ClusterResolver> cluster_resolver, CheckpointManager manager,
    TerminationConfig config)
    : impl_(std::make_shared<Impl>(cluster_resolver, std::move(manager), std::move(config))) {}

void PreemptionCheckpointHandler::save_checkpoint_if_preempted() {
  internal::base::held(impl_, "PreemptionCheckpointHandler")->save_if_preempted();
}
int64_t PreemptionCheckpointHandler::total_run_calls() const {
  return internal::base::held(impl_, "PreemptionCheckpointHandler")->runs();
}
void PreemptionCheckpointHandler::count_run() {
  internal::base::held(impl_, "PreemptionCheckpointHandler")->count_run();
}

}  // namespace cohort
