// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/format.h"

#include <cstdio>

#include "cohort/base/crc32c.h"
#include "cohort/base/strings.h"

namespace cohort::internal::checkpoint {

uint32_t header_sum(const std::map<std::string, std::string>& metadata,
                    const std::map<std::string, FormatEntry>& entries) {
  uint32_t crc = 0;
  // Lengths in front, so that no two lists of texts are the same bytes.
  const auto add = [&](std::string_view text) {
    crc = base::crc32c(text, base::crc32c(str_cat(text.size(), ":"), crc));
  };
  for (const auto& [key, text] : metadata) {
    if (key == kHeaderSum) continue;
    add(key);
    add(text);
  }
  for (const auto& [name, entry] : entries) {
    add(name);
    add(entry.type);
    add(bracketed(entry.shape));
  }
  return crc;
}

std::string digits_of(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

}  // namespace cohort::internal::checkpoint
