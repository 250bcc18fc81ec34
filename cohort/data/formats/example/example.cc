// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/example/example.h"

#include <algorithm>
#include <bit>

#include "cohort/base/check.h"
#include "cohort/data/formats/example/internal/example_wire.h"
#include "cohort/data/formats/internal/little_endian.h"

namespace cohort::data {
namespace {

using internal::data::append_bytes_field;

std::string list_bytes(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& v : values) append_bytes_field(out, 1, v);
  return out;
}
std::string list_bytes(const std::vector<float>& values) {
  std::string packed;
  for (float v : values) internal::data::append_little_endian(packed, std::bit_cast<uint32_t>(v));
  std::string out;
  if (!values.empty()) append_bytes_field(out, 1, packed);
  return out;
}
std::string list_bytes(const std::vector<int64_t>& values) {
  std::string packed;
  for (int64_t v : values) internal::data::append_varint(packed, static_cast<uint64_t>(v));
  std::string out;
  if (!values.empty()) append_bytes_field(out, 1, packed);
  return out;
}

std::string feature_bytes(const Feature& feature) {
  std::string out;
  // The alternatives stand in the order of the field numbers.
  std::visit(
      [&](const auto& values) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(values)>, std::monostate>) {
          append_bytes_field(out, static_cast<uint32_t>(feature.index()), list_bytes(values));
        }
      },
      feature);
  return out;
}

/// One entry of a map.
void append_entry(std::string& out, const std::string& name, const std::string& value) {
  std::string entry;
  append_bytes_field(entry, 1, name);
  append_bytes_field(entry, 2, value);
  append_bytes_field(out, 1, entry);
}

std::string features_bytes(const Features& features) {
  std::string out;
  for (const auto& [name, feature] : features) append_entry(out, name, feature_bytes(feature));
  return out;
}

template <class T>
Feature decoded(std::string_view list) {
  std::vector<T> values;
  internal::data::VectorSink<T> sink{values};
  internal::data::decode_list<T>(list, sink);
  return values;
}

Feature parse_feature(std::string_view bytes) {
  std::string_view list;
  switch (internal::data::feature_list(bytes, list)) {
    case internal::data::FeatureKind::kBytes:
      return decoded<std::string>(list);
    case internal::data::FeatureKind::kFloat:
      return decoded<float>(list);
    case internal::data::FeatureKind::kInt64:
      return decoded<int64_t>(list);
    default:
      return {};
  }
}

void parse_features(std::string_view bytes, Features& out) {
  internal::data::for_each_entry(bytes, 1, [&](std::string_view name, std::string_view value) {
    out[std::string(name)] = parse_feature(value);
  });
}

/// `f`, with what it parses before the text of its error.
template <class F>
void parsing(const char* what, const F& f) {
  try {
    f();
  } catch (const DataLoss& e) {
    throw DataLoss(str_cat("[", what, "] ", e.what()));
  }
}

}  // namespace

std::string Example::serialize() const {
  std::string out;
  append_bytes_field(out, 1, features_bytes(features));
  return out;
}

Example Example::parse(std::string_view bytes) {
  Example out;
  parsing("example.parse", [&] {
    internal::data::for_each_message(bytes, 1,
                                     [&](std::string_view f) { parse_features(f, out.features); });
  });
  return out;
}

std::string SequenceExample::serialize() const {
  std::string out, lists;
  if (!context.empty()) append_bytes_field(out, 1, features_bytes(context));
  for (const auto& [name, list] : feature_lists) {
    std::string steps;
    for (const Feature& feature : list) append_bytes_field(steps, 1, feature_bytes(feature));
    append_entry(lists, name, steps);
  }
  if (!feature_lists.empty()) append_bytes_field(out, 2, lists);
  return out;
}

SequenceExample SequenceExample::parse(std::string_view bytes) {
  SequenceExample out;
  const auto parse_list = [&](std::string_view name, std::string_view value) {
    std::vector<Feature>& list = out.feature_lists[std::string(name)];
    list.clear();
    internal::data::for_each_message(value, 1,
                                     [&](std::string_view f) { list.push_back(parse_feature(f)); });
  };
  parsing("sequence_example.parse", [&] {
    internal::data::for_each_message(bytes, 1,
                                     [&](std::string_view f) { parse_features(f, out.context); });
    internal::data::for_each_message(bytes, 2, [&](std::string_view lists) {
      internal::data::for_each_entry(lists, 1, parse_list);
    });
  });
  return out;
}

}  // namespace cohort::data
