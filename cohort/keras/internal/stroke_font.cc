// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/stroke_font.h"

#include <algorithm>

namespace cohort::keras::internal {
namespace {

// A grid of 5 columns and 10 rows; capitals stand in rows 0 to 7, small letters begin in row 3 and
// go down to row 9. A line is its points, a digit for the column and one for the row.
constexpr double kColumns = 6;  // with the gap to the next letter
constexpr double kBaseline = 7;
constexpr double kRows = 13;  // from one line of text to the next
constexpr const char* kBox = "0040470700";

struct Glyph {
  char letter;
  const char* lines;
};
constexpr Glyph kGlyphs[] = {
    {' ', ""},
    {'0', "103041463717060110"},
    {'1', "012027 0747"},
    {'2', "01103041420747"},
    {'3', "01103041423323 334446371706"},
    {'4', "37300545"},
    {'5', "400003334446371706"},
    {'6', "413010010617374644331304"},
    {'7', "004017"},
    {'8', "13020110304142331304061737464433"},
    {'9', "433414030110304146371706"},
    {'a', "13334447 451506173746"},
    {'b', "0007 0413334446371706"},
    {'c', "4433130406173746"},
    {'d', "4047 4433130406173746"},
    {'e', "05454433130406173746"},
    {'f', "40302127 0343"},
    {'g', "4348391908 4433130406173746"},
    {'h', "0007 0413334447"},
    {'i', "2327 2121"},
    {'j', "33382919 3131"},
    {'k', "0007 4305 2447"},
    {'l', "202637"},
    {'m', "0307 04132427 24334447"},
    {'n', "0307 0413334447"},
    {'o', "133344463717060413"},
    {'p', "0309 0413334446371706"},
    {'q', "4349 4433130406173746"},
    {'r', "0307 04133344"},
    {'s', "4313041535463707"},
    {'t', "21263747 0343"},
    {'u', "0306173746 4347"},
    {'v', "032743"},
    {'w', "0317243743"},
    {'x', "0347 4307"},
    {'y', "0327 4319"},
    {'z', "03430747"},
    {'A', "072047 1535"},
    {'B', "00073746443303 3342413000"},
    {'C', "4130100106173746"},
    {'D', "00073746413000"},
    {'E', "40000747 0333"},
    {'F', "400007 0333"},
    {'G', "41301001061737464424"},
    {'H', "0007 4047 0343"},
    {'I', "1030 1737 2027"},
    {'J', "4046371706"},
    {'K', "0007 4004 1347"},
    {'L', "000747"},
    {'M', "0700244047"},
    {'N', "07004740"},
    {'O', "103041463717060110"},
    {'P', "07003041423303"},
    {'Q', "103041463717060110 2547"},
    {'R', "07003041423303 2347"},
    {'S', "413010010213334446371706"},
    {'T', "0040 2027"},
    {'U', "000617374640"},
    {'V', "002740"},
    {'W', "0017233740"},
    {'X', "0047 4007"},
    {'Y', "002340 2327"},
    {'Z', "00400747"},
    {'.', "2727"},
    {',', "2718"},
    {':', "2424 2727"},
    {'-', "1434"},
    {'+', "2226 0444"},
    {'=', "0343 0545"},
    {'_', "0747"},
    {'/', "0740"},
    {'(', "30222537"},
    {')', "10222517"},
    {'%', "0740 0101 4646"},
};

const char* lines_of(char letter) {
  for (const Glyph& glyph : kGlyphs) {
    if (glyph.letter == letter) return glyph.lines;
  }
  return kBox;
}

bool begins(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

}  // namespace

double stroke_advance(double size) { return kColumns * size / kRows; }

std::size_t character_count(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins));
}

std::vector<std::vector<Point>> text_strokes(Point at, const std::string& text, double size) {
  std::vector<std::vector<Point>> lines;
  const double unit = size / kRows;
  for (const char letter : text) {
    if (!begins(letter)) continue;
    const std::string glyph = lines_of(letter);
    std::vector<Point> line;
    const auto end_line = [&] {
      if (!line.empty()) lines.push_back(std::move(line));
      line = {};
    };
    for (std::size_t i = 0; i < glyph.size();) {
      if (glyph[i] == ' ') {
        end_line();
        ++i;
        continue;
      }
      line.push_back(
          {at.x + (glyph[i] - '0') * unit, at.y + (glyph[i + 1] - '0' - kBaseline) * unit});
      i += 2;
    }
    end_line();
    at.x += stroke_advance(size);
  }
  return lines;
}

}  // namespace cohort::keras::internal
