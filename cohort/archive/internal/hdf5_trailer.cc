// SPDX-License-Identifier: Apache-2.0
#include "cohort/archive/internal/hdf5_trailer.h"

#include <algorithm>
#include <cstdint>

#include "cohort/base/crc32c.h"

namespace cohort::internal::archive {
namespace {

constexpr std::string_view kBegin = "\ncohort.crc32c \n";
static_assert(kBegin.size() + sizeof(uint32_t) == kTrailerBytes);

}  // namespace

void write_trailer(FileBytes& file) {
  const std::size_t content = file.size - kTrailerBytes;
  const uint32_t sum = base::crc32c(file.view().substr(0, content));
  char* out = std::copy(kBegin.begin(), kBegin.end(), file.data.get() + content);
  for (int shift = 0; shift < 32; shift += 8) *out++ = static_cast<char>(sum >> shift);
}

std::optional<uint32_t> trailer_sum(std::string_view last) {
  if (!last.starts_with(kBegin)) return {};
  uint32_t written = 0;
  for (std::size_t i = kTrailerBytes; i-- > kBegin.size();) {
    written = written << 8 | static_cast<unsigned char>(last[i]);
  }
  return written;
}

std::optional<std::string_view> without_trailer(std::string_view file) {
  if (file.size() < kTrailerBytes) return file;
  const std::string_view content = file.substr(0, file.size() - kTrailerBytes);
  const std::optional<uint32_t> written = trailer_sum(file.substr(content.size()));
  if (!written) return file;
  if (*written != base::crc32c(content)) return {};
  return content;
}

}  // namespace cohort::internal::archive
