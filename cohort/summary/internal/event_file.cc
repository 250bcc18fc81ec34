// SPDX-License-Identifier: Apache-2.0
#include "cohort/summary/internal/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/summary/internal/messages.h"

namespace cohort::internal::summary {

namespace {

void make_run_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error || std::filesystem::is_directory(folder)) return;
  throw Error(ErrorCode::kFailedPrecondition, str_cat("[summary_writer] failed to make the folder ",
                                                      folder, ": ", error.message()));
}

// Of as many digits each, which keep the order of a process's files. Random, since containers of
// one host name have the same process ids, too.
uint64_t next_number() {
  static std::atomic<uint64_t> next = 1'000'000'000 + std::random_device{}() % 1'000'000'000;
  return next.fetch_add(1);
}

// As TensorFlow names them: TensorBoard reads a run's files in the order of their names, takes
// those with "tfevents" in it, and no two writers may have the same.
std::string event_file_name() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 64> number = {};
  std::snprintf(number.data(), number.size(), "%010lld", static_cast<long long>(wall_time()));
  return str_cat("events.out.tfevents.", number.data(), ".", host.data(), ".", ::getpid(), ".",
                 next_number(), ".v2");
}

// A file that a full disk has cut is left as it is: what comes later goes into another one.
template <class Work>
void or_leave(std::optional<cohort::data::TfRecordWriter>& file, const Work& work) {
  try {
    work(*file);
  } catch (...) {
    file.reset();
    throw;
  }
}

}  // namespace

double wall_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

EventFile::EventFile(std::string folder, std::chrono::milliseconds flush_every)
    : folder_(std::move(folder)), flush_every_(flush_every) {
  make_run_folder(folder_);
}

void EventFile::write(const std::string& event) {
  const base::MutexLock lock(mutex_);
  COHORT_CHECK_STATE(!closed_, "[summary_writer] expected a writer that is open, got that of ",
                     folder_, " after close()");
  const auto now = std::chrono::steady_clock::now();
  if (!file_) {
    const std::filesystem::path path = std::filesystem::path(folder_) / event_file_name();
    file_.emplace(path.string(), cohort::data::TfRecordWriterOptions{
                                     .compression = cohort::data::Compression::kNone});
    file_->write(version_event(wall_time()));
    flushed_ = now;
  }
  or_leave(file_, [&](auto& file) { file.write(event); });
  if (now - flushed_ < flush_every_) return;
  flushed_ = now;
  or_leave(file_, [](auto& file) { file.flush(); });
}

void EventFile::flush() {
  const base::MutexLock lock(mutex_);
  flushed_ = std::chrono::steady_clock::now();
  if (file_) or_leave(file_, [](auto& file) { file.flush(); });
}

void EventFile::close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  if (file_) file_->close();
  file_.reset();
}

}  // namespace cohort::internal::summary
