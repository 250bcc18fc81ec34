// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/canvas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "cohort/base/display.h"
#include "cohort/base/strings.h"
#include "cohort/data/image/image.h"
#include "cohort/keras/internal/stroke_font.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {
namespace {

// A tenth of a pixel, without what is 0 behind the point.
std::string short_number(double value) {
  const std::string out = cohort::internal::base::fixed_text(value, 1);
  return out.ends_with(".0") ? out.substr(0, out.size() - 2) : out;
}

// XML has no way to say control characters.
std::string escaped_xml(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return cohort::internal::base::markup_escaped(text);
}

std::string svg_color(Color color) {
  std::array<char, 8> text = {};
  std::snprintf(text.data(), text.size(), "#%02x%02x%02x", color.red, color.green, color.blue);
  return text.data();
}

class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height)
      : head_(str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"",
                      height, "\" viewBox=\"0 0 ", width, " ", height,
                      "\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
                      "fill=\"#ffffff\"/>\n")) {}

  void line(const std::vector<Point>& points, Color color, double width) override {
    if (points.empty()) return;
    body_ += "<polyline points=\"";
    for (const Point& p : points) body_ += short_number(p.x) + "," + short_number(p.y) + " ";
    // A line of one point has no length, which is not drawn.
    const Point& last = points.back();
    body_ += points.size() == 1 ? short_number(last.x) + "," + short_number(last.y) : "";
    body_ +=
        str_cat("\" fill=\"none\" stroke=\"", svg_color(color), "\" stroke-width=\"",
                short_number(width), "\" stroke-linecap=\"round\" stroke-linejoin=\"round\"/>\n");
  }

  void text(Point at, const std::string& text, Anchor anchor, double size, Color color) override {
    constexpr std::array kAnchors = {"start", "middle", "end"};
    body_ += str_cat("<text x=\"", short_number(at.x), "\" y=\"", short_number(at.y),
                     "\" text-anchor=\"", kAnchors[static_cast<std::size_t>(anchor)],
                     "\" font-size=\"", short_number(size), "\" fill=\"", svg_color(color), "\">",
                     escaped_xml(text), "</text>\n");
  }

  std::string bytes() const override { return head_ + body_ + "</svg>\n"; }

 private:
  const std::string head_;
  std::string body_;
};

double distance_to_line(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double length = dx * dx + dy * dy;
  const double along =
      length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0, 1.0) : 0.0;
  return std::hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

class PngCanvas final : public Canvas {
 public:
  PngCanvas(int width, int height)
      : width_(width),
        height_(height),
        pixels_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3, 255),
        covered_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {}

  // Of a pixel the share that the line covers is about how far its middle is inside of the edge;
  // where parts of a line meet, the greatest share counts, once.
  void line(const std::vector<Point>& points, Color color, double width) override {
    if (points.empty()) return;
    touched_.clear();
    cover(points[0], points[points.size() == 1 ? 0 : 1], width / 2);
    for (std::size_t i = 2; i < points.size(); ++i) cover(points[i - 1], points[i], width / 2);
    const std::array<double, 3> paint = {double(color.red), double(color.green),
                                         double(color.blue)};
    for (const std::size_t at : touched_) {
      const double share = covered_[at];
      for (std::size_t c = 0; c < 3; ++c) {
        const double mixed = pixels_[at * 3 + c] * (1 - share) + paint[c] * share;
        pixels_[at * 3 + c] = static_cast<uint8_t>(std::lround(mixed));
      }
      covered_[at] = 0;
    }
  }

  void text(Point at, const std::string& text, Anchor anchor, double size, Color color) override {
    const double whole = stroke_advance(size) * static_cast<double>(character_count(text));
    if (anchor == Anchor::kMiddle) at.x -= whole / 2;
    if (anchor == Anchor::kEnd) at.x -= whole;
    for (const std::vector<Point>& stroke : text_strokes(at, text, size)) {
      line(stroke, color, size / 11);
    }
  }

  std::string bytes() const override {
    const Tensor image = empty({height_, width_, 3}, kUint8);
    std::ranges::copy(pixels_, image.mutable_data_ptr<uint8_t>());
    return data::encode_png(image);
  }

 private:
  void cover(Point a, Point b, double half) {
    const double reach = half + 1;
    const auto first = [&](double u, double v) {
      return std::max(0, static_cast<int>(std::floor(std::min(u, v) - reach)));
    };
    const auto end = [&](double u, double v, int size) {
      return std::min(size, static_cast<int>(std::ceil(std::max(u, v) + reach)));
    };
    for (int y = first(a.y, b.y); y < end(a.y, b.y, height_); ++y) {
      for (int x = first(a.x, b.x); x < end(a.x, b.x, width_); ++x) {
        const double off = distance_to_line({x + 0.5, y + 0.5}, a, b);
        const double share = std::clamp(half + 0.5 - off, 0.0, 1.0);
        if (share <= 0) continue;
        const std::size_t at = static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                               static_cast<std::size_t>(x);
        if (covered_[at] == 0) touched_.push_back(at);
        covered_[at] = std::max(covered_[at], share);
      }
    }
  }

  const int width_, height_;
  std::vector<uint8_t> pixels_;
  std::vector<double> covered_;  // by the line that is being drawn
  std::vector<std::size_t> touched_;
};

}  // namespace

std::unique_ptr<Canvas> svg_canvas(int width, int height) {
  return std::make_unique<SvgCanvas>(width, height);
}

std::unique_ptr<Canvas> png_canvas(int width, int height) {
  return std::make_unique<PngCanvas>(width, height);
}

}  // namespace cohort::keras::internal
