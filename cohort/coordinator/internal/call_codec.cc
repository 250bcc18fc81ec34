// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/call_codec.h"

#include <ATen/ops/empty.h>

#include "cohort/base/check.h"
#include "cohort/rpc/errors.h"

namespace cohort::internal::coordinator {
namespace {

constexpr std::size_t kMostInlineBytes = 1024;
constexpr std::size_t kMostDims = 64;
constexpr std::size_t kMostErrorText = 16 << 10;
constexpr int kMostLevels = 64;

bool dtype_travels(int code) {
  switch (static_cast<DType>(code)) {
    case DType::Byte:
    case DType::Char:
    case DType::Short:
    case DType::Int:
    case DType::Long:
    case DType::Half:
    case DType::Float:
    case DType::Double:
    case DType::ComplexFloat:
    case DType::ComplexDouble:
    case DType::Bool:
    case DType::BFloat16:
      return true;
    default:
      return false;
  }
}

// Nobody else sees its memory.
bool is_exclusive(const Tensor& t) { return t.use_count() == 1 && t.storage().use_count() == 1; }

}  // namespace

std::size_t EncodedValues::blob_bytes() const {
  std::size_t bytes = 0;
  for (const rpc::Payload::Piece& blob : blobs) bytes += blob.bytes.size();
  return bytes;
}

BlobCursor::BlobCursor(std::span<const rpc::Payload::Piece> pieces) : pieces_(pieces) {
  for (const rpc::Payload::Piece& piece : pieces) left_ += piece.bytes.size();
}

void BlobCursor::read(void* to, std::size_t bytes) {
  if (bytes > left_) {
    throw DataLoss(str_cat("[coordinator] expected ", bytes, " more bytes in a message, got ",
                           left_,
                           "; the other side is damaged, of another version or no part of Cohort"));
  }
  left_ -= bytes;
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const std::span<const std::byte> piece = pieces_.front().bytes.subspan(at_);
    const std::size_t some = std::min(bytes, piece.size());
    if (some > 0) std::memcpy(out, piece.data(), some);
    out += some;
    bytes -= some;
    at_ += some;
    if (some == piece.size()) {
      pieces_ = pieces_.subspan(1);
      at_ = 0;
    }
  }
}

std::string BlobCursor::text(std::size_t bytes) {
  if (bytes > left_) read(nullptr, bytes);  // throws
  std::string out(bytes, '\0');
  read(out.data(), bytes);
  return out;
}

void ValueWriter::number(uint64_t value) { raw(&value, sizeof value); }

void ValueWriter::text(std::string_view text) {
  number(text.size());
  values_.head.append(text);
}

void ValueWriter::raw(const void* bytes, std::size_t size) {
  values_.head.append(static_cast<const char*>(bytes), size);
}

void ValueWriter::tensor(const Tensor& t) {
  byte(t.defined() ? 1 : 0);
  if (!t.defined()) return;
  COHORT_CHECK_ARG(t.layout() == at::kStrided && dtype_travels(static_cast<int>(t.scalar_type())),
                   "[schedule] expected a dense tensor of numbers, got one of ",
                   dtype_name(t.scalar_type()));
  byte(static_cast<uint8_t>(t.scalar_type()));
  byte(static_cast<uint8_t>(t.dim()));
  for (const int64_t size : t.sizes()) number(static_cast<uint64_t>(size));
  const bool may_keep = use_ == Use::kLast && is_exclusive(t) && !t.requires_grad();
  const Tensor detached = t.detach().cpu();
  const std::size_t bytes = detached.nbytes();
  if (bytes <= kMostInlineBytes) {
    const Tensor dense = detached.contiguous();
    return raw(dense.const_data_ptr(), bytes);
  }
  Tensor dense = detached.contiguous();
  if (!may_keep && dense.storage().use_count() > 1) dense = dense.clone();
  auto owner = std::make_shared<const Tensor>(dense);
  values_.blobs.push_back(
      {.bytes = {static_cast<const std::byte*>(dense.const_data_ptr()), bytes}, .owner = owner});
}

ValueReader::Level::Level(ValueReader& in) : in_(in) {
  if (++in_.depth_ > kMostLevels) in_.fail("fewer levels");
}

void ValueReader::fail(const std::string& expected) const {
  throw DataLoss(str_cat("[coordinator] expected ", expected, " in a message, got other bytes (",
                         head_.size(),
                         " are left); the other side is damaged, of another version or no part of "
                         "Cohort"));
}

void ValueReader::raw(void* to, std::size_t size) {
  if (size > head_.size()) fail(str_cat(size, " bytes"));
  std::memcpy(to, head_.data(), size);
  head_.remove_prefix(size);
}

uint8_t ValueReader::byte() {
  uint8_t value = 0;
  raw(&value, 1);
  return value;
}

void ValueReader::kind(ValueKind expected) {
  const uint8_t got = byte();
  if (got != static_cast<uint8_t>(expected)) {
    fail(str_cat("a value of kind ", static_cast<int>(expected), ", not ", static_cast<int>(got),
                 ","));
  }
}

uint64_t ValueReader::number() {
  uint64_t value = 0;
  raw(&value, sizeof value);
  return value;
}

std::size_t ValueReader::count() {
  const uint64_t value = number();
  if (value > head_.size()) fail("fewer values");
  return value;
}

std::string ValueReader::text() {
  const uint64_t size = number();
  if (size > head_.size()) fail("a whole text");
  std::string out(head_.substr(0, size));
  head_.remove_prefix(size);
  return out;
}

// The bytes of a tensor of the sizes that are read into `shape`.
std::size_t ValueReader::shape_and_bytes(int dims, std::size_t element, Shape& shape) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  uint64_t strided = element;  // without sizes of 0: LibTorch multiplies the others for its strides
  bool is_empty = false;
  for (int d = 0; d < dims; ++d) {
    const uint64_t size = number();
    if (size > 0 && strided > kMost / size) fail("a tensor of a possible shape");
    is_empty = is_empty || size == 0;
    strided *= size == 0 ? 1 : size;
    shape.push_back(static_cast<int64_t>(size));
  }
  return is_empty ? 0 : strided;
}

Tensor ValueReader::tensor() {
  const uint8_t is_defined = byte();
  if (is_defined == 0) return {};
  const uint8_t dtype = byte();
  const uint8_t dims = byte();
  if (is_defined != 1 || !dtype_travels(dtype) || dims > kMostDims) fail("a tensor");
  Shape shape;
  const auto type = static_cast<DType>(dtype);
  const std::size_t wanted = shape_and_bytes(dims, c10::elementSize(type), shape);
  const bool is_inline = wanted <= kMostInlineBytes;
  if (wanted > (is_inline ? head_.size() : blobs_.left())) fail("the bytes of a tensor");
  const Tensor out = at::empty(shape, at::TensorOptions().dtype(type));
  if (type == DType::Bool && wanted > 0) {
    std::string values(wanted, '\0');
    is_inline ? raw(values.data(), wanted) : blobs_.read(values.data(), wanted);
    for (char& value : values) value = value != 0 ? 1 : 0;  // another byte is no bool
    std::memcpy(out.mutable_data_ptr(), values.data(), wanted);
  } else if (is_inline) {
    if (wanted > 0) raw(out.mutable_data_ptr(), wanted);
  } else {
    blobs_.read(out.mutable_data_ptr(), wanted);
  }
  return out;
}

void ValueReader::end() const {
  if (!head_.empty() || blobs_.left() > 0) fail("the end");
}

IndexedSlices read_slices(ValueReader& in) {
  in.kind(ValueKind::kSlices);
  IndexedSlices out;
  out.values = in.tensor();
  out.indices = in.tensor();
  for (std::size_t left = in.count(); left > 0; --left) {
    out.dense_shape.push_back(static_cast<int64_t>(in.number()));
  }
  return out;
}

Gradient read_gradient(ValueReader& in) {
  in.kind(ValueKind::kGradient);
  const uint8_t what = in.byte();
  if (what > 2) in.fail("a gradient");
  if (what == 0) return {};
  return what == 2 ? Gradient(read_slices(in)) : Gradient(in.tensor());
}

void write_error(ValueWriter& out, const std::exception_ptr& error) {
  auto code = ErrorCode::kUnknown;
  std::string text = "an exception that is no std::exception";
  std::string peer;
  try {
    std::rethrow_exception(error);
  } catch (const Unavailable& e) {
    code = e.code();
    text = e.what();
    peer = e.peer();
  } catch (const Error& e) {
    code = e.code();
    text = e.what();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {  // what a function throws is its own business
  }
  out.number(static_cast<uint64_t>(code));
  out.text(text.substr(0, kMostErrorText));
  out.text(peer.substr(0, kMostErrorText));
}

std::exception_ptr read_error(ValueReader& in, const std::string& context) {
  const uint64_t code = in.number();
  if (code == 0 || code > static_cast<uint64_t>(rpc::kUnauthenticatedCode))
    in.fail("an error's code");
  const std::string text = in.text();
  const std::string peer = in.text();
  return rpc::error_with(static_cast<ErrorCode>(code), str_cat(text, " (", context, ")"), peer);
}

rpc::Payload to_payload(EncodedValues values) {
  const uint64_t size = values.head.size();
  std::string front(sizeof size, '\0');
  std::memcpy(front.data(), &size, sizeof size);
  auto head = std::make_shared<const std::string>(front + values.head);
  rpc::Payload out;
  out.append({.bytes = std::as_bytes(std::span(*head)), .owner = head});
  for (rpc::Payload::Piece& blob : values.blobs) out.append(std::move(blob));
  return out;
}

MessageParts::MessageParts(const rpc::Payload& payload) : blobs_(payload.pieces()) {
  uint64_t size = 0;
  blobs_.read(&size, sizeof size);
  head_ = blobs_.text(size);
}

void write_nested(ValueWriter& out, const EncodedValues& values) {
  out.text(values.head);
  out.number(values.blob_bytes());
  for (const rpc::Payload::Piece& blob : values.blobs) out.blob(blob);
}

EncodedValues read_nested(ValueReader& head, BlobCursor& blobs) {
  EncodedValues out;
  out.head = head.text();
  const uint64_t bytes = head.number();
  if (bytes > 0) {
    const auto owner = std::make_shared<const std::string>(blobs.text(bytes));
    out.blobs.push_back({.bytes = std::as_bytes(std::span(*owner)), .owner = owner});
  }
  return out;
}

}  // namespace cohort::internal::coordinator
