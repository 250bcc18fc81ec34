// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/npy/internal/zip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/data/formats/internal/little_endian.h"

namespace cohort::internal::data {
namespace {

constexpr std::string_view kEndMagic("PK\x05\x06", 4);
constexpr std::string_view kEntryMagic("PK\x01\x02", 4);
constexpr std::string_view kMemberMagic("PK\x03\x04", 4);
constexpr std::size_t kEndBytes = 22, kEntryBytes = 46, kMemberBytes = 30;
constexpr std::size_t kLongestComment = 65535;
constexpr uint32_t kZip64 = 0xffffffff;
/// A byte of deflate cannot stand for more bytes than this.
constexpr uint64_t kMostCompression = 1032;

class ZipArchive {
 public:
  ZipArchive(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  void for_each(int64_t max_bytes,
                const std::function<void(std::string, std::string_view)>& use) const {
    const std::vector<Member> members = read_directory();
    check_sizes(members, max_bytes);
    for (const Member& member : members) use(member.name, unpack(member));
  }

 private:
  [[noreturn]] void fail(const std::string& text) const {
    throw DataLoss(str_cat(where_, ": expected a zip archive, got ", text));
  }
  [[noreturn]] void too_large() const {
    throw Unimplemented(where_ + ": zip archives above 4 GB are not read");
  }
  void require(std::size_t at, std::size_t bytes, const char* what) const {
    if (at > bytes_.size() || bytes > bytes_.size() - at) {
      fail(str_cat("the end of the file in ", what));
    }
  }
  uint16_t u16(std::size_t at) const {
    require(at, 2, "a number");
    return load_little_endian<uint16_t>(bytes_.data() + at);
  }
  uint32_t u32(std::size_t at) const {
    require(at, 4, "a number");
    return load_little_endian<uint32_t>(bytes_.data() + at);
  }

  std::size_t find_end() const {
    if (bytes_.size() < kEndBytes) fail(str_cat("a file of ", bytes_.size(), " bytes"));
    const std::size_t last = bytes_.size() - kEndBytes;
    const std::size_t at = bytes_.rfind(kEndMagic, last);
    if (at == std::string_view::npos || last - at > kLongestComment)
      fail("a file without a directory at its end: other bytes, or the first part of an archive");
    return at;
  }

  struct Member {
    std::string name;
    int method = 0;
    uint32_t crc = 0;
    uint32_t bytes = 0;  ///< Unpacked.
    std::size_t begin = 0;
    std::string_view packed;
    std::size_t bytes_before = 0;  ///< Of its own header.
    std::size_t end() const { return begin + bytes_before + packed.size(); }
  };

  std::vector<Member> read_directory() const {
    const std::size_t end = find_end();
    const auto count = u16(end + 10);
    std::size_t entry = u32(end + 16);
    if (u32(end + 16) == kZip64 || count == 0xffff) too_large();
    std::vector<Member> out;
    for (int i = 0; i < count; ++i) {
      require(entry, kEntryBytes, "a directory entry");
      if (bytes_.substr(entry, 4) != kEntryMagic) fail("a wrong directory entry");
      const std::size_t name_bytes = u16(entry + 28);
      require(entry + kEntryBytes, name_bytes, "a name");
      out.push_back(read_member(entry));
      out.back().name = bytes_.substr(entry + kEntryBytes, name_bytes);
      check_name(out.back());
      entry += kEntryBytes + name_bytes + u16(entry + 30) + u16(entry + 32);
    }
    // A smaller number of entries would leave arrays out.
    const std::size_t last = std::size_t{u32(end + 16)} + u32(end + 12);
    if (entry != last || last != end) {
      fail(str_cat("a directory of ", count, " members that ends at byte ", entry, " instead of ",
                   end));
    }
    return out;
  }

  Member read_member(std::size_t entry) const {
    if ((u16(entry + 8) & 1) != 0) throw Unimplemented(where_ + ": encrypted members are not read");
    const uint32_t packed_bytes = u32(entry + 20), bytes = u32(entry + 24);
    const std::size_t at = u32(entry + 42);
    if (packed_bytes == kZip64 || bytes == kZip64 || at == kZip64) too_large();
    require(at, kMemberBytes, "a member");
    if (bytes_.substr(at, 4) != kMemberMagic) fail("a wrong member");
    Member out{{}, u16(entry + 10), u32(entry + 16), bytes, at, {}};
    out.bytes_before = kMemberBytes + u16(at + 26) + u16(at + 28);
    require(at + out.bytes_before, packed_bytes, "a member's data");
    out.packed = bytes_.substr(at + out.bytes_before, packed_bytes);
    return out;
  }

  /// No checksum covers names, but each stands there twice.
  void check_name(const Member& member) const {
    const std::size_t bytes = u16(member.begin + 26);
    require(member.begin + kMemberBytes, bytes, "a name");
    const std::string_view own = bytes_.substr(member.begin + kMemberBytes, bytes);
    if (own == member.name) return;
    fail(str_cat("a member called \"", member.name, "\" in the directory and \"", own,
                 "\" in its own header"));
  }

  /// Members that share bytes make little data stand for much.
  void check_sizes(const std::vector<Member>& members, int64_t max_bytes) const {
    std::vector<std::pair<std::size_t, std::size_t>> places;
    int64_t bytes = 0;
    for (const Member& member : members) {
      places.emplace_back(member.begin, member.end());
      bytes += member.bytes;
    }
    std::sort(places.begin(), places.end());
    for (std::size_t i = 1; i < places.size(); ++i) {
      if (places[i].first < places[i - 1].second) fail("members that overlap");
    }
    if (bytes > max_bytes) {
      throw Error(ErrorCode::kResourceExhausted,
                  str_cat(where_, ": expected at most ", max_bytes, " bytes of arrays, got ", bytes,
                          "; raise max_bytes if you trust the file"));
    }
  }

  /// The view lasts until the next call.
  std::string_view unpack(const Member& member) const {
    const std::string_view out = unpack(member.method, member.packed, member.bytes);
    const auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(out.data()), static_cast<uInt>(out.size())));
    if (out.size() != member.bytes || crc != member.crc) fail("a member with a wrong checksum");
    return out;
  }

  std::string_view unpack(int method, std::string_view packed, uint32_t bytes) const {
    constexpr int kStored = 0, kDeflated = 8;
    if (method == kStored) return packed;
    if (method != kDeflated) {
      throw Unimplemented(str_cat(where_, ": zip compression ", method, " is not read"));
    }
    if (bytes > packed.size() * kMostCompression + kMostCompression) fail("an impossible size");
    unpacked_.resize(bytes);
    z_stream zlib{};
    constexpr int kRawDeflate = -15;
    COHORT_CHECK(inflateInit2(&zlib, kRawDeflate) == Z_OK, "zlib");
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    zlib.avail_in = static_cast<uInt>(packed.size());
    zlib.next_out = reinterpret_cast<Bytef*>(unpacked_.data());
    zlib.avail_out = static_cast<uInt>(unpacked_.size());
    const int code = inflate(&zlib, Z_FINISH);
    const std::size_t got = zlib.total_out;
    inflateEnd(&zlib);
    if (code != Z_STREAM_END) fail("damaged compressed data");
    return std::string_view(unpacked_).substr(0, got);
  }

  const std::string_view bytes_;
  const std::string& where_;
  mutable std::string unpacked_;
};

}  // namespace

void for_each_zip_member(std::string_view archive, const std::string& where, int64_t max_bytes,
                         const std::function<void(std::string, std::string_view)>& use) {
  ZipArchive(archive, where).for_each(max_bytes, use);
}

}  // namespace cohort::internal::data
