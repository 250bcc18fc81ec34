// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/summary.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace cohort::internal {

namespace {

// Inner widths of the columns. Keras ends them at 45, 80 and 100% of a line of 88 or what the
// terminal has but for 4, and takes the 10 characters between them off where rich does.
using Widths = std::array<std::size_t, 3>;

Widths widths_for(int64_t columns) {
  constexpr int64_t kDefault = 80;
  constexpr int64_t kMost = 88;
  constexpr int64_t kLeast = 36;
  const int64_t line = std::clamp((columns > 0 ? columns : kDefault) - 4, kLeast, kMost);
  const int64_t first = line * 45 / 100;
  const int64_t second = line * 80 / 100;
  const auto width = [](int64_t n) { return static_cast<std::size_t>(n); };
  return {width(first - 3), width(second - first - 4), width(line - second - 3)};
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

// Cuts at the last space that fits, else where the column ends.
std::vector<std::string> folded(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (length_of(text) > width) {
    const std::size_t end = byte_of(text, width);
    const std::size_t space = text.rfind(' ', end);
    const bool at_space = space != std::string::npos && space > text.find_first_not_of(' ');
    lines.push_back(text.substr(0, at_space ? space : end));
    text.erase(0, at_space ? space + 1 : end);
  }
  lines.push_back(std::move(text));
  return lines;
}

std::string padded(const std::string& text, const Widths& widths, std::size_t column) {
  const std::string space(widths[column] - std::min(widths[column], length_of(text)), ' ');
  return column + 1 == widths.size() ? space + text : text + space;  // numbers stand right
}

std::string rule(const Widths& widths, const char* left, const char* line, const char* cross,
                 const char* right) {
  std::string out = left;
  for (std::size_t column = 0; column < widths.size(); ++column) {
    if (column > 0) out += cross;
    for (std::size_t i = 0; i < widths[column] + 2; ++i) out += line;
  }
  return out + right + "\n";
}

std::string table_row(const Widths& widths, const std::array<std::string, 3>& cells,
                      const std::string& bar) {
  std::array<std::vector<std::string>, 3> lines;
  std::size_t height = 0;
  for (std::size_t column = 0; column < cells.size(); ++column) {
    lines[column] = folded(cells[column], widths[column]);
    height = std::max(height, lines[column].size());
  }
  std::string out;
  for (std::size_t line = 0; line < height; ++line) {
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const bool there = line < lines[column].size();
      out += bar + " " + padded(there ? lines[column][line] : "", widths, column) + " ";
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
                          const SummaryFoot& foot, int64_t columns) {
  const Widths widths = widths_for(columns);
  std::string out = "Model: \"" + model + "\"\n";
  out += rule(widths, "\u250f", "\u2501", "\u2533", "\u2513");
  out += table_row(widths, {"Layer (type)", "Output Shape", "Param #"}, "\u2503");
  out += rule(widths, "\u2521", "\u2501", "\u2547", "\u2529");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) out += rule(widths, "\u251c", "\u2500", "\u253c", "\u2524");
    out += table_row(widths, {rows[i].layer, rows[i].output_shape, rows[i].parameters}, "\u2502");
  }
  out += rule(widths, "\u2514", "\u2500", "\u2534", "\u2518");
  out += foot_line("Total", foot.trainable + foot.non_trainable + foot.optimizer);
  out += foot_line("Trainable", foot.trainable);
  out += foot_line("Non-trainable", foot.non_trainable);
  if (foot.optimizer.parameters > 0) out += foot_line("Optimizer", foot.optimizer);
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += shape[i] == kUnknownDim ? "None" : std::to_string(shape[i]);
  }
  return out + (shape.size() == 1 ? ",)" : ")");
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

}  // namespace cohort::internal
