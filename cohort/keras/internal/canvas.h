// SPDX-License-Identifier: Apache-2.0
//
// A picture of lines and texts, as SVG or as PNG; internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cohort::keras::internal {

struct Point {
  double x = 0, y = 0;
};

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
};

enum class Anchor { kStart, kMiddle, kEnd };

/// White, with the origin at the top left. Units: pixels.
class Canvas {
 public:
  Canvas() = default;
  virtual ~Canvas() = default;
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  /// Through all points; one point is a dot.
  virtual void line(const std::vector<Point>& points, Color color, double width) = 0;
  /// `at`: on the line that the letters stand on. `size`: from one line to the next.
  virtual void text(Point at, const std::string& text, Anchor anchor, double size, Color color) = 0;
  /// The file.
  virtual std::string bytes() const = 0;
};

std::unique_ptr<Canvas> svg_canvas(int width, int height);
/// Texts are drawn of strokes (stroke_font.h): no font is asked for.
std::unique_ptr<Canvas> png_canvas(int width, int height);

}  // namespace cohort::keras::internal
