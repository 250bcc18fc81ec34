// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/checkpoint_manager.h"

#include <algorithm>
#include <exception>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/checkpoint_state.h"
#include "cohort/checkpoint/internal/failpoint.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/internal/saved_values.h"
#include "cohort/runtime/task_thread.h"

namespace cohort {
namespace {

using internal::CheckpointState;
using internal::KeptCheckpoint;
using internal::SavedValues;

constexpr const char* kSave = "checkpoint_manager.save";

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
  COHORT_CHECK_ARG(plain && !internal::is_temporary(name),
                   "[checkpoint_manager] expected a checkpoint_name that can be a folder's, got \"",
                   name, "\"");
}

std::vector<std::string> existing(const std::string& directory, const std::string& name = {}) {
  std::vector<std::string> out;
  for (const KeptCheckpoint& kept : internal::read_state(directory, name).kept) {
    std::string path = directory + "/" + kept.name;
    if (internal::is_checkpoint(path)) out.push_back(std::move(path));
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
    COHORT_CHECK_ARG(number.value_or(0) >= 0, "[", kSave, "] expected a number >= 0, got ",
                     number.value_or(0));
    wait();
    internal::remove_temporaries(directory_, options_.checkpoint_name + "-");
    internal::remove_temporaries(directory_, std::string(internal::kStateName) + ".");
    const std::string name = str_cat(options_.checkpoint_name, "-", number.value_or(next_number()));
    const auto memory =
        options_.background ? Checkpoint::Memory::kOwn : Checkpoint::Memory::kShared;
    SavedValues values = checkpoint_.values(kSave, memory);
    if (!options_.background) {
      write(name, values);
    } else {
      writer_ = std::make_unique<internal::TaskThread>(
          "checkpoint", [this, name, values = std::move(values)](const std::stop_token&) {
            try {
              write(name, values);
            } catch (...) {
              error_ = std::current_exception();  // read after the thread has ended
            }
          });
    }
    return directory_ + "/" + name;
  }

  void wait() {
    writer_.reset();
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  bool restore_latest(const RestoreOptions& options) {
    writer_.reset();
    const std::vector<KeptCheckpoint> kept =
        internal::read_state(directory_, options_.checkpoint_name).kept;
    std::string newest_error;
    for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
      if (restore(*it, options, newest_error)) return true;
    }
    if (kept.empty()) return false;
    throw DataLoss(str_cat("[checkpoint_manager.restore_latest] ", directory_, ": expected one of ",
                           kept.size(),
                           " checkpoints to be whole, got none; the newest: ", newest_error));
  }

  const std::string& directory() const { return directory_; }
  std::vector<std::string> checkpoints() const {
    return existing(directory_, options_.checkpoint_name);
  }

 private:
  int64_t next_number() const {
    int64_t last = 0;
    for (const KeptCheckpoint& kept :
         internal::read_state(directory_, options_.checkpoint_name).kept) {
      last = std::max(last, internal::number_of(kept.name).value_or(0));
    }
    return last + 1;
  }

  void write(const std::string& name, const SavedValues& values) const {
    CheckpointState state = internal::read_state(directory_, options_.checkpoint_name);
    internal::write_checkpoint(directory_ + "/" + name, values);
    std::erase_if(state.kept, [&](const KeptCheckpoint& kept) { return kept.name == name; });
    if (state.last_preserved == 0) state.last_preserved = now();
    state.kept.push_back({name, now()});
    // Named before older ones go, and those named until they have gone: whenever this ends, the
    // newest is whole, and nothing is left that nobody would remove.
    internal::write_state(directory_, state);
    internal::failpoint("manager.named");
    if (sweep(state)) internal::write_state(directory_, state);
  }

  bool sweep(CheckpointState& state) const {
    if (!options_.max_to_keep) return false;
    const auto most = static_cast<std::size_t>(*options_.max_to_keep);
    const std::size_t before = state.kept.size();
    while (state.kept.size() > most) {
      const KeptCheckpoint oldest = state.kept.front();
      state.kept.erase(state.kept.begin());
      if (options_.keep_every) {
        const auto every = static_cast<double>(options_.keep_every->count());
        if (oldest.timestamp - every >= state.last_preserved) {
          state.last_preserved = oldest.timestamp;
          continue;
        }
      }
      internal::remove_checkpoint(directory_ + "/" + oldest.name);
    }
    return state.kept.size() != before;
  }

  bool restore(const KeptCheckpoint& kept, const RestoreOptions& options,
               std::string& newest_error) const {
    try {
      checkpoint_.restore(directory_ + "/" + kept.name, options);
      return true;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kDataLoss && e.code() != ErrorCode::kNotFound) throw;
      COHORT_LOG(kWarning, "[checkpoint_manager.restore_latest] passing over ", kept.name, ": ",
                 e.what());
      if (newest_error.empty()) newest_error = e.what();
      return false;
    }
  }

  const Checkpoint checkpoint_;
  std::string directory_;
  const CheckpointManagerOptions options_;
  std::exception_ptr error_;                      // of writer_, before it is reset
  std::unique_ptr<internal::TaskThread> writer_;  // its end is its work's
};

CheckpointManager::CheckpointManager(Checkpoint checkpoint, std::string directory,
                                     CheckpointManagerOptions options)
    : impl_(std::make_shared<Impl>(std::move(checkpoint), std::move(directory),
                                   std::move(options))) {}

std::string CheckpointManager::save(std::optional<int64_t> number) { return impl_->save(number); }
void CheckpointManager::wait() { impl_->wait(); }
bool CheckpointManager::restore_latest(const RestoreOptions& options) const {
  return impl_->restore_latest(options);
}
const std::string& CheckpointManager::directory() const { return impl_->directory(); }

std::vector<std::string> CheckpointManager::checkpoints() const { return impl_->checkpoints(); }
std::optional<std::string> CheckpointManager::latest_checkpoint() const {
  const std::vector<std::string> all = checkpoints();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<std::string> latest_checkpoint(const std::string& directory) {
  const std::vector<std::string> all = existing(directory);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

}  // namespace cohort
