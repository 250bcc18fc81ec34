// SPDX-License-Identifier: Apache-2.0
#include "cohort/summary/internal/messages.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "cohort/data/formats/internal/wire.h"

namespace cohort::internal::summary {

namespace {

enum DataType : uint8_t { kFloatType = 1, kDoubleType = 2, kStringType = 7 };

// A message that is being written.
class Message {
 public:
  Message& number(uint32_t field, uint64_t value) {
    tag(field, data::WireType::kVarint);
    data::append_varint(bytes_, value);
    return *this;
  }
  Message& real(uint32_t field, double value) {
    tag(field, data::WireType::kFixed64);
    append_fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& bytes(uint32_t field, std::string_view value) {
    data::append_bytes_field(bytes_, field, value);
    return *this;
  }
  /// Without a tag: an element of a packed field.
  void append_fixed(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  std::string take() { return std::move(bytes_); }

 private:
  void tag(uint32_t field, data::WireType type) {
    data::append_varint(bytes_, (uint64_t{field} << 3) | static_cast<uint64_t>(type));
  }
  std::string bytes_;
};

std::string shape_of(std::initializer_list<int64_t> sizes) {
  Message shape;
  for (const int64_t size : sizes) {
    shape.bytes(2, Message().number(1, static_cast<uint64_t>(size)).take());
  }
  return shape.take();
}

Message tensor_of(DataType dtype, std::initializer_list<int64_t> sizes) {
  Message out;
  out.number(1, dtype).bytes(2, shape_of(sizes));
  return out;
}

// A google.protobuf.Value.
std::string value_of(const HParam& value) {
  Message out;
  if (const auto* yes = std::get_if<bool>(&value)) {
    out.number(4, *yes ? 1 : 0);
  } else if (const auto* number = std::get_if<double>(&value)) {
    out.real(2, *number);
  } else {
    out.bytes(3, std::get<std::string>(value));
  }
  return out.take();
}

// As tf.summary.histogram: buckets of equal width; where all elements are equal the last one has
// them; none at all are rows of zeros.
std::vector<double> histogram_rows(const std::vector<double>& values, int buckets) {
  const auto count = static_cast<std::size_t>(buckets);
  std::vector<double> rows(3 * count, 0);
  if (values.empty()) return rows;
  const auto [first, last] = std::minmax_element(values.begin(), values.end());
  const double least = *first, most = *last;
  const double width = (most - least) / buckets;
  for (std::size_t b = 0; b < count; ++b) {
    rows[3 * b] = least + width * static_cast<double>(b);
    rows[3 * b + 1] = least + width * static_cast<double>(b + 1);
  }
  rows[3 * count - 2] = most;
  for (const double value : values) {
    const double place = width > 0 ? std::floor((value - least) / width) : buckets;
    const auto b = static_cast<std::size_t>(std::clamp(place, 0.0, buckets - 1.0));
    ++rows[3 * b + 2];
  }
  return rows;
}

}  // namespace

std::string version_event(double wall_time) {
  return Message().real(1, wall_time).bytes(3, "brain.Event:2").take();
}

std::string value_event(double wall_time, int64_t step, std::string_view tag,
                        const SummaryPlugin& plugin, std::string_view tensor) {
  Message plugin_data;
  plugin_data.bytes(1, plugin.name);
  if (!plugin.content.empty()) plugin_data.bytes(2, plugin.content);
  const std::string metadata = Message().bytes(1, plugin_data.take()).take();
  const std::string value = Message().bytes(9, metadata).bytes(1, tag).bytes(8, tensor).take();
  Message event;
  event.real(1, wall_time);
  if (step != 0) event.number(2, static_cast<uint64_t>(step));
  return event.bytes(5, Message().bytes(1, value).take()).take();
}

std::string float_tensor(float value) {
  Message packed;
  packed.append_fixed(std::bit_cast<uint32_t>(value), 4);
  return tensor_of(kFloatType, {}).bytes(5, packed.take()).take();
}

std::string no_floats_tensor() { return tensor_of(kFloatType, {0}).take(); }

std::string string_tensor(const std::vector<std::string>& texts, bool is_scalar) {
  Message out = is_scalar ? tensor_of(kStringType, {})
                          : tensor_of(kStringType, {static_cast<int64_t>(texts.size())});
  for (const std::string& text : texts) out.bytes(8, text);
  return out.take();
}

std::string histogram_tensor(const Tensor& values, int buckets) {
  const Tensor all = values.detach().to(at::Device(at::kCPU), kFloat64).contiguous();
  std::vector<double> finite;
  finite.reserve(static_cast<std::size_t>(all.numel()));
  const double* const data = all.const_data_ptr<double>();
  std::copy_if(data, data + all.numel(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  Message content;
  for (const double number : histogram_rows(finite, buckets)) {
    content.append_fixed(std::bit_cast<uint64_t>(number), 8);
  }
  return tensor_of(kDoubleType, {buckets, 3}).bytes(4, content.take()).take();
}

std::string session_start(const std::vector<std::pair<std::string, HParam>>& values,
                          double wall_time) {
  Message start;
  for (const auto& [name, value] : values) {
    start.bytes(1, Message().bytes(1, name).bytes(2, value_of(value)).take());
  }
  start.real(5, wall_time);
  return Message().bytes(3, start.take()).take();
}

}  // namespace cohort::internal::summary
