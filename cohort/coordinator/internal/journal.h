// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator writes down, so that one that is started again goes on where it was: which
// functions have an id and have ended, with their results, and what servers are being told.
//
//   Journal journal({.folder = "run/journal"});
//   if (journal.can_resume()) ...                        // with the state of journal.origin()
//   journal.begin(session, generation, /*resumes=*/true);
//   journal.decide(key, {.closure = 7, .attempt = 1, .counts = counts}, value);
//   ...                                                  // all servers have done it
//   journal.end(7, nullptr);
//   const auto found = journal.find(key);                // also of a process before this one
//
// A file of records (journal_frames.h), each of which is written before anybody is told what it
// says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/coordinator/internal/call_codec.h"
#include "cohort/coordinator/internal/journal_key.h"
#include "cohort/coordinator/parameters/transaction.h"

namespace cohort::internal::coordinator {

/// Errors, of all functions that write: Error with the system's reason; what could not be written
/// whole is taken back, and if that fails everything that follows fails, too; FailedPrecondition
/// where another process has begun with it, or has removed it: where locks do not hold.
/// Threads: thread-safe.
class Journal {
 public:
  struct Options {
    std::string folder = {};
    /// Whether a record is on the disk, not only with the system, before it counts.
    bool sync = true;
  };
  /// What was written last, and is not whole, is cut off with all behind it, as far as nobody was
  /// told it: what was on its way to the disk together may get there in any order.
  /// A process's children do not have it.
  /// Errors: FailedPrecondition where another process has it, and for a file of another version;
  ///         DataLoss that says where, for damage to what somebody was told.
  explicit Journal(Options options);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Whether functions have counted since variables were new: else there is nothing to go on with.
  bool can_resume() const;
  /// The session in which the state that this journal tells of began; 0: nothing has begun.
  uint64_t origin() const;
  /// That of the last begin().
  uint64_t generation() const;
  /// Before servers hear of the session and the generation: numbers of its functions are those
  /// behind last_closure() from here on, which no process before it has had. Without `resumes`
  /// variables are new ones, and everything is forgotten. The file is a new one in either case:
  /// what a process before it still writes is in none, and that one hears of it.
  void begin(uint64_t session, uint64_t generation, bool resumes);

  /// The function counts, and servers are going to be told. `key` may be without an id.
  void decide(const JournalKey& key, const ClosureSettlement& what, const EncodedValues& value);
  /// All servers have done it; with an error nobody knows whether they all have.
  void end(uint64_t closure, const std::exception_ptr& error);
  /// One that may count several times has ended.
  void finish(const JournalKey& key, const EncodedValues& value);
  /// Whether the file certainly does not say that it was decided, or says that it has ended, too.
  bool is_undecided(uint64_t closure) const;
  /// What was decided and has not ended.
  std::vector<ClosureSettlement> open() const;
  /// The least number of those; the greatest of all: there are none.
  uint64_t first_open() const;
  /// The greatest number of a function that was decided, or what begin() has put the next ones
  /// behind; 0: none.
  uint64_t last_closure() const;

  /// The result. Nothing: it has not ended. Errors: FailedPrecondition that names both, where the
  /// id is another function's or of other arguments; what it has ended with; Error of kUnknown
  ///         where it was decided, and has not ended: for one that does not run any more;
  ///         where nothing can be written any more, and it is not found, the error of that.
  std::optional<EncodedValues> find(const JournalKey& key) const;
  /// All results are forgotten; what is open stays. The file is replaced whole.
  void forget_finished();

 private:
  struct Place {
    uint64_t first = 0;
    uint64_t bytes = 0;
  };
  struct Entry {
    JournalKey key = {};
    Place record = {};  // with its result
    std::string error = {};
  };
  struct Open {
    ClosureSettlement what = {};
    Entry entry = {};
  };
  [[noreturn]] static void throw_open(const JournalKey& before, const JournalKey& now);
  void lock_folder();
  void unlock_folder() const;
  void read_all();
  void wait_until_synced() COHORT_REQUIRES(mutex_);
  /// Behind wait_until_synced(), without a wait between them.
  void replace(const EncodedValues& record) COHORT_REQUIRES(mutex_);
  /// A new file of the first `kept` bytes, the record if it is not empty, and, if any are kept,
  /// what somebody has written in the file of before meanwhile.
  void rewrite(uint64_t kept, const std::string& record) COHORT_REQUIRES(mutex_);
  std::string bytes_of_file(uint64_t first, uint64_t end) const COHORT_REQUIRES(mutex_);
  void take_late(const std::string& bytes) COHORT_REQUIRES(mutex_);
  /// Where the file has so many bytes.
  void check_alone(uint64_t size) const COHORT_REQUIRES(mutex_);
  /// Up to where somebody was told what stands there.
  uint64_t told() const COHORT_REQUIRES(mutex_) { return options_.sync ? synced_ : end_; }
  void take(const std::string& record, const Place& place) COHORT_REQUIRES(mutex_);
  void open_file() COHORT_REQUIRES(mutex_);
  Place append(const EncodedValues& record) COHORT_REQUIRES(mutex_);
  void sync_to(uint64_t end) COHORT_REQUIRES(mutex_);

  const Options options_;
  const std::string path_;
  int lock_ = -1;
  mutable base::Mutex mutex_;
  std::condition_variable_any synced_again_;
  std::unique_ptr<checkpoint::OutputFile> file_ COHORT_GUARDED_BY(mutex_);
  int descriptor_ COHORT_GUARDED_BY(mutex_) = -1;  // file_'s
  uint64_t end_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t synced_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t replaced_ COHORT_GUARDED_BY(mutex_) = 0;  // how often the file was
  bool is_syncing_ COHORT_GUARDED_BY(mutex_) = false;
  std::exception_ptr broken_ COHORT_GUARDED_BY(mutex_);
  bool has_work_ COHORT_GUARDED_BY(mutex_) = false;
  uint64_t last_closure_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t origin_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t generation_ COHORT_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Entry> finished_ COHORT_GUARDED_BY(mutex_);  // by id
  std::map<uint64_t, Open> open_ COHORT_GUARDED_BY(mutex_);          // by closure
};

}  // namespace cohort::internal::coordinator
