// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/npy/npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/data/formats/internal/file_reader.h"
#include "cohort/data/formats/npy/internal/zip_reader.h"

namespace cohort::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;

struct TypeCode {
  const char* code;
  DType dtype;
  int64_t part;  ///< Bytes that are swapped together: half of a complex number.
};
constexpr TypeCode kTypes[] = {
    {"b1", DType::Bool, 1},         {"i1", DType::Char, 1},
    {"u1", DType::Byte, 1},         {"u2", DType::UInt16, 2},
    {"u4", DType::UInt32, 4},       {"u8", DType::UInt64, 8},
    {"i2", DType::Short, 2},        {"i4", DType::Int, 4},
    {"i8", DType::Long, 8},         {"f2", DType::Half, 2},
    {"f4", DType::Float, 4},        {"f8", DType::Double, 8},
    {"c8", DType::ComplexFloat, 4}, {"c16", DType::ComplexDouble, 8},
};

struct Header {
  TypeCode type = kTypes[0];
  bool swapped = false;
  bool fortran = false;
  Shape shape;
};

/// The Python dictionary at the front of a file.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  Header parse() {
    Header out;
    bool descr = false, order = false, shape = false;
    expect('{');
    for (bool more = true; !accept('}'); more = accept(',')) {
      if (!more) fail("expected a comma between entries");
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        read_type(out);
        descr = true;
      } else if (key == "fortran_order") {
        out.fortran = truth();
        order = true;
      } else if (key == "shape") {
        read_shape(out.shape);
        shape = true;
      } else {
        fail(str_cat("expected descr, fortran_order or shape, got ", key));
      }
    }
    if (!descr || !order || !shape)
      fail("expected descr, fortran_order and shape, got fewer of them");
    skip_space();
    if (!text_.empty()) fail(str_cat("expected its end, got ", text_.substr(0, 20)));
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& text) const {
    throw DataLoss(where_ + ": damaged header: " + text);
  }
  void skip_space() {
    constexpr std::string_view kSpace = " \t\r\n";
    while (!text_.empty() && kSpace.find(text_[0]) != std::string_view::npos) {
      text_.remove_prefix(1);
    }
  }
  bool accept(char c) {
    skip_space();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(str_cat("expected ", c, ", got ", text_.substr(0, 20)));
  }
  std::string_view quoted() {
    const char mark = accept('"') ? '"' : '\'';
    if (mark == '\'') expect('\'');
    const std::size_t end = text_.find(mark);
    if (end == std::string_view::npos) fail("expected a quote that ends the text, got none");
    const std::string_view out = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return out;
  }
  std::string_view word() {
    skip_space();
    std::size_t end = 0;
    while (end < text_.size() && std::isalnum(static_cast<unsigned char>(text_[end])) != 0) ++end;
    const std::string_view out = text_.substr(0, end);
    text_.remove_prefix(end);
    return out;
  }

  bool truth() {
    const std::string_view got = word();
    if (got != "True" && got != "False") fail(str_cat("expected True or False, got ", got));
    return got == "True";
  }

  void read_type(Header& out) {
    skip_space();
    if (text_.starts_with('[')) {
      throw Unimplemented(where_ + ": arrays of structures are not read");
    }
    const std::string_view descr = quoted();
    if (descr.empty() || std::string_view("<>=|").find(descr[0]) == std::string_view::npos) {
      fail(str_cat("expected a type that begins with <, >, = or |, got ", descr));
    }
    const std::string_view code = descr.substr(1);
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [&](const TypeCode& type) { return code == type.code; });
    if (found == std::end(kTypes)) {
      throw Unimplemented(str_cat(where_, ": values of the type ", descr, " are not read"));
    }
    out.type = *found;
    const bool little = std::endian::native == std::endian::little;
    out.swapped = descr[0] == (little ? '>' : '<');
  }

  void read_shape(Shape& out) {
    out.clear();
    expect('(');
    bool comma = true;
    for (; !accept(')'); comma = accept(',')) {
      if (!comma) fail("expected a comma between dimensions");
      const std::string_view digits = word();
      int64_t d = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), d);
      const bool padded = digits.size() > 1 && digits[0] == '0';
      if (error != std::errc() || end != digits.data() + digits.size() || d < 0 || padded) {
        fail(str_cat("expected a dimension, got ", digits));
      }
      out.push_back(d);
    }
    if (out.size() == 1 && !comma) fail("expected a tuple of dimensions, got one number");
  }

  std::string_view text_;
  const std::string where_;
};

std::size_t header_end(std::string_view bytes, std::string_view& text, const std::string& where) {
  constexpr std::size_t kLongest = 12;
  if (bytes.size() < 10 || !bytes.starts_with(kMagic)) {
    throw DataLoss(where + ": expected a .npy file, got other bytes");
  }
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
    throw DataLoss(str_cat(where, ": expected version 1.0, 2.0 or 3.0 of the format, got ",
                           static_cast<int>(static_cast<uint8_t>(bytes[6])), ".",
                           static_cast<int>(static_cast<uint8_t>(bytes[7]))));
  }
  const bool first = bytes[6] == 1;
  const std::size_t begin = first ? 10 : kLongest;
  std::size_t length = 0;
  for (std::size_t i = begin; i > 8 && begin <= bytes.size(); --i) {
    length = length << 8 | static_cast<uint8_t>(bytes[i - 1]);
  }
  if (begin > bytes.size() || length > bytes.size() - begin) {
    throw DataLoss(where + ": the file ends in its header");
  }
  text = bytes.substr(begin, length);
  return begin + length;
}

Tensor parse_npy(std::string_view bytes, const std::string& where) {
  std::string_view text;
  const std::size_t begin = header_end(bytes, text, where);
  Header header = HeaderParser(text, where).parse();
  const std::string_view data = bytes.substr(begin);
  const auto width = static_cast<int64_t>(c10::elementSize(header.type.dtype));
  // Zero counts as one: strides multiply the other dimensions, and these have to fit, too.
  int64_t span = width;
  int64_t expected = width;
  for (int64_t d : header.shape) {
    if (__builtin_mul_overflow(span, std::max<int64_t>(d, 1), &span)) {
      throw DataLoss(where + ": expected dimensions whose product fits in 63 bits");
    }
    expected *= d;
  }
  if (expected != static_cast<int64_t>(data.size())) {
    throw DataLoss(str_cat(where, ": expected ", expected, " bytes of values, got ", data.size()));
  }
  if (header.fortran) std::reverse(header.shape.begin(), header.shape.end());
  Tensor out = empty(header.shape, header.type.dtype);
  auto* to = static_cast<char*>(out.data_ptr());
  if (!data.empty()) std::memcpy(to, data.data(), data.size());
  if (header.type.dtype == DType::Bool) {
    // Any byte but 0 is true to NumPy; in a bool of C++ it may be 0 or 1 only.
    std::transform(to, to + expected, to, [](char byte) { return static_cast<char>(byte != 0); });
  }
  for (int64_t i = 0; header.swapped && i < expected; i += header.type.part) {
    std::reverse(to + i, to + i + header.type.part);
  }
  if (!header.fortran) return out;
  std::vector<int64_t> axes;
  for (int64_t d = out.dim(); d > 0; --d) axes.push_back(d - 1);
  return out.permute(axes).contiguous();
}

std::string read_file(const std::string& operation, const std::string& path) {
  internal::data::FileReader file(operation, path, {.compression = Compression::kNone});
  std::string bytes;
  file.append(bytes, UINT64_MAX);
  return bytes;
}

}  // namespace

Tensor read_npy(const std::string& path) {
  return parse_npy(read_file("[read_npy]", path), "[read_npy] " + path);
}

void write_npy(const std::string& path, const Tensor& values) {
  cohort::internal::runtime::check_defined("[write_npy] ", values);
  const Tensor data = values.detach().cpu().contiguous().resolve_conj().resolve_neg();
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const TypeCode& t) { return t.dtype == data.scalar_type(); });
  if (type == std::end(kTypes)) {
    throw Unimplemented(
        str_cat("[write_npy] NumPy has no type for ", dtype_name(data.scalar_type())));
  }
  const bool little = std::endian::native == std::endian::little;
  std::string shape;
  for (int64_t d : data.sizes()) shape += std::to_string(d) + (data.dim() == 1 ? "," : ", ");
  if (data.dim() > 1) shape.resize(shape.size() - 2);
  std::string text = str_cat("{'descr': '",
                             type->part == 1 ? "|"
                             : little        ? "<"
                                             : ">",
                             type->code, "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr std::size_t kBefore = 10;  // Magic, version and length.
  while ((kBefore + text.size() + 1) % kAlignment != 0) text += ' ';
  text += '\n';
  std::string head = std::string(kMagic) + '\x01' + '\0';
  head += static_cast<char>(text.size() & 0xff);
  head += static_cast<char>(text.size() >> 8);
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << head << text;
  out.write(static_cast<const char*>(data.const_data_ptr()),
            static_cast<std::streamsize>(data.nbytes()));
  out.close();
  if (const int error = errno; !out) {
    throw Error(cohort::internal::base::code_of_errno(error),
                str_cat("[write_npy] cannot write ", path, ": ", std::strerror(error)));
  }
}

std::map<std::string, Tensor> read_npz(const std::string& path, const NpzOptions& options) {
  const std::string bytes = read_file("[read_npz]", path);
  std::map<std::string, Tensor> out;
  const std::string where = "[read_npz] " + path;
  const auto use = [&](std::string name, std::string_view member) {
    const std::string of_member = where + ", member " + name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    const bool is_new = out.emplace(std::move(name), parse_npy(member, of_member)).second;
    if (!is_new) throw DataLoss(of_member + ": expected each name once, got it twice");
  };
  internal::data::for_each_zip_member(bytes, where, options.max_bytes, use);
  return out;
}

}  // namespace cohort::data
