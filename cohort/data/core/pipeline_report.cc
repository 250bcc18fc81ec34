// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/pipeline_report.h"

#include <algorithm>
#include <array>

#include "cohort/base/display.h"

namespace cohort::data {
namespace {

using internal::base::fixed_text;

constexpr std::size_t kColumns = 6;
using Line = std::array<std::string, kColumns>;

std::string milliseconds(std::chrono::nanoseconds time) {
  return fixed_text(std::chrono::duration<double, std::milli>(time).count(), 1);
}

Line line_of(const NodeReport& node) {
  std::string buffer;
  if (node.buffer_capacity > 0) {
    buffer = fixed_text(node.buffer_mean, 1) + ", most " + std::to_string(node.buffer_max) +
             " of " + std::to_string(node.buffer_capacity);
  }
  return {node.path,
          std::to_string(node.elements),
          milliseconds(node.own),
          milliseconds(node.waited),
          node.threads > 0 ? std::to_string(node.threads) : "",
          buffer};
}

}  // namespace

std::string PipelineReport::to_string() const {
  std::vector<Line> lines = {
      {"step", "elements", "own ms", "waited ms", "threads", "ready when asked"}};
  for (const NodeReport& node : nodes) lines.push_back(line_of(node));
  std::array<std::size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (std::size_t row = 0; row < lines.size(); ++row) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      const std::string& cell = lines[row][i];
      const std::string space(widths[i] - cell.size(), ' ');
      // Text on the left, numbers on the right.
      out += (i == 0 || i + 1 == kColumns) ? cell + space : space + cell;
      if (i + 1 < kColumns) out += "  ";
    }
    out.erase(out.find_last_not_of(' ') + 1);
    if (static_cast<int>(row) == bottleneck + 1 && row > 0) out += "  <- bottleneck";
    out += '\n';
  }
  out += "reader: " + milliseconds(elapsed) + " ms, " + milliseconds(waited) + " ms in next()\n";
  return out;
}

}  // namespace cohort::data
