// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace cohort::keras::internal {

namespace {

enum class Side { kLeft, kRight, kMiddle };

struct SummaryColumn {
  std::string title;
  std::string SummaryRow::*text;
  Side side;
  double end;             // its right end, as a part of the line
  std::size_t width = 0;  // without what stands around it
};
using SummaryColumnList = std::vector<SummaryColumn>;

// Keras gives each column its part of a line, of what the terminal has but for 4 and of this at
// most, and takes the characters between the columns off where rich does: the same of each, rounded
// to even.
void set_widths(SummaryColumnList& columns, int64_t terminal, int64_t most) {
  constexpr int64_t kDefault = 80;
  constexpr int64_t kLeast = 36;
  const int64_t line = std::clamp((terminal > 0 ? terminal : kDefault) - 4, kLeast, most);
  auto left = static_cast<int64_t>(columns.size());
  int64_t excess = 3 * left + 1, begin = 0;
  for (SummaryColumn& column : columns) {
    const auto end = static_cast<int64_t>(column.end * static_cast<double>(line));
    const auto off = std::lrint(static_cast<double>(excess) / static_cast<double>(left--));
    column.width = static_cast<std::size_t>(std::max<int64_t>(end - begin - off, 1));
    excess -= off;
    begin = end;
  }
}

SummaryColumnList columns_for(SummaryColumns more, int64_t terminal) {
  SummaryColumnList all = {{"Layer (type)", &SummaryRow::layer, Side::kLeft, 0.45},
                           {"Output Shape", &SummaryRow::output_shape, Side::kLeft, 0.80},
                           {"Param #", &SummaryRow::parameters, Side::kRight, 1.0}};
  int64_t most = 88;
  if (more.connected_to) {
    all[0].end = 0.3, all[1].end = 0.56, all[2].end = 0.74;
    all.push_back({"Connected to", &SummaryRow::connected_to, Side::kLeft, 1.0});
    most = 108;
  }
  if (more.trainable) {
    for (SummaryColumn& column : all) column.end *= 0.90;
    all.push_back({"Trainable", &SummaryRow::trainable, Side::kMiddle, 1.0});
    most += 12;
  }
  set_widths(all, terminal, most);
  return all;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

// On the terminal: UTF-8 has several bytes for some characters.
std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

// The byte at which the character of this number begins.
std::size_t byte_of(const std::string& text, std::size_t character) {
  std::size_t seen = 0, at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && seen++ == character) break;
  }
  return at;
}

void cut(std::string& line, std::size_t width) {
  line.erase(line.find_last_not_of(' ') + 1);
  if (length_of(line) > width) line.erase(byte_of(line, width - 1)).append("\u2026");
}

// A word that does not fit goes on in the next line; one that fits in none is cut off.
std::vector<std::string> folded(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  const auto end_of = [&](std::size_t found) { return std::min(found, text.size()); };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = end_of(text.find_first_not_of(' ', at));
    const std::size_t end = end_of(text.find(' ', begin));
    const std::size_t length = length_of(lines.back()) + length_of(text.substr(at, end - at));
    if (at > 0 && length > width) lines.emplace_back();
    const std::size_t next = end_of(text.find_first_not_of(' ', end));
    lines.back() += text.substr(at, next - at);
    at = next;
  }
  for (std::string& line : lines) cut(line, width);
  return lines;
}

std::string padded(const std::string& text, const SummaryColumn& column) {
  const std::size_t space = column.width - std::min(column.width, length_of(text));
  const std::size_t before = column.side == Side::kLeft    ? 0
                             : column.side == Side::kRight ? space
                                                           : space / 2;
  return std::string(before, ' ') + text + std::string(space - before, ' ');
}

std::string rule(const SummaryColumnList& columns, const char* left, const char* line,
                 const char* cross, const char* right) {
  std::string out = left;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    if (column > 0) out += cross;
    for (std::size_t i = 0; i < columns[column].width + 2; ++i) out += line;
  }
  return out + right + "\n";
}

// What is lower than the row stands at its top, in the title at its bottom.
std::string table_row(const SummaryColumnList& columns, const std::vector<std::string>& cells,
                      const std::string& bar, bool is_title) {
  std::vector<std::vector<std::string>> lines;
  std::size_t height = 0;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    lines.push_back(folded(cells[column], columns[column].width));
    height = std::max(height, lines.back().size());
  }
  for (std::vector<std::string>& cell : lines) {
    cell.insert(is_title ? cell.begin() : cell.end(), height - cell.size(), "");
  }
  std::string out;
  for (std::size_t line = 0; line < height; ++line) {
    for (std::size_t column = 0; column < columns.size(); ++column) {
      out += bar + " " + padded(lines[column][line], columns[column]) + " ";
    }
    out += bar + "\n";
  }
  return out;
}

std::string foot_line(const char* label, const SummaryFoot::Count& count) {
  return " " + std::string(label) + " params: " + grouped(count.parameters) + " (" +
         memory_text(count.bytes) + ")\n";
}

SummaryFoot::Count operator+(const SummaryFoot::Count& a, const SummaryFoot::Count& b) {
  return {a.parameters + b.parameters, a.bytes + b.bytes};
}

}  // namespace

std::string summary_table(const std::string& model, const std::vector<SummaryRow>& rows,
                          const SummaryFoot& foot, int64_t columns, SummaryColumns more) {
  const SummaryColumnList all = columns_for(more, columns);
  std::vector<std::string> cells;
  for (const SummaryColumn& column : all) cells.push_back(column.title);
  std::string out = "Model: \"" + model + "\"\n";
  out += rule(all, "\u250f", "\u2501", "\u2533", "\u2513");
  out += table_row(all, cells, "\u2503", true);
  out += rule(all, "\u2521", "\u2501", "\u2547", "\u2529");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) out += rule(all, "\u251c", "\u2500", "\u253c", "\u2524");
    for (std::size_t column = 0; column < all.size(); ++column) {
      cells[column] = rows[i].*all[column].text;
    }
    out += table_row(all, cells, "\u2502", false);
  }
  out += rule(all, "\u2514", "\u2500", "\u2534", "\u2518");
  out += foot_line("Total", foot.trainable + foot.non_trainable + foot.optimizer);
  out += foot_line("Trainable", foot.trainable);
  out += foot_line("Non-trainable", foot.non_trainable);
  if (foot.optimizer.parameters > 0) out += foot_line("Optimizer", foot.optimizer);
  return out;
}

std::string shape_text(const Shape& shape) {
  const std::string text = column_shape_text(shape);
  return shape.size() == 1 ? text.substr(0, text.size() - 1) + ",)" : text;
}

std::string column_shape_text(const Shape& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += shape[i] == kUnknownDim ? "None" : std::to_string(shape[i]);
  }
  return out + ")";
}

std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string memory_text(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, kUnits[unit]);
  return text.data();
}

int64_t parameters_of(const Variable& v) {
  int64_t count = 1;
  for (int64_t size : v.shape()) count *= size;
  return count;
}

}  // namespace cohort::keras::internal
