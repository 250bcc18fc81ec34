// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/state.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/core/internal/errors.h"
#include "cohort/data/core/internal/rows/ragged.h"

namespace cohort::internal::data {
namespace {

/// Ragged rows are kNamed, as they were before they had a mark: what was saved then can be read. A
/// tuple that only has their names is kPlain.
enum Tag : int64_t { kNone, kTensor, kString, kStrings, kTuple, kNamed, kDataset, kPlain };
constexpr int64_t kAnyCount = std::numeric_limits<int64_t>::max();

/// Elements hold elements, but not as deep as bytes that nobody saved can say: the stack has an
/// end.
class Level {
 public:
  Level() {
    if (t_depth == kMostLevels) StateReader::fail();
    ++t_depth;
  }
  ~Level() { --t_depth; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  static constexpr int kMostLevels = 200;
  static constinit thread_local int t_depth;
};
constinit thread_local int Level::t_depth = 0;

template <class Tree>
Tag kind_of_tuple(const Tree& tuple) {
  if (tuple.names().empty()) return kTuple;
  return has_ragged_names(tuple.names()) && !tuple.is_ragged() ? kPlain : kNamed;
}

/// Whether what was read may be ragged rows, if its parts fit.
template <class T>
bool named_as_ragged(Tag kind, const std::vector<std::pair<std::string, T>>& parts) {
  return kind == kNamed && parts.size() == 2 && parts[0].first == kRaggedNames[0] &&
         parts[1].first == kRaggedNames[1];
}

Element named_element(Tag kind, std::vector<std::pair<std::string, Element>> parts) {
  if (!named_as_ragged(kind, parts) || !are_ragged_parts(parts[0].second, parts[1].second)) {
    return Element::named(std::move(parts));
  }
  return Element::ragged_parts(std::move(parts[0].second), std::move(parts[1].second));
}

bool is_spec_of_splits(const ElementSpec& spec) {
  if (!spec.is_leaf() || spec.leaf().is_string) return false;
  const TensorSpec& leaf = spec.leaf();
  return (leaf.dtype == kInt64 || leaf.dtype == kInt32) && leaf.known_rank &&
         leaf.shape.size() == 1;
}

ElementSpec named_spec(Tag kind, std::vector<std::pair<std::string, ElementSpec>> parts) {
  if (!named_as_ragged(kind, parts) || !is_spec_of_splits(parts[1].second)) {
    return ElementSpec::named(std::move(parts));
  }
  return ElementSpec::ragged_parts(std::move(parts[0].second), parts[1].second.leaf());
}

}  // namespace

void StateWriter::put_int(int64_t value) {
  // Seven bits a byte, the sign last: -1 is 1, 1 is 2.
  uint64_t left = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
  for (; left >= 0x80; left >>= 7) bytes_ += static_cast<char>(left | 0x80);
  bytes_ += static_cast<char>(left);
}

void StateWriter::put_text(std::string_view text) {
  put_int(static_cast<int64_t>(text.size()));
  bytes_ += text;
}

void StateWriter::put_tensor(const Tensor& tensor) {
  const Tensor values = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg();
  put_int(static_cast<int64_t>(values.scalar_type()));
  put_int(values.dim());
  for (int64_t d : values.sizes()) put_int(d);
  put_text({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
}

void StateWriter::put_element(const Element& element) {
  if (!element.has_value()) {
    put_int(kNone);
  } else if (element.is_tensor()) {
    put_int(kTensor);
    put_tensor(element.tensor());
  } else if (element.is_string() && element.rows() < 0) {
    put_int(kString);
    put_text(element.string());
  } else if (element.is_string()) {
    put_int(kStrings);
    const Shape shape = element.spec().leaf().shape;
    put_int(static_cast<int64_t>(shape.size()));
    for (int64_t d : shape) put_int(d);
    for (const std::string_view text : element.string_views()) put_text(text);
  } else if (element.is_dataset()) {
    put_int(kDataset);
    put_dataset(element);
  } else {
    const auto& names = element.names();
    put_int(kind_of_tuple(element));
    put_int(static_cast<int64_t>(element.size()));
    for (std::size_t i = 0; i < element.size(); ++i) {
      if (!names.empty()) put_text(names[i]);
      put_element(element[i]);
    }
  }
}

void StateWriter::put_spec(const ElementSpec& spec) {
  if (spec.is_unknown()) {
    put_int(kNone);
  } else if (spec.is_leaf()) {
    const TensorSpec& leaf = spec.leaf();
    put_int(leaf.is_string ? kString : kTensor);
    put_int(static_cast<int64_t>(leaf.dtype));
    put_int(leaf.known_rank ? 1 : 0);
    put_int(static_cast<int64_t>(leaf.shape.size()));
    for (int64_t d : leaf.shape) put_int(d);
  } else if (spec.is_dataset()) {
    put_int(kDataset);
    put_spec(spec.dataset_element());
  } else {
    put_int(kind_of_tuple(spec));
    put_int(static_cast<int64_t>(spec.size()));
    for (std::size_t i = 0; i < spec.size(); ++i) {
      if (!spec.names().empty()) put_text(spec.names()[i]);
      put_spec(spec[i]);
    }
  }
}

void StateWriter::put_dataset(const Element& element) {
  element.dataset_node()->save_as_element(*this);
}

void StateWriter::put_error(const std::exception_ptr& error) {
  if (error == nullptr) return put_int(0);
  ErrorCode code = ErrorCode::kUnknown;
  std::string text = "an exception of an unknown class";
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    code = e.code();
    text = e.what();
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {  // NOLINT: its text is all that can be kept.
  }
  put_int(static_cast<int64_t>(code));
  put_text(text);
}

void StateReader::fail() {
  throw InvalidArgument(
      "[iterator.restore] expected a state that an iterator of this pipeline saved, got other "
      "bytes");
}

std::string_view StateReader::take(uint64_t bytes) {
  if (bytes > bytes_.size()) fail();
  const std::string_view out = bytes_.substr(0, bytes);
  bytes_.remove_prefix(bytes);
  return out;
}

int64_t StateReader::get_int() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1).front());
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      return static_cast<int64_t>((value >> 1) ^ (0 - (value & 1)));
    }
  }
  fail();
}

int64_t StateReader::get_count(int64_t most) {
  const int64_t value = get_int();
  if (value < 0 || value > most) fail();
  return value;
}

std::string_view StateReader::get_text() {
  return take(static_cast<uint64_t>(get_count(kAnyCount)));
}

Shape StateReader::get_shape(int64_t& values) {
  constexpr int64_t kMostDimensions = 64;
  Shape shape(static_cast<std::size_t>(get_count(kMostDimensions)));
  values = 1;
  // Zero counts as one: strides multiply the other dimensions, and these have to fit, too.
  int64_t span = 1;
  for (int64_t& d : shape) {
    d = get_count(kAnyCount);
    values = saturated_product(values, d);
    span = saturated_product(span, std::max<int64_t>(d, 1));
  }
  if (span == kAnyCount) fail();
  return shape;
}

Tensor StateReader::get_tensor() {
  const auto dtype = static_cast<DType>(get_count(static_cast<int64_t>(DType::NumOptions) - 1));
  if (!c10::isIntegralType(dtype, true) && !c10::isFloatingType(dtype) &&
      !c10::isComplexType(dtype)) {
    fail();
  }
  int64_t values = 0;
  const Shape shape = get_shape(values);
  const std::string_view data = get_text();
  const auto width = static_cast<int64_t>(c10::elementSize(dtype));
  if (saturated_product(values, width) != static_cast<int64_t>(data.size())) fail();
  Tensor out = empty(shape, dtype);
  if (!data.empty()) std::memcpy(out.data_ptr(), data.data(), data.size());
  return out;
}

Element StateReader::get_strings() {
  int64_t left = 0;
  Shape shape = get_shape(left);
  if (left > bytes_left()) fail();
  std::vector<std::string> out;
  out.reserve(static_cast<std::size_t>(left));
  for (; left > 0; --left) out.emplace_back(get_text());
  return Element(std::move(out), std::move(shape));
}

Element StateReader::get_element() {
  const Level level;
  const auto kind = static_cast<Tag>(get_count(kPlain));
  switch (kind) {
    case kNone:
      return {};
    case kTensor:
      return get_tensor();
    case kString:
      return std::string(get_text());
    case kStrings:
      return get_strings();
    case kDataset:
      return get_dataset();
    default: {
      std::vector<Element> parts;
      std::vector<std::pair<std::string, Element>> named;
      for (int64_t left = get_count(static_cast<int64_t>(bytes_.size())); left > 0; --left) {
        std::string name(kind == kTuple ? "" : get_text());
        parts.push_back(get_element());
        named.emplace_back(std::move(name), parts.back());
      }
      return kind == kTuple ? Element::tuple(std::move(parts))
                            : named_element(kind, std::move(named));
    }
  }
}

TensorSpec StateReader::get_leaf_spec(bool is_string) {
  constexpr int64_t kMostDimensions = 64;
  TensorSpec leaf;
  leaf.is_string = is_string;
  leaf.dtype = static_cast<DType>(get_count(static_cast<int64_t>(DType::NumOptions)));
  leaf.known_rank = get_flag();
  leaf.shape.resize(static_cast<std::size_t>(get_count(kMostDimensions)));
  for (int64_t& d : leaf.shape) d = get_int();
  return leaf;
}

ElementSpec StateReader::get_spec() {
  const Level level;
  const auto kind = static_cast<Tag>(get_count(kPlain));
  if (kind == kNone) return {};
  if (kind == kTensor || kind == kString) return get_leaf_spec(kind == kString);
  if (kind == kDataset) return ElementSpec::dataset(get_spec());
  if (kind == kStrings) fail();
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (int64_t left = get_count(bytes_left()); left > 0; --left) {
    std::string name(kind == kTuple ? "" : get_text());
    parts.push_back(get_spec());
    named.emplace_back(std::move(name), parts.back());
  }
  return kind == kTuple ? ElementSpec::tuple(std::move(parts)) : named_spec(kind, std::move(named));
}

std::exception_ptr StateReader::get_error() {
  const auto code = static_cast<ErrorCode>(get_count(static_cast<int64_t>(ErrorCode::kDataLoss)));
  if (code == ErrorCode::kOk) return nullptr;
  return make_error(code, std::string(get_text()));
}

void StateReader::expect_end() const {
  if (!bytes_.empty()) fail();
}

}  // namespace cohort::internal::data
