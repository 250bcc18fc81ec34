// SPDX-License-Identifier: Apache-2.0
//
// A file of events in a run's folder.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cohort/base/mutex.h"
#include "cohort/data/formats/tf_record/tf_record.h"

namespace cohort::internal::summary {

/// Seconds since 1970.
double wall_time();

/// Records, each an event, behind the one that names the format. Threads: thread-safe.
class EventFile {
 public:
  /// Makes the folder. Errors: Error with the system's text.
  EventFile(std::string folder, std::chrono::milliseconds flush_every);

  /// Makes the file, if it is the first. Errors: FailedPrecondition after close(); Error with the
  ///                                             system's text.
  void write(const std::string& event);
  void flush();
  void close();

  const std::string& folder() const { return folder_; }

 private:
  const std::string folder_;
  const std::chrono::milliseconds flush_every_;

  base::Mutex mutex_;
  std::optional<cohort::data::TfRecordWriter> file_ COHORT_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point flushed_ COHORT_GUARDED_BY(mutex_);
  bool closed_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::internal::summary
