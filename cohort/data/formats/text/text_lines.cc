// SPDX-License-Identifier: Apache-2.0
//
// text_lines.
#include "cohort/data/formats/internal/string_records.h"

namespace cohort::internal::data {
namespace {

class LineReader final : public StringReader {
 public:
  using StringReader::StringReader;

 protected:
  bool append(std::string& out) override {
    const std::size_t begin = out.size();
    bool any = false;
    while (true) {
      const std::string_view part = file().peek();
      if (part.empty()) break;
      any = true;
      const std::size_t end = part.find('\n');
      out += part.substr(0, end);
      file().consume(end == std::string_view::npos ? part.size() : end + 1);
      if (end != std::string_view::npos) break;
    }
    if (out.size() > begin && out.back() == '\r') out.pop_back();
    return any;
  }
};

}  // namespace
}  // namespace cohort::internal::data

namespace cohort::data {

Dataset Dataset::text_lines(std::vector<std::string> files, FileOptions options) {
  return internal::data::read_strings<internal::data::LineReader>("text_lines", std::move(files),
                                                                  options);
}

}  // namespace cohort::data
