// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <zip.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "cohort/archive/zip_file.h"
#include "cohort/base/check.h"
#include "cohort/checkpoint/internal/file.h"

namespace cohort::internal::archive {

namespace {

constexpr zip_int64_t kMostMembersOfArchive = 10'000;
constexpr std::size_t kLongestName = 4096;
// A member may be larger than what is stored of it by so much, or so many times.
constexpr uint64_t kSmallMember = uint64_t{1} << 20;
constexpr uint64_t kMostMemberExpansion = 100;

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string printable(std::string text) {
  for (char& c : text) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  return text;
}

}  // namespace

std::string why_bad_member_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kLongestName) return str_cat("is longer than ", kLongestName, " bytes");
  if (name.front() == '/') return "begins at the root";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return "has control characters";
    // Other alphabets have letters that look like ours, and Keras's names are plain.
    if (byte > 0x7f) return "is not in ASCII";
    if (c == '\\' || c == ':') return str_cat("has a '", c, "'");
  }
  std::string_view rest = name.ends_with('/') ? name.substr(0, name.size() - 1) : name;
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return "leads elsewhere";
    if (part.ends_with('.') || part.ends_with(' ')) return "ends in a dot or a space";
    if (slash == std::string_view::npos) return {};
    rest.remove_prefix(slash + 1);
  }
}

struct ZipReader::Archive {
  const char* operation;
  std::string path;
  zip_t* zip = nullptr;
  std::map<std::string, zip_stat_t> members = {};

  ~Archive() {
    if (zip != nullptr) zip_discard(zip);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataLoss(str_cat("[", operation, "] ", path, ": ", what));
  }
  void list();
  void check_member(zip_uint64_t index, const zip_stat_t& status) const;
  const zip_stat_t& member(const std::string& name) const;
};

ZipReader::ZipReader(const char* operation, std::string path)
    : archive_(std::make_shared<Archive>(Archive{operation, std::move(path)})) {
  const checkpoint::InputFile regular(operation,
                                      archive_->path);  // and no pipe that would be waited for
  int error = 0;
  archive_->zip = zip_open(archive_->path.c_str(), ZIP_RDONLY, &error);
  if (archive_->zip == nullptr) {
    zip_error_t reason;
    zip_error_init_with_code(&reason, error);
    const std::string text = zip_error_strerror(&reason);
    zip_error_fini(&reason);
    archive_->refuse("expected a zip archive, which .keras files are, got another file: " + text);
  }
  archive_->list();
}

ZipReader::~ZipReader() = default;

void ZipReader::Archive::list() {
  const zip_int64_t count = zip_get_num_entries(zip, 0);
  if (count > kMostMembersOfArchive) {
    refuse(str_cat("expected at most ", kMostMembersOfArchive, " members, got ", count));
  }
  std::set<std::string> taken;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t status;
    const auto index = static_cast<zip_uint64_t>(i);
    if (zip_stat_index(zip, index, ZIP_FL_ENC_RAW, &status) != 0) {
      refuse(str_cat("its member ", i, " is damaged: ", zip_strerror(zip)));
    }
    const std::string name = status.name == nullptr ? "" : status.name;
    const std::string bad = why_bad_member_name(name);
    if (!bad.empty()) refuse(str_cat("the name \"", printable(name), "\" of a member ", bad));
    check_member(index, status);
    if (!taken.insert(lower_case(name)).second) {
      refuse(str_cat("two members have the name \"", name, "\""));
    }
    members[name] = status;
  }
}

void ZipReader::Archive::check_member(zip_uint64_t index, const zip_stat_t& status) const {
  const std::string name = status.name;
  zip_uint8_t system = 0;
  zip_uint32_t attributes = 0;
  zip_file_get_external_attributes(zip, index, 0, &system, &attributes);
  const mode_t mode = attributes >> 16;
  const mode_t kind = mode & S_IFMT;
  if (system == ZIP_OPSYS_UNIX && kind != 0 && kind != S_IFREG && kind != S_IFDIR) {
    refuse(str_cat("\"", name, "\" is a link or a device"));
  }
  constexpr unsigned kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((status.valid & kNeeded) != kNeeded) refuse(str_cat("\"", name, "\" has no size"));
  if (status.encryption_method != ZIP_EM_NONE) refuse(str_cat("\"", name, "\" is encrypted"));
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    refuse(
        str_cat("\"", name, "\" is packed by method ", status.comp_method, ", which is not read"));
  }
  if (status.size > kSmallMember && status.size / kMostMemberExpansion > status.comp_size) {
    refuse(str_cat("\"", name, "\" says that it is ", status.size, " bytes, of which ",
                   status.comp_size, " are in the file"));
  }
}

bool ZipReader::contains(const std::string& name) const { return archive_->members.contains(name); }

std::vector<std::string> ZipReader::names() const {
  std::vector<std::string> names;
  for (const auto& member : archive_->members) names.push_back(member.first);
  return names;
}

const zip_stat_t& ZipReader::Archive::member(const std::string& name) const {
  const auto found = members.find(name);
  if (found == members.end()) refuse(str_cat("has no \"", name, "\""));
  return found->second;
}

std::unique_ptr<CheckedBytes> ZipReader::open(const std::string& name) const {
  const zip_stat_t& status = archive_->member(name);
  if (status.comp_method != ZIP_CM_STORE || (status.valid & ZIP_STAT_CRC) == 0) return nullptr;
  if (status.comp_size != status.size) {
    archive_->refuse(str_cat("\"", name, "\" has another size than the archive says"));
  }
  // Without libzip's own checksum, which takes longer than the disk.
  const std::shared_ptr<zip_file_t> file(
      zip_fopen_index(archive_->zip, status.index, ZIP_FL_COMPRESSED),
      [archive = archive_](zip_file_t* opened) {
        if (opened != nullptr) zip_fclose(opened);
      });
  if (file == nullptr) {
    archive_->refuse(str_cat("\"", name, "\" is damaged: ", zip_strerror(archive_->zip)));
  }
  const auto read = [archive = archive_, file, name](uint64_t place, void* out, std::size_t bytes) {
    bool fine = zip_fseek(file.get(), static_cast<zip_int64_t>(place), SEEK_SET) == 0;
    while (fine && bytes > 0) {
      const zip_int64_t got = zip_fread(file.get(), out, bytes);
      fine = got > 0;
      if (!fine) break;
      out = static_cast<char*>(out) + got;
      bytes -= static_cast<std::size_t>(got);
    }
    if (fine) return;
    archive->refuse(
        str_cat("\"", name, "\" is damaged: ", zip_error_strerror(zip_file_get_error(file.get()))));
  };
  auto bytes = std::make_unique<CheckedBytes>(archive_->operation, archive_->path + "/" + name,
                                              status.size, read);
  if (bytes->crc32() != status.crc) {
    archive_->refuse(str_cat("\"", name, "\" is damaged: CRC error"));
  }
  return bytes;
}

FileBytes ZipReader::read(const std::string& name) const {
  const zip_stat_t& status = archive_->member(name);
  FileBytes out;
  try {
    out = FileBytes(status.size);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted,
                str_cat("[", archive_->operation, "] ", archive_->path, ": no memory for \"", name,
                        "\" of ", status.size, " bytes"));
  }
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(
      zip_fopen_index(archive_->zip, status.index, 0), zip_fclose);
  if (file == nullptr) {
    archive_->refuse(str_cat("\"", name, "\" is damaged: ", zip_strerror(archive_->zip)));
  }
  std::size_t place = 0;
  char beyond = 0;
  // To its end and one more, where the checksum is looked at.
  while (true) {
    const bool is_full = place == out.size;
    const zip_int64_t got = zip_fread(file.get(), is_full ? &beyond : out.data.get() + place,
                                      is_full ? 1 : out.size - place);
    if (got < 0) {
      archive_->refuse(str_cat(
          "\"", name, "\" is damaged: ", zip_error_strerror(zip_file_get_error(file.get()))));
    }
    if (got == 0 && is_full) return out;
    if (got == 0 || is_full) {
      archive_->refuse(str_cat("\"", name, "\" has another size than the archive says"));
    }
    place += static_cast<std::size_t>(got);
  }
}

}  // namespace cohort::internal::archive
