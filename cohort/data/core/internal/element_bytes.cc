// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/element_bytes.h"

namespace cohort::internal::data {

int64_t element_bytes(const Element& element) {
  if (!element.has_value()) return 0;
  if (element.is_dataset()) return 0;  // Of what it would read, nothing has been.
  if (element.is_tensor()) return static_cast<int64_t>(element.tensor().nbytes());
  int64_t bytes = 0;
  if (element.is_tuple()) {
    for (std::size_t i = 0; i < element.size(); ++i) bytes += element_bytes(element[i]);
    return bytes;
  }
  if (element.rows() < 0) return static_cast<int64_t>(element.string().size());
  for (const std::string_view string : element.string_views()) {
    bytes += static_cast<int64_t>(string.size() + sizeof(std::string_view));
  }
  return bytes;
}

}  // namespace cohort::internal::data
