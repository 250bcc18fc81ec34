// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/plot_history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/base/display.h"
#include "cohort/base/strings.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/keras/internal/canvas.h"

namespace cohort::keras::utils {
namespace {

using internal::Anchor;
using internal::Canvas;
using internal::Color;
using internal::Point;

constexpr Color kText{60, 60, 60}, kGrid{225, 225, 225}, kAxis{130, 130, 130};
constexpr std::array kCurves = {Color{31, 119, 180}, Color{255, 127, 14}};
constexpr double kTextSize = 13;
constexpr const char* kValidation = "val_";
constexpr double kLeft = 72, kRight = 18, kTop = 38, kBottom = 44;

// Numbers of an axis: where its ticks are.
struct Ticks {
  double step = 1, first = 0, last = 1;
  int digits = 0;  // behind the point

  std::string text(double value) const {
    if (std::abs(value) < step / 2) value = 0;  // and not -0
    if (std::abs(value) < 1e6 && digits <= 6) {
      return cohort::internal::base::fixed_text(value, digits);
    }
    std::array<char, 64> out = {};
    std::snprintf(out.data(), out.size(), "%.3g", value);
    return out.data();
  }
};

// Steps of 1, 2 or 5 times a power of ten, about `parts` of them.
Ticks ticks_over(double low, double high, double parts, double least_step) {
  const double rough = std::max((high - low) / parts, least_step);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    step = times * power;
    if (step >= rough * 0.999) break;
  }
  Ticks ticks{step, std::ceil(low / step - 1e-9) * step, std::floor(high / step + 1e-9) * step};
  ticks.digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  return ticks;
}

struct Curve {
  std::string label;
  const std::vector<double>* values;
};

class Diagram {
 public:
  Diagram(Canvas& canvas, const std::vector<int>& epochs, Point corner, const PlotOptions& options)
      : canvas_(canvas),
        epochs_(epochs),
        left_(corner.x + kLeft),
        right_(corner.x + options.width - kRight),
        top_(corner.y + kTop),
        bottom_(corner.y + options.height - kBottom) {}

  void draw(const std::string& name, const std::vector<Curve>& curves) {
    set_range(curves);
    axes();
    canvas_.text({left_, top_ - 14}, name, Anchor::kStart, kTextSize + 3, kText);
    double legend = right_;
    for (std::size_t i = curves.size(); i-- > 0;) {
      canvas_.text({legend, top_ - 14}, curves[i].label, Anchor::kEnd, kTextSize, kText);
      legend -= 7.0 * static_cast<double>(curves[i].label.size()) + 6;
      canvas_.line({{legend - 20, top_ - 18}, {legend, top_ - 18}}, kCurves[i], 2);
      legend -= 36;
    }
    for (std::size_t i = 0; i < curves.size(); ++i) draw_curve(*curves[i].values, kCurves[i]);
  }

 private:
  void set_range(const std::vector<Curve>& curves) {
    low_ = std::numeric_limits<double>::infinity();
    high_ = -low_;
    for (const Curve& curve : curves) {
      for (const double value : *curve.values) {
        if (!std::isfinite(value)) continue;
        low_ = std::min(low_, value);
        high_ = std::max(high_, value);
      }
    }
    if (low_ > high_) low_ = high_ = 0;  // nothing to show
    // Room around the curves; a level one stands in the middle.
    const double least = std::max(std::abs(high_) * 1e-6, 1e-12);
    const double room =
        high_ - low_ > least ? 0.05 * (high_ - low_) : std::max(0.05 * std::abs(high_), 1e-3);
    low_ -= room;
    high_ += room;
    first_epoch_ = epochs_.empty() ? 0 : epochs_.front();
    last_epoch_ = epochs_.empty() ? 1 : epochs_.back();
    if (last_epoch_ <= first_epoch_) {  // one point, in the middle
      first_epoch_ -= 0.5;
      last_epoch_ += 0.5;
    }
  }

  double x_of(double epoch) const {
    return left_ + (epoch - first_epoch_) / (last_epoch_ - first_epoch_) * (right_ - left_);
  }
  double y_of(double value) const {
    return bottom_ - (value - low_) / (high_ - low_) * (bottom_ - top_);
  }

  void axes() {
    const Ticks up = ticks_over(low_, high_, (bottom_ - top_) / 45, 0);
    for (double v = up.first; v <= up.last + up.step / 2; v += up.step) {
      canvas_.line({{left_, y_of(v)}, {right_, y_of(v)}}, kGrid, 1);
      canvas_.text({left_ - 8, y_of(v) + kTextSize / 3}, up.text(v), Anchor::kEnd, kTextSize,
                   kText);
    }
    const Ticks along = ticks_over(first_epoch_, last_epoch_, (right_ - left_) / 70, 1);
    for (double e = along.first; e <= along.last + along.step / 2; e += along.step) {
      canvas_.line({{x_of(e), bottom_}, {x_of(e), bottom_ + 4}}, kAxis, 1);
      canvas_.text({x_of(e), bottom_ + 18}, along.text(e), Anchor::kMiddle, kTextSize, kText);
    }
    canvas_.line({{left_, top_}, {left_, bottom_}, {right_, bottom_}}, kAxis, 1);
    canvas_.text({(left_ + right_) / 2, bottom_ + 36}, "epoch", Anchor::kMiddle, kTextSize, kText);
  }

  void draw_curve(const std::vector<double>& values, Color color) {
    std::vector<Point> part;
    const auto end_part = [&] {
      if (part.size() == 1) {
        canvas_.line(part, color, 5);  // between gaps
      } else {
        canvas_.line(part, color, 2);
      }
      part.clear();
    };
    for (std::size_t i = 0; i < values.size() && i < epochs_.size(); ++i) {
      if (std::isfinite(values[i])) {
        part.push_back({x_of(epochs_[i]), y_of(values[i])});
      } else {
        end_part();
      }
    }
    end_part();
  }

  Canvas& canvas_;
  const std::vector<int>& epochs_;
  const double left_, right_, top_, bottom_;
  double low_ = 0, high_ = 1, first_epoch_ = 0, last_epoch_ = 1;
};

// In alphabetical order, as the history has them, but "loss" first.
std::vector<std::string> names_to_draw(const History& history, const PlotOptions& options) {
  std::vector<std::string> names = options.names;
  for (const std::string& name : names) {
    COHORT_CHECK_ARG(history.contains(name) || history.contains(kValidation + name),
                     "[plot_history] expected names of the history, got \"", name, "\"");
  }
  if (!names.empty()) return names;
  for (const auto& [name, values] : history.history) {
    const bool validates = name.starts_with(kValidation);
    const std::string own = validates ? name.substr(std::string(kValidation).size()) : name;
    if (!validates || !history.contains(own)) names.push_back(own);
  }
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name == "loss"; });
  return names;
}

std::unique_ptr<Canvas> canvas_for(const std::string& path, int width, int height) {
  if (path.ends_with(".svg")) return internal::svg_canvas(width, height);
  COHORT_CHECK_ARG(path.ends_with(".png"),
                   "[plot_history] expected a path that ends with .svg or .png, got ", path);
  return internal::png_canvas(width, height);
}

}  // namespace

void plot_history(const History& history, const std::string& to_file, const PlotOptions& options) {
  constexpr int kLeast = 200, kMost = 10'000;
  for (const int size : {options.width, options.height}) {
    COHORT_CHECK_ARG(size >= kLeast && size <= kMost, "[plot_history] expected sizes from ", kLeast,
                     " to ", kMost, ", got ", size);
  }
  const std::vector<std::string> names = names_to_draw(history, options);
  COHORT_CHECK_ARG(!names.empty(), "[plot_history] expected a history with values, got none");
  const int whole = options.height * static_cast<int>(names.size());
  COHORT_CHECK_ARG(whole <= 10 * kMost, "[plot_history] expected at most ", 10 * kMost,
                   " pixels of height, got ", whole, ": draw fewer names");
  const std::unique_ptr<Canvas> canvas = canvas_for(to_file, options.width, whole);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<Curve> curves;
    if (history.contains(names[i])) curves.push_back({"training", &history[names[i]]});
    const std::string validation = kValidation + names[i];
    if (history.contains(validation)) curves.push_back({"validation", &history[validation]});
    const Point corner{0, static_cast<double>(options.height) * static_cast<double>(i)};
    Diagram(*canvas, history.epoch, corner, options).draw(names[i], curves);
  }
  const std::string bytes = canvas->bytes();
  cohort::internal::checkpoint::AtomicFile file("plot_history", to_file);
  file.file().write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace cohort::keras::utils
