// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <span>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/fork_descriptors.h"
#include "cohort/coordinator/internal/closure_effects.h"
#include "cohort/coordinator/internal/journal_frames.h"

namespace cohort::internal::coordinator {
namespace {

constexpr const char* kJournalOperation = "journal";
constexpr uint64_t kJournalVersion = 2;
constexpr uint64_t kPiece = uint64_t{1} << 20;  // of what is copied
enum class JournalRecord : uint8_t { kBegin = 1, kDecided, kEnded, kFinished };
// More functions than one process numbers.
constexpr uint64_t kOneRange = uint64_t{1} << 32;

// Above all numbers of those before it, whether they were decided or not, and also where a clock
// was set back: numbers begin at the clock's microseconds where there is no journal.
uint64_t range_behind(uint64_t last) {
  using std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto clock = static_cast<uint64_t>(std::chrono::duration_cast<microseconds>(now).count());
  return std::max(clock, last + kOneRange);
}

ValueWriter record_of(JournalRecord kind) {
  ValueWriter out;
  out.byte(static_cast<uint8_t>(kind));
  return out;
}

void write_key(ValueWriter& out, const JournalKey& key) {
  out.text(key.id);
  out.text(key.function);
  out.number(key.bytes);
  out.number(key.checksum);
}

JournalKey read_key(ValueReader& in) {
  JournalKey out;
  out.id = in.text();
  out.function = in.text();
  out.bytes = in.number();
  out.checksum = in.number();
  return out;
}

rpc::Payload owned(std::string record) {
  const auto owner = std::make_shared<const std::string>(std::move(record));
  rpc::Payload out;
  out.append({.bytes = std::as_bytes(std::span(*owner)), .owner = owner});
  return out;
}

ClosureSettlement read_settlement(ValueReader& in) {
  ClosureSettlement out{.closure = in.number()};
  out.attempt = in.number();
  for (std::size_t left = in.count(); left > 0; --left) out.counts.push_back(in.number());
  return out;
}

std::string shown(const JournalKey& key) {
  return str_cat(key.function, " with ", key.bytes, " bytes of arguments, checksum ", key.checksum);
}

}  // namespace

JournalKey journal_key(std::string id, std::string function, const EncodedValues& arguments) {
  uint32_t checksum = base::crc32c(arguments.head);
  for (const rpc::Payload::Piece& each : arguments.blobs) {
    checksum = base::crc32c({reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size()},
                            checksum);
  }
  return {.id = std::move(id),
          .function = std::move(function),
          .bytes = arguments.size(),
          .checksum = checksum};
}

// Where it lies does not change with the process's working directory.
static Journal::Options placed(Journal::Options options) {
  COHORT_CHECK_ARG(!options.folder.empty(), "[journal] expected a folder, got an empty name");
  options.folder = std::filesystem::absolute(options.folder).string();
  return options;
}

Journal::Journal(Options options)
    : options_(placed(std::move(options))), path_(options_.folder + "/journal") {
  checkpoint::make_folders(kJournalOperation, options_.folder);
  lock_folder();
  try {
    read_all();
  } catch (...) {
    unlock_folder();
    throw;
  }
}

Journal::~Journal() { unlock_folder(); }

// A child that outlives this process would keep the lock.
void Journal::unlock_folder() const {
  if (base::close_no_more_in_children(lock_)) ::close(lock_);
}

void Journal::lock_folder() {
  const std::string path = options_.folder + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) checkpoint::throw_system(kJournalOperation, path, errno);
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return base::close_in_children(lock_);
  const int error = errno;
  ::close(lock_);
  COHORT_CHECK_STATE(error != EWOULDBLOCK,
                     "[journal] expected a journal that no other coordinator has, got ",
                     options_.folder, ", which one that lives (or stands still) has; end it first");
  checkpoint::throw_system(kJournalOperation, path, error);
}

void Journal::read_all() {
  const base::MutexLock lock(mutex_);
  open_file();
  const checkpoint::InputFile file(kJournalOperation, path_);
  uint64_t at = 0;
  while (const std::optional<JournalFrame> frame = frame_at(file, at)) {
    // In front of the first one nothing was told; in version 1 a record's length stood there.
    COHORT_CHECK_STATE(at > 0 || frame->told == 0, "[journal] expected a journal of version ",
                       kJournalVersion, ", got one of version 1 in ", path_,
                       "; go on with the program that wrote it, or remove the file, and start the "
                       "job from its last checkpoint");
    take(frame->record, {at + kFrameHead, frame->record.size()});
    at += frame->bytes;
  }
  if (const std::optional<uint64_t> behind = told_behind(file, at)) {
    throw DataLoss(str_cat(
        "[journal] expected whole records, got damage at byte ", at, " of ", path_,
        ". It is no record that was cut off while it was written: the one at byte ", *behind,
        ", behind it, was confirmed to its caller. Remove the file, and start the job from "
        "its last checkpoint"));
  }
  end_ = synced_ = at;
  if (at < file.size()) rewrite(at, "");  // who may be writing that record has another file then
}

// As long as this process has it, nobody but it writes there: who comes makes a file of its own.
void Journal::open_file() {
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  auto file = std::make_unique<checkpoint::OutputFile>(kJournalOperation, descriptor, path_);
  file->flush();
  checkpoint::flush_folder(kJournalOperation, options_.folder);
  file_ = std::move(file);
  descriptor_ = descriptor;
}

void Journal::take(const std::string& record, const Place& place) {
  const rpc::Payload payload = owned(record);
  MessageParts parts(payload);
  ValueReader in(parts.head(), {});
  const auto kind = static_cast<JournalRecord>(in.byte());
  if (kind == JournalRecord::kBegin) {
    const uint64_t version = in.number();
    if (version != kJournalVersion) in.fail("a journal of this version");
    const bool resumes = in.byte() != 0;
    has_work_ = in.byte() != 0;
    last_closure_ = std::max(last_closure_, in.number());
    generation_ = in.number();
    origin_ = in.number();
    if (!resumes) {
      finished_.clear();
      open_.clear();
    }
  } else if (kind == JournalRecord::kDecided) {
    Open one{.what = read_settlement(in)};
    one.entry = {.key = read_key(in), .record = place};
    last_closure_ = std::max(last_closure_, one.what.closure);
    open_[one.what.closure] = std::move(one);
    has_work_ = true;
  } else if (kind == JournalRecord::kEnded) {
    const auto found = open_.find(in.number());
    if (found == open_.end()) in.fail("the end of a function that was decided");
    Entry& entry = found->second.entry;
    entry.error = in.text();
    const std::string id = entry.key.id;
    if (!id.empty()) finished_[id] = std::move(entry);
    open_.erase(found);
  } else if (kind == JournalRecord::kFinished) {
    Entry entry{.key = read_key(in), .record = place};
    const std::string id = entry.key.id;
    finished_[id] = std::move(entry);
    has_work_ = true;
  } else {
    in.fail("a record of a journal");
  }
}

// The lock does not hold on each file system: who has stood still there finds another one's records
// behind its own, or another file.
void Journal::check_alone(uint64_t size) const {
  struct stat mine {};
  struct stat named {};
  const bool is_there = ::fstat(descriptor_, &mine) == 0 && ::stat(path_.c_str(), &named) == 0;
  COHORT_CHECK_STATE(is_there && mine.st_dev == named.st_dev && mine.st_ino == named.st_ino &&
                         static_cast<uint64_t>(mine.st_size) == size,
                     "[journal] expected that nobody else writes ", path_,
                     ", but another chief has begun with it, or it was removed. End this program; "
                     "the other one has the job");
}

Journal::Place Journal::append(const EncodedValues& record) {
  if (broken_) std::rethrow_exception(broken_);
  check_alone(end_);
  const std::string bytes = to_payload(record).text();
  const std::string all = framed(told(), bytes);
  // One call, but where a test wants it torn.
  const std::size_t first = base::g_failpoint_hook != nullptr ? kFrameHead : all.size();
  try {
    if (const int error = base::fault("write", path_)) {
      file_->write(all.data(), all.size() / 2);
      checkpoint::throw_system(kJournalOperation, path_, error);
    }
    file_->write(all.data(), first);
    base::failpoint("journal.torn");
    if (first < all.size()) file_->write(all.data() + first, all.size() - first);
  } catch (const Error&) {
    if (::ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) broken_ = std::current_exception();
    throw;
  }
  // Before anybody is told: who makes a file of its own reads this one to its end behind that.
  check_alone(end_ + all.size());
  const Place out{end_ + kFrameHead, bytes.size()};
  end_ += all.size();
  take(bytes, out);
  return out;
}

// One thread at a time, for all that was written before it began.
void Journal::sync_to(uint64_t end) {
  const uint64_t file = replaced_;  // a file that is replaced was on the disk, and has other places
  while (options_.sync && replaced_ == file && synced_ < end) {
    if (broken_) std::rethrow_exception(broken_);
    if (is_syncing_) {
      synced_again_.wait(mutex_);
      continue;
    }
    is_syncing_ = true;
    const uint64_t written = end_;
    const int descriptor = descriptor_;
    mutex_.unlock();
    int error = base::fault("fdatasync", path_);
    if (error == 0 && ::fdatasync(descriptor) != 0) error = errno;
    mutex_.lock();
    is_syncing_ = false;
    synced_again_.notify_all();
    if (error == 0) {
      synced_ = written;
      continue;
    }
    // What is on the disk is not known any more.
    try {
      checkpoint::throw_system(kJournalOperation, path_, error);
    } catch (...) {
      broken_ = std::current_exception();
    }
  }
}

bool Journal::can_resume() const {
  const base::MutexLock lock(mutex_);
  return has_work_;
}

uint64_t Journal::origin() const {
  const base::MutexLock lock(mutex_);
  return origin_;
}

uint64_t Journal::generation() const {
  const base::MutexLock lock(mutex_);
  return generation_;
}

static EncodedValues begin_record(bool resumes, bool has_work, uint64_t last_closure,
                                  uint64_t generation, uint64_t origin) {
  ValueWriter out = record_of(JournalRecord::kBegin);
  out.number(kJournalVersion);
  out.byte(resumes ? 1 : 0);
  out.byte(has_work ? 1 : 0);
  out.number(last_closure);
  out.number(generation);
  out.number(origin);
  return std::move(out).finish();
}

void Journal::begin(uint64_t session, uint64_t generation, bool resumes) {
  const base::MutexLock lock(mutex_);
  wait_until_synced();
  const uint64_t base = range_behind(last_closure_);
  if (!resumes) return replace(begin_record(false, false, base, generation, session));
  check_alone(end_);
  rewrite(end_, to_payload(begin_record(true, has_work_, base, generation, origin_)).text());
}

// Gives up the mutex: what replace() is told is computed behind it.
void Journal::wait_until_synced() {
  while (is_syncing_) synced_again_.wait(mutex_);
  if (broken_) std::rethrow_exception(broken_);
}

void Journal::replace(const EncodedValues& record) {
  check_alone(end_);
  rewrite(0, to_payload(record).text());
}

std::string Journal::bytes_of_file(uint64_t first, uint64_t end) const {
  std::string out(end - first, '\0');
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done,
                                static_cast<off_t>(first + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) checkpoint::throw_system(kJournalOperation, path_, errno);
    if (got == 0) out.resize(done);  // it was cut off there
    done += static_cast<std::size_t>(got);
  }
  return out;
}

// Who writes in the file of before counts there until this one has the name, and not behind that.
void Journal::take_late(const std::string& bytes) {
  if (bytes.empty()) return;
  file_->write(bytes.data(), bytes.size());
  check_alone(end_ + bytes.size());
  const checkpoint::InputFile file(kJournalOperation, path_);
  while (const std::optional<JournalFrame> frame = frame_at(file, end_)) {
    take(frame->record, {end_ + kFrameHead, frame->record.size()});
    end_ += frame->bytes;
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) {
    checkpoint::throw_system(kJournalOperation, path_, errno);
  }
  file_->flush();
  synced_ = end_;
}

void Journal::rewrite(uint64_t kept, const std::string& record) {
  const uint64_t end = end_;
  const std::string frame = record.empty() ? "" : framed(std::min(kept, told()), record);
  checkpoint::AtomicFile next(kJournalOperation, path_);
  for (uint64_t at = 0; at < kept; at += kPiece) {
    const std::string piece = bytes_of_file(at, std::min(kept, at + kPiece));
    next.file().write(piece.data(), piece.size());
  }
  next.file().write(frame.data(), frame.size());
  next.file().flush();  // a full disk leaves the file of before
  try {
    next.commit();
    struct stat before {};
    if (::fstat(descriptor_, &before) != 0) {
      checkpoint::throw_system(kJournalOperation, path_, errno);
    }
    const auto size = static_cast<uint64_t>(before.st_size);
    const std::string late = bytes_of_file(end, std::max(end, size));
    open_file();
    end_ = synced_ = kept + frame.size();
    ++replaced_;
    synced_again_.notify_all();
    if (!record.empty()) take(record, {kept + kFrameHead, record.size()});
    if (kept > 0) take_late(late);
  } catch (...) {
    // Which of the two files has the name now is not known, nor what lasts.
    broken_ = std::current_exception();
    finished_.clear();
    throw;
  }
}

void Journal::decide(const JournalKey& key, const ClosureSettlement& what,
                     const EncodedValues& value) {
  ValueWriter out = record_of(JournalRecord::kDecided);
  out.number(what.closure);
  out.number(what.attempt);
  out.number(what.counts.size());
  for (const uint64_t each : what.counts) out.number(each);
  write_key(out, key);
  write_nested(out, key.id.empty() ? EncodedValues() : value);
  const base::MutexLock lock(mutex_);
  append(std::move(out).finish());
  sync_to(end_);
}

// Who was decided and has not ended is told again, which changes nothing: this one needs no disk.
void Journal::end(uint64_t closure, const std::exception_ptr& error) {
  ValueWriter out = record_of(JournalRecord::kEnded);
  out.number(closure);
  out.text(error ? text_of(error) : std::string());
  const base::MutexLock lock(mutex_);
  if (open_.count(closure) == 0) return;  // it could not be written that it is decided
  append(std::move(out).finish());
  if (error) sync_to(end_);
}

void Journal::finish(const JournalKey& key, const EncodedValues& value) {
  ValueWriter out = record_of(JournalRecord::kFinished);
  write_key(out, key);
  write_nested(out, value);
  const base::MutexLock lock(mutex_);
  append(std::move(out).finish());
  sync_to(end_);
}

bool Journal::is_undecided(uint64_t closure) const {
  const base::MutexLock lock(mutex_);
  return !broken_ && open_.count(closure) == 0;
}

std::vector<ClosureSettlement> Journal::open() const {
  const base::MutexLock lock(mutex_);
  std::vector<ClosureSettlement> out;
  for (const auto& [closure, one] : open_) out.push_back(one.what);
  return out;
}

uint64_t Journal::first_open() const {
  const base::MutexLock lock(mutex_);
  return open_.empty() ? ~uint64_t{0} : open_.begin()->first;
}

uint64_t Journal::last_closure() const {
  const base::MutexLock lock(mutex_);
  return last_closure_;
}

std::optional<EncodedValues> Journal::find(const JournalKey& key) const {
  const base::MutexLock lock(mutex_);
  for (const auto& [closure, one] : open_) {
    if (one.entry.key.id == key.id) throw_open(one.entry.key, key);
  }
  const auto found = finished_.find(key.id);
  if (found == finished_.end()) {
    if (broken_) std::rethrow_exception(broken_);
    return std::nullopt;
  }
  const Entry& entry = found->second;
  check_same(entry.key, key);
  if (!entry.error.empty()) throw Error(ErrorCode::kUnknown, entry.error);
  check_alone(end_);  // its places are those of its own file
  const checkpoint::InputFile file(kJournalOperation, path_);
  std::string record(entry.record.bytes, '\0');
  file.read(entry.record.first, record.data(), record.size());
  const rpc::Payload payload = owned(std::move(record));
  MessageParts parts(payload);
  ValueReader in(parts.head(), {});
  if (static_cast<JournalRecord>(in.byte()) == JournalRecord::kDecided) read_settlement(in);
  read_key(in);
  return read_nested(in, parts.blobs());
}

void check_same(const JournalKey& before, const JournalKey& now) {
  COHORT_CHECK_STATE(before.function == now.function && before.bytes == now.bytes &&
                         before.checksum == now.checksum,
                     "[schedule] expected the function and arguments of before under the id \"",
                     now.id, "\", ", shown(before), ", got ", shown(now),
                     "; give what is another call another id");
}

void Journal::throw_open(const JournalKey& before, const JournalKey& now) {
  check_same(before, now);
  throw Error(
      ErrorCode::kUnknown,
      str_cat("[schedule] expected that the function of the id \"", now.id,
              "\" has ended; it counts, but it could not be written down that all parameter "
              "servers have done its changes: start the chief again, which tells them"));
}

void Journal::forget_finished() {
  const base::MutexLock lock(mutex_);
  wait_until_synced();
  COHORT_CHECK_STATE(open_.empty(),
                     "[journal] expected no function that runs, or of which servers "
                     "are still to be told, got ",
                     open_.size());
  replace(begin_record(/*resumes=*/false, has_work_, last_closure_, generation_, origin_));
}

}  // namespace cohort::internal::coordinator
