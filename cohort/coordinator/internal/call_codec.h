// SPDX-License-Identifier: Apache-2.0
//
// Nests of tensors, numbers and texts as bytes, and back:
//
//   ValueWriter out;
//   write_value(out, std::pair(tensor({1, 2}), 3.5));
//   EncodedValues sent = std::move(out).finish();
//   ValueReader in(sent);
//   auto back = read_value<std::pair<Tensor, double>>(in);
//   in.end();
//
// The reader takes bytes that a stranger may have written: whatever they are, it answers with
// values of the type or DataLoss, and takes no more memory than they justify. Kinds and dtypes
// stand in the bytes and are compared with the type.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/rpc/payload.h"
#include "cohort/values/nest.h"

namespace cohort::internal::coordinator {

/// Small parts in one text, the bytes of large tensors beside it, in their order.
struct EncodedValues {
  std::string head = {};
  std::vector<rpc::Payload::Piece> blobs = {};
  std::size_t blob_bytes() const;
  std::size_t size() const { return head.size() + blob_bytes(); }
};

/// Reads the bytes of a message one after the other, wherever its pieces begin and end.
/// Errors: DataLoss for more than there are. Threads: thread-compatible.
class BlobCursor {
 public:
  /// `pieces` stay there.
  explicit BlobCursor(std::span<const rpc::Payload::Piece> pieces);
  void read(void* to, std::size_t bytes);
  std::string text(std::size_t bytes);
  std::size_t left() const { return left_; }

 private:
  std::span<const rpc::Payload::Piece> pieces_;
  std::size_t at_ = 0;  // in the first of them
  std::size_t left_ = 0;
};

enum class ValueKind : uint8_t {
  kNumber = 1,
  kText,
  kTensor,
  kSlices,
  kGradient,
  kMembers,
  kRange,
  kMap,
  kOptional,
  kVariable,
  kPerWorker,
  kContext,
};

/// Threads: thread-compatible.
class ValueWriter {
 public:
  /// kLast: what is written is not used after that, so tensors that nobody else has are not copied.
  enum class Use { kShared, kLast };
  explicit ValueWriter(Use use = Use::kShared) : use_(use) {}

  void kind(ValueKind kind) { byte(static_cast<uint8_t>(kind)); }
  void byte(uint8_t value) { values_.head.push_back(static_cast<char>(value)); }
  void number(uint64_t value);
  void text(std::string_view text);
  void raw(const void* bytes, std::size_t size);
  /// As it is now.
  /// Errors: InvalidArgument for what is not dense, or of a dtype that does not travel.
  void tensor(const Tensor& t);
  void blob(rpc::Payload::Piece piece) { values_.blobs.push_back(std::move(piece)); }
  /// Keeps something there as long as the values.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

  const std::vector<std::shared_ptr<const void>>& kept() const { return kept_; }
  EncodedValues finish() && { return std::move(values_); }

 private:
  const Use use_;
  EncodedValues values_;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// Errors, of all members: DataLoss. Threads: thread-compatible.
class ValueReader {
 public:
  /// Both stay there.
  ValueReader(std::string_view head, std::span<const rpc::Payload::Piece> blobs)
      : head_(head), blobs_(blobs) {}
  explicit ValueReader(const EncodedValues& values) : ValueReader(values.head, values.blobs) {}

  void kind(ValueKind expected);
  uint8_t byte();
  uint64_t number();
  /// Of things that take at least a byte each, so no more than are left.
  std::size_t count();
  std::string text();
  void raw(void* to, std::size_t size);
  Tensor tensor();
  /// Nothing may be left.
  void end() const;
  [[noreturn]] void fail(const std::string& expected) const;

  /// Bounds how deep values are nested, for types that hold themselves.
  class Level {
   public:
    explicit Level(ValueReader& in);
    ~Level() { --in_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ValueReader& in_;
  };

 private:
  std::size_t shape_and_bytes(int dims, std::size_t element, Shape& shape);
  std::string_view head_;
  BlobCursor blobs_;
  int depth_ = 0;
};

/// A number's type as one byte: its size, and whether it is a bool, has a sign or a fraction.
template <class N>
constexpr uint8_t number_code() {
  static_assert(sizeof(N) <= 8, "[schedule] a number of more than 8 bytes does not travel");
  return static_cast<uint8_t>(sizeof(N) | (std::is_signed_v<N> ? 16 : 0) |
                              (std::is_floating_point_v<N> ? 32 : 0) |
                              (std::is_same_v<N, bool> ? 64 : 0));
}

template <class T>
constexpr bool travels();
template <class Tuple>
inline constexpr bool members_travel_v = false;
template <class... M>
inline constexpr bool members_travel_v<std::tuple<M...>> = (travels<std::remove_cvref_t<M>>() &&
                                                            ...);

/// Whether values of the type can be written and read: nests, but for those that only a walk over
/// their leaves knows.
template <class T>
constexpr bool travels() {
  constexpr values::NestKind kind = values::nest_kind<T>();
  if constexpr (kind == values::NestKind::kLeaf) {
    return true;
  } else if constexpr (kind == values::NestKind::kTied) {
    return std::is_default_constructible_v<T> &&
           members_travel_v<decltype(values::members_of(std::declval<T&>()))>;
  } else if constexpr (kind == values::NestKind::kRange || kind == values::NestKind::kOptional) {
    return travels<typename T::value_type>();
  } else if constexpr (kind == values::NestKind::kMap) {
    return travels<typename T::mapped_type>();
  } else {
    return false;
  }
}

template <class T>
void write_leaf(ValueWriter& out, const T& leaf) {
  if constexpr (std::is_arithmetic_v<T>) {
    out.kind(ValueKind::kNumber);
    out.byte(number_code<T>());
    out.raw(&leaf, sizeof leaf);
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.kind(ValueKind::kText);
    out.text(leaf);
  } else if constexpr (std::is_same_v<T, Tensor>) {
    out.kind(ValueKind::kTensor);
    out.tensor(leaf);
  } else if constexpr (std::is_same_v<T, IndexedSlices>) {
    out.kind(ValueKind::kSlices);
    out.tensor(leaf.values);
    out.tensor(leaf.indices);
    out.number(leaf.dense_shape.size());
    for (const int64_t size : leaf.dense_shape) out.number(static_cast<uint64_t>(size));
  } else {
    static_assert(std::is_same_v<T, Gradient>);
    out.kind(ValueKind::kGradient);
    out.byte(leaf.has_value() ? (leaf.is_sparse() ? 2 : 1) : 0);
    if (leaf.is_sparse()) {
      write_leaf(out, leaf.slices());
    } else if (leaf.has_value()) {
      out.tensor(leaf.dense());
    }
  }
}

template <class T>
void write_value(ValueWriter& out, const T& value) {
  static_assert(travels<T>(), "[schedule] values of this type do not travel");
  constexpr values::NestKind kind = values::nest_kind<T>();
  if constexpr (kind == values::NestKind::kLeaf) {
    write_leaf(out, value);
  } else if constexpr (kind == values::NestKind::kTied) {
    out.kind(ValueKind::kMembers);
    std::apply([&](const auto&... member) { (write_value(out, member), ...); },
               values::members_of(value));
  } else if constexpr (kind == values::NestKind::kRange) {
    out.kind(ValueKind::kRange);
    out.number(value.size());
    for (const auto& part : value) write_value(out, part);
  } else if constexpr (kind == values::NestKind::kMap) {
    out.kind(ValueKind::kMap);
    out.number(value.size());
    values::for_each_entry(value, [&](const std::string& key, const auto& part) {
      out.text(key);
      write_value(out, part);
    });
  } else {
    out.kind(ValueKind::kOptional);
    out.byte(value.has_value() ? 1 : 0);
    if (value) write_value(out, *value);
  }
}

template <class T>
T read_number(ValueReader& in) {
  in.kind(ValueKind::kNumber);
  if (in.byte() != number_code<T>()) in.fail("a number of the parameter's type");
  if constexpr (std::is_same_v<T, bool>) {
    const uint8_t value = in.byte();
    if (value > 1) in.fail("true or false");
    return value == 1;
  } else {
    T value{};
    in.raw(&value, sizeof value);
    return value;
  }
}

IndexedSlices read_slices(ValueReader& in);
Gradient read_gradient(ValueReader& in);

template <class T>
T read_leaf(ValueReader& in) {
  if constexpr (std::is_arithmetic_v<T>) {
    return read_number<T>(in);
  } else if constexpr (std::is_same_v<T, std::string>) {
    in.kind(ValueKind::kText);
    return in.text();
  } else if constexpr (std::is_same_v<T, Tensor>) {
    in.kind(ValueKind::kTensor);
    return in.tensor();
  } else if constexpr (std::is_same_v<T, IndexedSlices>) {
    return read_slices(in);
  } else {
    return read_gradient(in);
  }
}

template <class T>
T read_value(ValueReader& in);

template <class T>
T read_range(ValueReader& in) {
  in.kind(ValueKind::kRange);
  const std::size_t count = in.count();
  T out{};
  if constexpr (requires { out.push_back(read_value<typename T::value_type>(in)); }) {
    for (std::size_t i = 0; i < count; ++i) out.push_back(read_value<typename T::value_type>(in));
  } else {
    if (count != out.size()) in.fail("an array of the parameter's length");
    for (auto& part : out) part = read_value<typename T::value_type>(in);
  }
  return out;
}

template <class T>
T read_map(ValueReader& in) {
  in.kind(ValueKind::kMap);
  T out;
  for (std::size_t left = in.count(); left > 0; --left) {
    std::string key = in.text();
    auto part = read_value<typename T::mapped_type>(in);
    if (!out.emplace(std::move(key), std::move(part)).second) in.fail("each key once");
  }
  return out;
}

/// Errors: DataLoss for bytes that hold no T.
template <class T>
T read_value(ValueReader& in) {
  static_assert(travels<T>(), "[schedule] values of this type do not travel");
  constexpr values::NestKind kind = values::nest_kind<T>();
  const ValueReader::Level level(in);
  if constexpr (kind == values::NestKind::kLeaf) {
    return read_leaf<T>(in);
  } else if constexpr (kind == values::NestKind::kTied) {
    in.kind(ValueKind::kMembers);
    T out{};
    std::apply(
        [&]<class... M>(M&... member) { ((member = read_value<std::remove_cvref_t<M>>(in)), ...); },
        values::members_of(out));
    return out;
  } else if constexpr (kind == values::NestKind::kRange) {
    return read_range<T>(in);
  } else if constexpr (kind == values::NestKind::kMap) {
    return read_map<T>(in);
  } else {
    in.kind(ValueKind::kOptional);
    const uint8_t has_value = in.byte();
    if (has_value > 1) in.fail("a value or none");
    if (has_value == 0) return std::nullopt;
    return read_value<typename T::value_type>(in);
  }
}

/// An error as bytes: its class, text and peer. What is no Error of Cohort's is kUnknown.
void write_error(ValueWriter& out, const std::exception_ptr& error);
/// `context` stands behind the text: "in train_step, on worker 1".
std::exception_ptr read_error(ValueReader& in, const std::string& context);

/// A message: the size of the head, the head, all blobs.
rpc::Payload to_payload(EncodedValues values);
/// A message's head, copied; what follows are its blobs.
/// Errors: DataLoss for bytes that are none.
class MessageParts {
 public:
  explicit MessageParts(const rpc::Payload& payload);
  const std::string& head() const { return head_; }
  BlobCursor& blobs() { return blobs_; }

 private:
  BlobCursor blobs_;
  std::string head_;
};

/// Values within a larger message, and back.
void write_nested(ValueWriter& out, const EncodedValues& values);
EncodedValues read_nested(ValueReader& head, BlobCursor& blobs);

}  // namespace cohort::internal::coordinator
