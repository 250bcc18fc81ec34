// SPDX-License-Identifier: Apache-2.0
//
// Tensors as text, by NumPy's rules (numpy.array2string): the shortest digits that tell a number
// from its neighbours, at most 8 behind the point, points below each other, lines of 75 characters.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::runtime {
namespace {

constexpr int kPrecision = 8;         // digits behind the point
constexpr int64_t kThreshold = 1000;  // more elements are summarised
constexpr int64_t kEdge = 3;          // then so many stay at each end of an axis
constexpr std::size_t kLineWidth = 75;

// A float16 or bfloat16 with no more digits than tell it from its neighbours.
double shortened(double value, DType dtype) {
  if (!std::isfinite(value) || (dtype != kFloat16 && dtype != kBFloat16)) return value;
  const auto rounded = [dtype](double x) {
    return dtype == kFloat16
               ? static_cast<double>(static_cast<float>(c10::Half(static_cast<float>(x))))
               : static_cast<double>(static_cast<float>(c10::BFloat16(static_cast<float>(x))));
  };
  for (int digits = 1; digits <= 6; ++digits) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                   std::chars_format::scientific, digits - 1)
                         .ptr;
    const double candidate = std::strtod(std::string(text.data(), end).c_str(), nullptr);
    if (rounded(candidate) == value) return candidate;
  }
  return value;
}

std::string to_text(double value, bool single, std::chars_format format) {
  std::array<char, 400> text{};
  char* const begin = text.data();
  char* const limit = begin + text.size();
  const auto result = single ? std::to_chars(begin, limit, static_cast<float>(value), format)
                             : std::to_chars(begin, limit, value, format);
  return {begin, result.ptr};
}

std::string to_text(double value, std::chars_format format, int precision) {
  std::array<char, 400> text{};
  const auto result =
      std::to_chars(text.data(), text.data() + text.size(), value, format, precision);
  return {text.data(), result.ptr};
}

/// A number as its digits before and behind the point, and an exponent.
struct Digits {
  std::string whole;
  std::string fraction;
  std::string exponent;
};

Digits split_number(const std::string& text) {
  const std::size_t e = text.find('e');
  const std::string mantissa = text.substr(0, e);
  const std::size_t point = mantissa.find('.');
  Digits out{mantissa.substr(0, point),
             point == std::string::npos ? "" : mantissa.substr(point + 1),
             e == std::string::npos ? "" : text.substr(e)};
  const std::size_t last = out.fraction.find_last_not_of('0');
  out.fraction.resize(last == std::string::npos ? 0 : last + 1);
  return out;
}

Digits digits_of(double value, bool single, std::chars_format format) {
  Digits shortest = split_number(to_text(value, single, format));
  if (shortest.fraction.size() <= kPrecision) return shortest;
  return split_number(to_text(value, format, kPrecision));
}

std::string special_text(double value) {
  if (std::isnan(value)) return "nan";
  return value < 0 ? "-inf" : "inf";
}

bool needs_exponent(const std::vector<double>& values) {
  double least = 0;
  double greatest = 0;
  for (const double value : values) {
    const double size = std::abs(value);
    if (size == 0 || !std::isfinite(size)) continue;
    least = least == 0 ? size : std::min(least, size);
    greatest = std::max(greatest, size);
  }
  return greatest >= 1e8 || (greatest > 0 && (least < 1e-4 || greatest / least > 1000));
}

std::vector<std::string> float_texts(const std::vector<double>& values, DType dtype) {
  const bool single = dtype != kFloat64;
  const bool with_exponent = needs_exponent(values);
  const auto format = with_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  std::vector<Digits> parts;
  std::size_t before = 0;
  std::size_t behind = 0;
  for (const double value : values) {
    Digits& part = parts.emplace_back();
    if (!std::isfinite(value)) continue;
    part = digits_of(value, single, format);
    before = std::max(before, part.whole.size());
    behind = std::max(behind, part.fraction.size());
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Digits& part = parts[i];
    if (!std::isfinite(values[i])) {
      out.push_back(special_text(values[i]));
      continue;
    }
    const char fill = with_exponent ? '0' : ' ';  // as NumPy does
    part.fraction.resize(behind, fill);
    out.push_back(std::string(before - part.whole.size(), ' ') + part.whole + "." + part.fraction +
                  part.exponent);
  }
  return out;
}

std::vector<std::string> texts_of(const Tensor& flat) {
  std::vector<std::string> out;
  const DType dtype = flat.scalar_type();
  if (dtype == kBool) {
    for (const bool value : to_vector<bool>(flat)) out.emplace_back(value ? "True" : "False");
  } else if (at::isIntegralType(dtype, /*includeBool=*/false)) {
    for (const int64_t value : to_vector<int64_t>(flat)) out.push_back(std::to_string(value));
  } else {
    std::vector<double> values = to_vector<double>(flat);
    for (double& value : values) value = shortened(value, dtype);
    out = float_texts(values, dtype);
  }
  std::size_t width = 0;
  for (const std::string& text : out) width = std::max(width, text.size());
  for (std::string& text : out) text.insert(0, width - text.size(), ' ');
  return out;
}

/// Writes the nested brackets of one tensor.
class Layout {
 public:
  explicit Layout(const Tensor& t) : shape_(shape_of(t)), summarised_(t.numel() > kThreshold) {
    Tensor shown = t;
    for (int64_t axis = 0; summarised_ && axis < t.dim(); ++axis) {
      const int64_t size = shown.size(axis);
      if (size <= 2 * kEdge) continue;
      const std::vector<Tensor> ends = {shown.narrow(axis, 0, kEdge),
                                        shown.narrow(axis, size - kEdge, kEdge)};
      shown = concat(ends, axis);
    }
    texts_ = texts_of(shown.reshape({-1}));
  }

  std::string text() {
    if (shape_.empty()) return texts_[0].substr(texts_[0].find_first_not_of(' '));
    return axis_text(0);
  }

 private:
  bool cuts(std::size_t axis) const { return summarised_ && shape_[axis] > 2 * kEdge; }
  int64_t shown(std::size_t axis) const { return cuts(axis) ? 2 * kEdge : shape_[axis]; }

  std::string axis_text(std::size_t axis) {
    return axis + 1 == shape_.size() ? row_text(axis) : block_text(axis);
  }

  std::string row_text(std::size_t axis) {
    const std::string indent(axis + 1, ' ');
    std::string out = "[";
    std::size_t line = axis + 1;
    const auto add = [&](const std::string& word, bool first) {
      // Room for the brackets that close on the line.
      if (!first && line + 1 + word.size() + shape_.size() > kLineWidth) {
        out += "\n" + indent;
        line = indent.size();
      } else if (!first) {
        out += ' ';
        ++line;
      }
      out += word;
      line += word.size();
    };
    for (int64_t i = 0; i < shown(axis); ++i) {
      if (cuts(axis) && i == kEdge) add("...", false);
      add(texts_[next_++], i == 0);
    }
    return out + "]";
  }

  std::string block_text(std::size_t axis) {
    const std::string between(shape_.size() - axis - 1, '\n');
    const std::string indent(axis + 1, ' ');
    std::string out = "[";
    for (int64_t i = 0; i < shown(axis); ++i) {
      if (i > 0) out += between + indent;
      if (cuts(axis) && i == kEdge) out += "..." + between + indent;
      out += axis_text(axis + 1);
    }
    return out + "]";
  }

  const Shape shape_;
  const bool summarised_;
  std::vector<std::string> texts_;
  std::size_t next_ = 0;
};

bool is_printable(const Tensor& t) {
  return t.layout() == at::kStrided && t.device().type() != at::kMeta && !t.is_quantized() &&
         !t.is_complex() && (t.is_floating_point() || at::isIntegralType(t.scalar_type(), true));
}

}  // namespace

std::string values_text(const Tensor& t) {
  if (!t.defined()) return "undefined";
  const at::NoGradGuard no_grad;
  if (!is_printable(t)) return "...";
  if (t.numel() == 0) return "[]";
  return Layout(t.detach().cpu()).text();
}

void print_tensor(std::ostream& out, const Tensor& t) {
  if (!t.defined()) {
    out << "Tensor(undefined)";
    return;
  }
  const std::string values = values_text(t);
  // Rows stand below each other only from the start of a line.
  out << "Tensor(" << (values.find('\n') == std::string::npos ? "" : "\n") << values
      << ", shape=" << bracketed(t.sizes()) << ", dtype=" << dtype_name(t.scalar_type()) << ")";
}

void print_shape(std::ostream& out, const Shape& shape) {
  out << '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out << ", ";
    if (shape[i] == kUnknownDim) {
      out << '?';
    } else {
      out << shape[i];
    }
  }
  out << ']';
}

}  // namespace cohort::internal::runtime
