// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/checkpoint_manager.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>

#include "cohort/base/check.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/handle.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/checkpoint_state.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/saved_values.h"
#include "cohort/checkpoint/internal/several_writers.h"
#include "cohort/checkpoint/internal/temporary.h"
#include "cohort/checkpoint/internal/worker_values.h"
#include "cohort/runtime/task_thread.h"

namespace cohort {
namespace {

using internal::checkpoint::CheckpointState;
using internal::checkpoint::KeptCheckpoint;
using internal::checkpoint::SavedValues;

constexpr const char* kManagerSave = "checkpoint_manager.save";
constexpr const char* kRestoreLatest = "checkpoint_manager.restore_latest";
constexpr int kMostReads = 10;

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

void check_options(const std::string& directory, const CheckpointManagerOptions& options) {
  COHORT_CHECK_ARG(!directory.empty(), "[checkpoint_manager] expected a directory, got none");
  COHORT_CHECK_ARG(options.max_to_keep.value_or(1) > 0,
                   "[checkpoint_manager] expected max_to_keep of 1 or more, got ",
                   options.max_to_keep.value_or(1));
  const std::string& name = options.checkpoint_name;
  const bool plain = !name.empty() && name.front() != '.' &&
                     std::none_of(name.begin(), name.end(),
                                  [](char c) { return c == '/' || (c >= 0 && c < ' '); });
  COHORT_CHECK_ARG(plain && !internal::checkpoint::is_temporary(name),
                   "[checkpoint_manager] expected a checkpoint_name that can be a folder's, got \"",
                   name, "\"");
}

std::vector<std::string> existing(const std::string& directory, const std::string& name = {}) {
  std::vector<std::string> out;
  for (const KeptCheckpoint& kept :
       internal::checkpoint::kept_of(internal::checkpoint::read_state(directory, name), name)) {
    std::string path = directory + "/" + kept.name;
    if (internal::checkpoint::is_checkpoint(path)) out.push_back(std::move(path));
  }
  return out;
}

}  // namespace

class CheckpointManager::Impl {
 public:
  Impl(Checkpoint checkpoint, std::string directory, CheckpointManagerOptions options)
      : checkpoint_(std::move(checkpoint)),
        directory_(std::move(directory)),
        options_(std::move(options)) {
    check_options(directory_, options_);
    while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
    known_ = internal::checkpoint::checkpoints_in(directory_, options_.checkpoint_name);
  }

  ~Impl() {
    writer_.reset();
    if (error_ == nullptr) return;
    try {
      std::rethrow_exception(error_);
    } catch (const std::exception& e) {
      COHORT_LOG(kError, "[checkpoint_manager] the last checkpoint was not written: ", e.what());
    }
  }

  std::string save(std::optional<int64_t> number) {
    COHORT_CHECK_ARG(number.value_or(0) >= 0, "[", kManagerSave, "] expected a number >= 0, got ",
                     number.value_or(0));
    const auto all = checkpoint_.group(kManagerSave);
    std::string path;
    internal::checkpoint::together(all.get(), kManagerSave, [&] {
      path = internal::checkpoint::from_chief(all.get(), save_here(number, all.get()));
    });
    return path;
  }

  void wait() {
    const auto all = checkpoint_.group(kManagerSave);
    internal::checkpoint::together(all.get(), kManagerSave, [&] {
      internal::checkpoint::on_chief(all.get(), [&] { wait_here(); });
    });
  }

  bool restore_latest(const RestoreOptions& options) {
    const auto all = checkpoint_.group(kRestoreLatest);
    if (all == nullptr)
      return restore_one([&](const std::string& path) { checkpoint_.restore(path, options); });
    bool found = false;
    internal::checkpoint::together(all.get(), kRestoreLatest, [&] {
      SavedValues saved;
      std::string from;
      if (internal::checkpoint::is_chief(all.get())) {
        restore_one([&](const std::string& path) {
          saved = internal::checkpoint::read_checkpoint(path, !options.allow_partial);
          from = path;
        });
      }
      from = internal::checkpoint::from_chief(all.get(), from);
      found = !from.empty();
      if (!found) return;
      checkpoint_.restore_values(internal::checkpoint::from_chief(all.get(), std::move(saved)),
                                 from, options, all.get());
    });
    return found;
  }

  const std::string& directory() const { return directory_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  void add(const std::string& name, const TrackableRef& object) {
    checkpoint_ = checkpoint_.with(name, object);
  }
  std::vector<std::string> checkpoints() const {
    return existing(directory_, options_.checkpoint_name);
  }

 private:
  /// A checkpoint on its way to its name.
  struct Saving {
    Saving(const std::string& directory, std::string folder, bool is_given)
        : name(std::move(folder)),
          is_numbered_by_caller(is_given),
          checkpoint(directory + "/" + name) {}
    std::string name;
    const bool is_numbered_by_caller;
    internal::checkpoint::NewCheckpoint checkpoint;
  };

  // This process's part; the path where the chief writes, elsewhere empty.
  std::string save_here(std::optional<int64_t> number, internal::checkpoint::SavingGroup* group) {
    const bool is_chief = internal::checkpoint::is_chief(group);
    if (is_chief) {
      wait_here();
      internal::checkpoint::remove_temporaries(directory_, [&](std::string_view base) {
        return base == internal::checkpoint::kStateName || is_own(base);
      });
    }
    const bool background = !internal::checkpoint::from_chief(
                                 group, std::string(options_.background ? "background" : ""))
                                 .empty();
    const bool copies = is_chief && background;
    SavedValues values = checkpoint_.values(
        kManagerSave, copies ? Checkpoint::Memory::kOwn : Checkpoint::Memory::kShared);
    // Threads that write behind the program could not meet those of other workers.
    if (background) internal::checkpoint::gather_spread(values);
    std::shared_ptr<Saving> saving = is_chief ? begin(number) : nullptr;
    std::string path = is_chief ? path_of(saving->name) : std::string();
    if (background) {
      if (is_chief) write_behind(std::move(saving), std::move(values));
      return path;
    }
    internal::checkpoint::write_together(group, is_chief ? &saving->checkpoint : nullptr,
                                         directory_, values);
    if (!is_chief) return path;
    publish_and_sweep(*saving);
    return path_of(saving->name);
  }

  void write_behind(std::shared_ptr<Saving> saving, SavedValues values) {
    writer_ = std::make_unique<internal::runtime::TaskThread>(
        "checkpoint", [this, saving = std::move(saving),
                       values = std::move(values)](const std::stop_token&) mutable {
          try {
            saving->checkpoint.write(values);
            publish_and_sweep(*saving);
            saving.reset();
          } catch (...) {
            error_ = std::current_exception();  // read after the thread has ended
          }
        });
  }

  void wait_here() {
    writer_.reset();
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // The newest that can be; false: there is none.
  bool restore_one(internal::base::FunctionRef<void(const std::string& path)> restore_from) {
    writer_.reset();
    std::vector<KeptCheckpoint> kept;
    std::string newest_error;
    // Another process may have saved newer ones meanwhile, and removed what was about to be read.
    for (int i = 0; i < kMostReads; ++i) {
      std::vector<KeptCheckpoint> now = kept_now();
      if (now.empty()) return false;
      if (i > 0 && now.back().name == kept.back().name) break;
      kept = std::move(now);
      newest_error.clear();
      for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
        if (restore(*it, restore_from, newest_error)) return true;
      }
    }
    throw DataLoss(str_cat("[checkpoint_manager.restore_latest] ", directory_, ": expected one of ",
                           kept.size(),
                           " checkpoints to be whole, got none; the newest: ", newest_error));
  }

  bool is_own(std::string_view folder) const {
    return internal::checkpoint::is_numbered(folder, options_.checkpoint_name);
  }
  std::string path_of(const std::string& name) const { return directory_ + "/" + name; }
  std::string name_of(int64_t number) const {
    return str_cat(options_.checkpoint_name, "-", number);
  }
  internal::checkpoint::FolderLock lock() const {
    return {kManagerSave, path_of(internal::checkpoint::kStateName) + ".lock"};
  }
  std::vector<KeptCheckpoint> kept_now() const {
    return internal::checkpoint::kept_of(
        internal::checkpoint::read_state(directory_, options_.checkpoint_name),
        options_.checkpoint_name);
  }

  // Nobody else takes a number for which there is a temporary folder.
  std::shared_ptr<Saving> begin(std::optional<int64_t> number) const {
    internal::checkpoint::make_folders(kManagerSave, directory_);
    const internal::checkpoint::FolderLock locked = lock();
    return std::make_shared<Saving>(directory_, name_of(number ? *number : next_number()),
                                    number.has_value());
  }

  int64_t next_number() const {
    int64_t last = internal::checkpoint::greatest_number(directory_, options_.checkpoint_name);
    for (const KeptCheckpoint& kept : kept_now()) {
      last = std::max(last, internal::checkpoint::number_of(kept.name).value_or(0));
    }
    return after(last);
  }

  int64_t after(int64_t number) const {
    if (number == std::numeric_limits<int64_t>::max()) {
      throw Error(ErrorCode::kOutOfRange,
                  str_cat("[", kManagerSave, "] expected a number after that of ", name_of(number),
                          ", the greatest there is, got none: give save() a number, or the "
                          "manager another checkpoint_name"));
    }
    return number + 1;
  }

  void publish_and_sweep(Saving& saving) {
    std::vector<std::string> to_remove;
    {
      const internal::checkpoint::FolderLock locked = lock();
      CheckpointState state = existing_state();
      publish(saving, state);
      to_remove = sweep(saving.name, state);
    }
    std::error_code ignored;
    for (const std::string& path : to_remove) std::filesystem::remove_all(path, ignored);
  }

  void publish(Saving& saving, CheckpointState& state) {
    using IfTaken = internal::checkpoint::NewCheckpoint::IfTaken;
    for (;;) {
      const std::string path = path_of(saving.name);
      const auto there = internal::checkpoint::checkpoint_id(path);
      const auto known = known_.find(saving.name);
      // One that somebody else has put there meanwhile is not this manager's to replace.
      const bool replace =
          saving.is_numbered_by_caller && there && known != known_.end() && known->second == *there;
      const bool may_have_it = replace || !is_taken(path);
      if (may_have_it) announce(saving.name, state);
      const auto if_taken = replace ? IfTaken::kReplace : IfTaken::kRefuse;
      if (may_have_it && saving.checkpoint.publish(path, if_taken)) break;
      if (saving.is_numbered_by_caller) {
        throw Error(ErrorCode::kAlreadyExists,
                    str_cat("[", kManagerSave, "] expected ", path,
                            " to be free, or a checkpoint that was there before this manager or "
                            "that it saved itself, got ",
                            there ? "one that somebody else has saved meanwhile" : "something else",
                            ": save with another number"));
      }
      saving.name = name_of(after(*internal::checkpoint::number_of(saving.name)));
      if (options_.background) {
        COHORT_LOG(kWarning, "[", kManagerSave, "] ", path, " is taken: saving as ", saving.name);
      }
    }
    if (const auto id = internal::checkpoint::checkpoint_id(path_of(saving.name)))
      known_[saving.name] = *id;
  }

  static bool is_taken(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
  }

  CheckpointState existing_state() const {
    CheckpointState state = internal::checkpoint::read_state(directory_, options_.checkpoint_name);
    std::erase_if(state.kept, [&](const KeptCheckpoint& kept) {
      return is_own(kept.name) && !internal::checkpoint::is_checkpoint(path_of(kept.name));
    });
    return state;
  }

  // Named before it is there, as one that is not the newest: should this end in between, it is one
  // of those that max_to_keep removes, and not forgotten.
  void announce(const std::string& name, CheckpointState& state) const {
    const bool is_named = std::any_of(state.kept.begin(), state.kept.end(),
                                      [&](const auto& kept) { return kept.name == name; });
    if (state.kept.empty() || is_named) return;
    state.kept.insert(state.kept.end() - 1, {name, now()});
    internal::checkpoint::write_state(directory_, state);
    internal::base::failpoint("manager.announced");
  }

  // Names it as the newest. Returns what is to be removed, which has lost its name.
  std::vector<std::string> sweep(const std::string& newest, CheckpointState& state) {
    std::erase_if(state.kept, [&](const auto& kept) { return kept.name == newest; });
    double& preserved = state.last_preserved[options_.checkpoint_name];
    if (preserved == 0) preserved = now();
    state.kept.push_back({newest, now()});
    // Named before older ones go, and those named until they have gone: whenever this ends, the
    // newest is whole, and nothing is left that nobody would remove.
    internal::checkpoint::write_state(directory_, state);
    internal::base::failpoint("manager.named");
    std::vector<std::string> out;
    const std::vector<KeptCheckpoint> old = beyond_most(state, newest);
    for (const KeptCheckpoint& oldest : old) {
      std::erase_if(state.kept, [&](const auto& kept) { return kept.name == oldest.name; });
      if (is_to_preserve(oldest, preserved)) {
        preserved = oldest.timestamp;
      } else if (std::string path = internal::checkpoint::take_name(path_of(oldest.name));
                 !path.empty()) {
        out.push_back(std::move(path));
      }
    }
    if (!old.empty()) internal::checkpoint::write_state(directory_, state);
    return out;
  }

  bool is_to_preserve(const KeptCheckpoint& kept, double last_preserved) const {
    if (!options_.keep_every) return false;
    return kept.timestamp - static_cast<double>(options_.keep_every->count()) >= last_preserved;
  }

  // All that is older than the last max_to_keep whole ones.
  std::vector<KeptCheckpoint> beyond_most(const CheckpointState& state, const std::string& newest) {
    std::vector<KeptCheckpoint> own =
        internal::checkpoint::kept_of(state, options_.checkpoint_name);
    if (!options_.max_to_keep) return {};
    const auto most = static_cast<std::size_t>(*options_.max_to_keep);
    if (own.size() <= most) return {};
    std::size_t whole = 0;
    while (!own.empty() && whole < most) {
      if (is_whole(own.back().name, newest)) ++whole;
      own.pop_back();
    }
    return own;  // none if there are fewer
  }

  bool is_whole(const std::string& name, const std::string& newest) {
    if (name == newest) return true;
    const std::string why = internal::checkpoint::damage_of(path_of(name), read_[name]);
    if (why.empty()) return true;
    COHORT_LOG(kWarning, "[", kManagerSave, "] ", name,
               " does not count among those to keep, since it cannot be restored: ", why);
    return false;
  }

  bool restore(const KeptCheckpoint& kept,
               internal::base::FunctionRef<void(const std::string& path)> restore_from,
               std::string& newest_error) const {
    try {
      restore_from(path_of(kept.name));
      return true;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kDataLoss && e.code() != ErrorCode::kNotFound) throw;
      COHORT_LOG(kWarning, "[checkpoint_manager.restore_latest] passing over ", kept.name, ": ",
                 e.what());
      if (newest_error.empty()) newest_error = e.what();
      return false;
    }
  }

  Checkpoint checkpoint_;
  std::string directory_;
  const CheckpointManagerOptions options_;
  /// What was there before this manager, and what it saved: save(number) may replace these.
  std::map<std::string, internal::checkpoint::CheckpointId> known_;
  std::map<std::string, int64_t> read_;                    // by checkpoint: see damage_of
  std::exception_ptr error_;                               // of writer_, before it is reset
  std::unique_ptr<internal::runtime::TaskThread> writer_;  // its end is its work's
};

CheckpointManager::CheckpointManager(Checkpoint checkpoint, std::string directory,
                                     CheckpointManagerOptions options)
    : impl_(std::make_shared<Impl>(std::move(checkpoint), std::move(directory),
                                   std::move(options))) {}

void CheckpointManager::add(const std::string& name, const TrackableRef& object) {
  internal::base::held(impl_, "CheckpointManager")->add(name, object);
}
std::shared_ptr<internal::checkpoint::SavingGroup> CheckpointManager::group(
    const char* operation) const {
  return internal::base::held(impl_, "CheckpointManager")->checkpoint().group(operation);
}

std::string CheckpointManager::save(std::optional<int64_t> number) {
  return internal::base::held(impl_, "CheckpointManager")->save(number);
}
void CheckpointManager::wait() { internal::base::held(impl_, "CheckpointManager")->wait(); }
bool CheckpointManager::restore_latest(const RestoreOptions& options) const {
  return internal::base::held(impl_, "CheckpointManager")->restore_latest(options);
}
const std::string& CheckpointManager::directory() const {
  return internal::base::held(impl_, "CheckpointManager")->directory();
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  return internal::base::held(impl_, "CheckpointManager")->checkpoints();
}
std::optional<std::string> CheckpointManager::latest_checkpoint() const {
  const std::vector<std::string> all = checkpoints();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<std::string> latest_checkpoint(const std::string& directory) {
  const std::vector<std::string> all = existing(directory);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

}  // namespace cohort
