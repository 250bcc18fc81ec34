// SPDX-License-Identifier: Apache-2.0
#include <zip.h>

#include <algorithm>
#include <exception>

#include "cohort/archive/zip_file.h"
#include "cohort/base/check.h"
#include "cohort/checkpoint/internal/file.h"

namespace cohort::internal::archive {

namespace {

/// What libzip writes into, and asks about. Nothing must be thrown through the library.
struct Sink {
  checkpoint::OutputFile& file;
  uint64_t place = 0;
  uint64_t size = 0;
  std::exception_ptr thrown = {};
  zip_error_t error = {};
};

zip_int64_t write_bytes(Sink& sink, const void* data, zip_uint64_t bytes) {
  try {
    sink.file.write_at(sink.place, data, bytes);
  } catch (...) {
    sink.thrown = std::current_exception();
    zip_error_set(&sink.error, ZIP_ER_WRITE, 0);
    return -1;
  }
  sink.place += bytes;
  sink.size = std::max(sink.size, sink.place);
  return static_cast<zip_int64_t>(bytes);
}

zip_int64_t seek(Sink& sink, void* data, zip_uint64_t bytes) {
  const zip_int64_t place =
      zip_source_seek_compute_offset(sink.place, sink.size, data, bytes, &sink.error);
  if (place < 0) return -1;
  sink.place = static_cast<uint64_t>(place);
  return 0;
}

zip_int64_t say_size(void* data) {
  auto* status = static_cast<zip_stat_t*>(data);
  zip_stat_init(status);
  status->valid = ZIP_STAT_SIZE;
  status->size = 0;
  return sizeof *status;
}

zip_int64_t answer(void* user, void* data, zip_uint64_t bytes, zip_source_cmd_t command) {
  Sink& sink = *static_cast<Sink*>(user);
  switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_WRITABLE;
    case ZIP_SOURCE_STAT:
      return say_size(data);
    case ZIP_SOURCE_ERROR:
      return zip_error_to_data(&sink.error, data, bytes);
    case ZIP_SOURCE_WRITE:
      return write_bytes(sink, data, bytes);
    case ZIP_SOURCE_SEEK_WRITE:
      return seek(sink, data, bytes);
    case ZIP_SOURCE_TELL_WRITE:
      return static_cast<zip_int64_t>(sink.place);
    // An empty file; whoever has it decides what becomes of what was written.
    default:
      return 0;
  }
}

[[noreturn]] void throw_failed(const char* operation, const Sink& sink, const char* reason) {
  if (sink.thrown != nullptr) std::rethrow_exception(sink.thrown);
  throw Error(ErrorCode::kResourceExhausted,
              str_cat("[", operation, "] failed to write an archive: ", reason));
}

}  // namespace

void write_zip(const char* operation, checkpoint::OutputFile& file,
               const std::vector<ZipMember>& members) {
  Sink sink{file};
  zip_source_t* source = zip_source_function_create(answer, &sink, &sink.error);
  zip_t* archive = source == nullptr
                       ? nullptr
                       : zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &sink.error);
  if (archive == nullptr) {
    zip_source_free(source);
    throw_failed(operation, sink, zip_error_strerror(&sink.error));
  }
  constexpr time_t kNoDate = 315'532'800;  // 1980-01-01: the same bytes for the same model
  for (const ZipMember& member : members) {
    zip_source_t* bytes = zip_source_buffer(archive, member.bytes.data(), member.bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, member.name.c_str(), bytes, ZIP_FL_ENC_UTF_8);
    bool added = index >= 0;
    if (!added) zip_source_free(bytes);
    const auto place = static_cast<zip_uint64_t>(index);
    added = added && zip_set_file_compression(archive, place, ZIP_CM_STORE, 0) == 0 &&
            zip_file_set_mtime(archive, place, kNoDate, 0) == 0;
    if (added) continue;
    const std::string reason = zip_strerror(archive);
    zip_discard(archive);
    throw_failed(operation, sink, reason.c_str());
  }
  if (zip_close(archive) != 0) {
    const std::string reason = zip_strerror(archive);
    zip_discard(archive);
    throw_failed(operation, sink, reason.c_str());
  }
}

}  // namespace cohort::internal::archive
