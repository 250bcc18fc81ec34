// SPDX-License-Identifier: Apache-2.0
//
// Features out of bytes, into whatever takes their values.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/core/internal/rows/packed_strings.h"
#include "cohort/data/formats/internal/wire.h"

namespace cohort::internal::data {

/// The number of a kind's field in Feature; 0 for none.
enum class FeatureKind : uint32_t { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

template <class T>
inline constexpr FeatureKind feature_kind_of = std::is_same_v<T, float>     ? FeatureKind::kFloat
                                               : std::is_same_v<T, int64_t> ? FeatureKind::kInt64
                                                                            : FeatureKind::kBytes;

/// Calls use(name, value bytes) for the entries of a map<string, message>.
template <class Use>
void for_each_entry(std::string_view message, uint32_t field, const Use& use) {
  WireReader reader(message);
  WireField entry;
  while (reader.next(entry)) {
    if (!entry.is(field, WireType::kBytes)) continue;
    WireReader parts(entry.bytes);
    WireField part;
    std::string_view name, value;
    while (parts.next(part)) {
      if (part.is(1, WireType::kBytes)) name = part.bytes;
      if (part.is(2, WireType::kBytes)) value = part.bytes;
    }
    use(name, value);
  }
}

/// Calls use(value bytes) for every message in `field`.
template <class Use>
void for_each_message(std::string_view message, uint32_t field, const Use& use) {
  WireReader reader(message);
  WireField part;
  while (reader.next(part)) {
    if (part.is(field, WireType::kBytes)) use(part.bytes);
  }
}

/// The list of a feature and its kind: the last one that was written.
inline FeatureKind feature_list(std::string_view feature, std::string_view& list) {
  WireReader reader(feature);
  WireField field;
  FeatureKind kind = FeatureKind::kNone;
  while (reader.next(field)) {
    if (field.number > 3 || field.type != WireType::kBytes) continue;
    kind = static_cast<FeatureKind>(field.number);
    list = field.bytes;
  }
  return kind;
}

/// Floats that lie one after the other, little-endian.
inline void copy_floats(std::string_view bytes, float* out) {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(out, bytes.data(), bytes.size());
  } else {
    for (WireReader packed(bytes); !packed.done();) *out++ = std::bit_cast<float>(packed.fixed32());
  }
}

/// Calls sink.add(value) for each value, and sink.add_packed(bytes) for floats that come at once.
template <class T, class Sink>
void decode_list(std::string_view list, Sink& sink) {
  WireReader reader(list);
  WireField field;
  while (reader.next(field)) {
    if (field.number != 1) continue;
    if constexpr (std::is_same_v<T, std::string>) {
      if (field.type == WireType::kBytes) sink.add(field.bytes);
    } else if constexpr (std::is_same_v<T, float>) {
      if (field.type == WireType::kFixed32) {
        sink.add(std::bit_cast<float>(static_cast<uint32_t>(field.value)));
      }
      if (field.type != WireType::kBytes) continue;
      if (field.bytes.size() % sizeof(float) != 0) {
        throw DataLoss("expected a list of whole floats, got a part of one");
      }
      sink.add_packed(field.bytes);
    } else {
      if (field.type == WireType::kVarint) sink.add(static_cast<int64_t>(field.value));
      if (field.type != WireType::kBytes) continue;
      for (WireReader packed(field.bytes); !packed.done();) {
        sink.add(static_cast<int64_t>(packed.varint()));
      }
    }
  }
}

/// Appends.
template <class T>
struct VectorSink {
  std::vector<T>& out;
  void add_packed(std::string_view bytes) {
    const std::size_t before = out.size();
    out.resize(before + bytes.size() / sizeof(float));
    if (!bytes.empty()) copy_floats(bytes, out.data() + before);
  }
  template <class V>
  void add(const V& value) {
    out.emplace_back(value);
  }
};
struct PackedSink {
  PackedStrings& out;
  void add(std::string_view value) { out.add(value); }
};

/// Fills what was made for the values, and counts also those that find no room.
template <class T>
struct FixedSink {
  T* out;
  int64_t room;
  int64_t count = 0;
  void add_packed(std::string_view bytes) {
    const auto more = static_cast<int64_t>(bytes.size() / sizeof(float));
    if (count + more <= room && more > 0) copy_floats(bytes, out + count);
    count += more;
  }
  void add(T value) {
    if (count < room) out[count] = value;
    ++count;
  }
};

}  // namespace cohort::internal::data
