// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/fingerprint.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "cohort/base/crc32c.h"
#include "cohort/base/strings.h"

namespace cohort::internal::data {

std::string pipeline_text(const DatasetNode& node) {
  std::string out = str_cat(node.operation(), "[", node.arguments(), "] ", node.spec().to_string());
  if (node.inputs().empty()) return out;
  out += " (";
  for (const NodePtr& input : node.inputs()) out += pipeline_text(*input) + "; ";
  return out + ")";
}

std::string short_hash(std::string_view text) {
  constexpr uint64_t kOffset = 0xcbf29ce484222325U;
  constexpr uint64_t kPrime = 0x100000001b3U;
  uint64_t hash = kOffset;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * kPrime;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(hash >> shift) & 0xf];
  return out;
}

std::string element_text(const Element& element) {
  StateWriter bytes;
  bytes.put_element(element);
  return short_hash(std::move(bytes).take());
}

std::string rows_text(const RowSource& rows) {
  constexpr int64_t kRowsAtOnce = 1024;
  uint32_t crc = 0;
  for (int64_t begin = 0; begin < rows.size(); begin += kRowsAtOnce) {
    std::vector<int64_t> numbers(
        static_cast<std::size_t>(std::min(kRowsAtOnce, rows.size() - begin)));
    std::iota(numbers.begin(), numbers.end(), begin);
    StateWriter bytes;
    bytes.put_element(rows.gather(numbers));
    crc = base::crc32c(std::move(bytes).take(), crc);
  }
  return str_cat(rows.size(), " rows ", crc);
}

}  // namespace cohort::internal::data
