// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/journal_frames.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "cohort/base/crc32c.h"

namespace cohort::internal::coordinator {
namespace {

// A record's length and its checksum, before it; and its own, behind it.
constexpr std::size_t kLengthBytes = sizeof(uint64_t) + sizeof(uint32_t);
constexpr std::size_t kTailBytes = sizeof(uint32_t);
constexpr std::size_t kToldBytes = sizeof(uint64_t);
// Results have 63 MiB at most.
constexpr uint64_t kMostRecord = uint64_t{128} << 20;

// Nothing: it is no record's head.
std::optional<uint64_t> length_of(std::string_view head) {
  uint64_t length = 0;
  uint32_t checksum = 0;
  std::memcpy(&length, head.data(), sizeof length);
  std::memcpy(&checksum, head.data() + sizeof length, sizeof checksum);
  if (length < kToldBytes || length > kMostRecord) return std::nullopt;
  if (base::masked_crc32c(head.substr(0, sizeof length)) != checksum) return std::nullopt;
  return length;
}

}  // namespace

std::string framed(uint64_t told, const std::string& record) {
  std::string inner(kToldBytes, '\0');
  std::memcpy(inner.data(), &told, sizeof told);
  inner += record;
  const uint64_t length = inner.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  const auto add_checksum_of = [&out](std::string_view bytes) {
    const uint32_t checksum = base::masked_crc32c(bytes);
    out.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  };
  add_checksum_of(out);
  out += inner;
  add_checksum_of(inner);
  return out;
}

std::optional<JournalFrame> frame_at(const checkpoint::InputFile& file, uint64_t at) {
  if (file.size() - at < kLengthBytes + kTailBytes) return std::nullopt;
  std::string head(kLengthBytes, '\0');
  file.read(at, head.data(), head.size());
  const std::optional<uint64_t> length = length_of(head);
  if (!length || *length > file.size() - at - kLengthBytes - kTailBytes) return std::nullopt;
  std::string inner(*length, '\0');
  file.read(at + kLengthBytes, inner.data(), *length);
  uint32_t checksum = 0;
  file.read(at + kLengthBytes + *length, &checksum, sizeof checksum);
  if (base::masked_crc32c(inner) != checksum) return std::nullopt;
  JournalFrame out{.bytes = kLengthBytes + *length + kTailBytes};
  std::memcpy(&out.told, inner.data(), sizeof out.told);
  out.record = inner.substr(kToldBytes);
  return out;
}

std::optional<uint64_t> told_behind(const checkpoint::InputFile& file, uint64_t at) {
  std::string rest(std::min(file.size() - at, kMostRecord), '\0');
  if (!rest.empty()) file.read(at, rest.data(), rest.size());
  for (std::size_t i = 1; i + kLengthBytes + kTailBytes <= rest.size(); ++i) {
    if (!length_of(std::string_view(rest).substr(i, kLengthBytes))) continue;
    const std::optional<JournalFrame> frame = frame_at(file, at + i);
    if (frame && frame->told > at) return at + i;
  }
  return std::nullopt;
}

}  // namespace cohort::internal::coordinator
