// SPDX-License-Identifier: Apache-2.0
//
// {"crc32c": "0123abcd", "manifest": {...}}: the checksum is of the bytes of the inner object.
#include "cohort/checkpoint/internal/manifest.h"

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/checkpoint/internal/format.h"
#include "cohort/checkpoint/internal/json_text.h"

namespace cohort::internal::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "cohort.checkpoint";
constexpr uint64_t kVersion = 1;
constexpr std::string_view kHead = "{\"crc32c\": \"";
constexpr std::string_view kMiddle = "\", \"manifest\": ";
constexpr std::string_view kTail = "}\n";
constexpr std::size_t kDigits = 8;  // of digits_of
constexpr std::size_t kDeepestManifest = 10;

std::string shown(const json& value) { return value.dump().substr(0, 100); }

std::string dtype_text(DType dtype) {
  for (const FormatType& type : kFormatTypes) {
    if (type.dtype == dtype) return std::string(type.name);
  }
  throw Internal("[checkpoint] a value whose type was checked before has none");
}

json json_of(const ManifestValue& value) {
  json pieces = json::array();
  for (const ManifestPiece& piece : value.pieces) {
    pieces.push_back({{"file", piece.file},
                      {"offset", piece.offset},
                      {"bytes", piece.bytes},
                      {"crc32c", piece.crc32c},
                      {"starts", piece.starts},
                      {"sizes", piece.sizes}});
  }
  return {{"dtype", dtype_text(value.dtype)}, {"shape", value.shape}, {"pieces", pieces}};
}

json files_of(const Manifest& manifest) {
  json files = json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"header_bytes", file.header_bytes},
                     {"header_crc32c", file.header_crc32c}});
  }
  return files;
}

uint64_t random_number() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Finds out whether boxes fill a value, each place once, without comparing every two of them.
//
// Give each coordinate x of dimension j a random number h_j(x), and each box the product over its
// dimensions of h_j(end) - h_j(start). Multiplied out, a product is a sum over the box's corners
// with signs: corners at which boxes meet cancel, and what is left are the corners of what they
// fill, holes and overlaps included. So boxes that fill the value add up to the value's own
// product; any others do with a chance of less than 1 in 2^50. Modulo a prime, in time linear in
// the boxes.
class Filling {
 public:
  Filling(uint64_t seed, const Shape& shape)
      : seed_(seed), expected_(product(Shape(shape.size()), shape)) {}

  void add(const ManifestPiece& piece) {
    sum_ = (sum_ + product(piece.starts, piece.sizes)) % kPrime;
  }
  bool is_exact() const { return sum_ == expected_; }

 private:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

  // A bijective mix of 64 bits (splitmix64's), so that equal numbers are as rare as random ones.
  uint64_t number(std::size_t dimension, int64_t coordinate) const {
    uint64_t x = seed_ + 0x9e3779b97f4a7c15 * (dimension + 1) + static_cast<uint64_t>(coordinate);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return ((x ^ (x >> 31)) + seed_) % kPrime;
  }

  uint64_t product(const Shape& starts, const Shape& sizes) const {
    uint64_t out = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const uint64_t length = number(i, starts[i] + sizes[i]) + kPrime - number(i, starts[i]);
      out = static_cast<uint64_t>(static_cast<unsigned __int128>(out) * length % kPrime);
    }
    return out;
  }

  const uint64_t seed_;
  const uint64_t expected_;
  uint64_t sum_ = 0;
};

class Parser {
 public:
  enum class Of { kAll, kPart };
  Parser(const std::string& text, const std::string& path, Of of)
      : text_(text), path_(path), of_(of) {}

  Manifest parse() {
    const json root = parse_body(checked_body());
    try {
      return read(root);
    } catch (const json::exception& e) {
      fail(0, "expected a checkpoint's table of contents: ", e.what());
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(std::size_t byte, const Parts&... parts) const {
    throw DataLoss(str_cat("[checkpoint.restore] ", path_, ": at byte ", byte, ": ", parts...,
                           "; the file is damaged or not Cohort's: restore another checkpoint"));
  }

  std::string_view checked_body() const {
    const std::string_view all = text_;
    const std::size_t begin = kHead.size() + kDigits + kMiddle.size();
    if (all.size() < begin + kTail.size()) {
      fail(all.size(), "expected a checkpoint's table of contents, got the end of the file");
    }
    const bool framed = all.starts_with(kHead) && all.ends_with(kTail) &&
                        all.substr(kHead.size() + kDigits, kMiddle.size()) == kMiddle;
    if (!framed) fail(0, "expected a checkpoint's table of contents, got other text, or a part");
    const std::string_view body = all.substr(begin, all.size() - begin - kTail.size());
    const std::string_view stored = all.substr(kHead.size(), kDigits);
    const std::string computed = digits_of(base::crc32c(body));
    if (stored != computed) {
      fail(begin, "expected checksum ", stored, " over ", body.size(), " bytes, got ", computed);
    }
    return body;
  }

  json parse_body(std::string_view body) const {
    try {
      return parse_json(body, kDeepestManifest);
    } catch (const BadJson& e) {
      fail(kHead.size() + kDigits + kMiddle.size() + e.byte, e.text);
    }
  }

  Manifest read(const json& root) const {
    if (root.at("format") != kFormat) {
      fail(0, "expected format ", kFormat, ", got ", shown(root.at("format")));
    }
    const json& version = root.at("format_version");
    if (!version.is_number_unsigned() || version.get<uint64_t>() == 0) {
      fail(0, "expected a format_version of 1 or more, got ", shown(version));
    }
    if (version.get<uint64_t>() > kVersion) {
      throw Unimplemented(str_cat("[checkpoint.restore] ", path_, ": expected format_version ",
                                  kVersion, " at most, got ", shown(version),
                                  ": a later version of Cohort wrote it"));
    }
    Manifest out;
    for (const json& file : root.at("files")) out.files.push_back(file_of(file));
    for (const auto& [path, value] : root.at("values").get_ref<const json::object_t&>()) {
      out.values.emplace(path, value_of(path, value, out.files));
    }
    check_apart(out.values);
    for (const auto& [alias, path] : root.at("aliases").get_ref<const json::object_t&>()) {
      const std::string& target = path.get_ref<const std::string&>();
      if (!out.values.contains(target)) {
        fail(0, "alias \"", alias, "\" names \"", target,
             "\", but this checkpoint has no value of that name");
      }
      out.aliases.emplace(alias, target);
    }
    out.unfinished = root.at("unfinished").get<std::set<std::string>>();
    constexpr uint64_t kMostThreads = 1 << 20;  // what is beyond, or missing, is not known
    const auto threads = root.find("intra_op_threads");
    if (threads != root.end() && threads->is_number_unsigned() && *threads <= kMostThreads) {
      out.intra_op_threads = threads->get<int>();
    }
    return out;
  }

  // A whole number in these bounds; the JSON library would turn any other one into one.
  uint64_t number_of(const json& object, const char* key, uint64_t most = INT64_MAX) const {
    const json& value = object.at(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > most) {
      fail(0, "expected a whole number from 0 to ", most, " as \"", key, "\", got ", shown(value));
    }
    return value.get<uint64_t>();
  }

  Shape shape_of(const json& object, const char* key) const {
    const json& value = object.at(key);
    if (!value.is_array()) fail(0, "expected an array as \"", key, "\", got ", shown(value));
    Shape out;
    for (const json& size : value) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
        fail(0, "expected whole numbers >= 0 as \"", key, "\", got ", shown(value));
      }
      out.push_back(size.get<int64_t>());
    }
    return out;
  }

  ManifestFile file_of(const json& file) const {
    ManifestFile out{file.at("name"), number_of(file, "bytes"),
                     number_of(file, "header_bytes", kLengthBytes + kLargestHeader),
                     static_cast<uint32_t>(number_of(file, "header_crc32c", UINT32_MAX))};
    const bool plain = !out.name.empty() && out.name.front() != '.' &&
                       out.name.find('/') == std::string::npos &&
                       out.name.find('\0') == std::string::npos;
    if (!plain) fail(0, "expected the name of a file in the folder, got \"", out.name, "\"");
    if (out.header_bytes > out.bytes) fail(0, "a header longer than its file ", out.name);
    return out;
  }

  static const FormatType* type_named(const std::string& name) {
    for (const FormatType& type : kFormatTypes) {
      if (type.name == name) return &type;
    }
    return nullptr;
  }

  ManifestValue value_of(const std::string& path, const json& value,
                         const std::vector<ManifestFile>& files) const {
    const FormatType* type = type_named(value.at("dtype").get<std::string>());
    if (type == nullptr) fail(0, "\"", path, "\": unknown dtype ", value.at("dtype").dump());
    ManifestValue out{type->dtype, shape_of(value, "shape"), {}};
    const uint64_t whole = bytes_of(path, out.shape, *type);
    Filling filling(seed_, out.shape);
    for (const json& item : value.at("pieces")) {
      ManifestPiece piece{
          number_of(item, "file"),  number_of(item, "offset"),
          number_of(item, "bytes"), static_cast<uint32_t>(number_of(item, "crc32c", UINT32_MAX)),
          shape_of(item, "starts"), shape_of(item, "sizes")};
      check_piece(path, out.shape, piece, *type, files);
      filling.add(piece);
      out.pieces.push_back(std::move(piece));
    }
    if (of_ == Of::kAll && whole > 0 && !filling.is_exact()) {
      fail(0, "\"", path, "\": expected pieces that make up ", bracketed(out.shape),
           ", each element once");
    }
    return out;
  }

  // A hundred values over the same bytes would ask for a hundred times the file's size of memory.
  void check_apart(const std::map<std::string, ManifestValue>& values) const {
    std::vector<std::tuple<uint64_t, uint64_t, uint64_t, const std::string*>> all;
    for (const auto& [path, value] : values) {
      for (const ManifestPiece& piece : value.pieces) {
        if (piece.bytes > 0) all.emplace_back(piece.file, piece.offset, piece.bytes, &path);
      }
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto& [file, begin, bytes, path] = all[i - 1];
      const auto& [next_file, next, unused, next_path] = all[i];
      if (file != next_file || next - begin >= bytes) continue;
      fail(0, "\"", *next_path, "\": a piece over bytes of \"", *path, "\"");
    }
  }

  void check_piece(const std::string& path, const Shape& shape, const ManifestPiece& piece,
                   const FormatType& type, const std::vector<ManifestFile>& files) const {
    bool fits = piece.starts.size() == shape.size() && piece.sizes.size() == shape.size() &&
                piece.file < files.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
      fits = piece.starts[i] >= 0 && piece.sizes[i] >= 0 && piece.starts[i] <= shape[i] &&
             piece.sizes[i] <= shape[i] - piece.starts[i];
    }
    fits = fits && piece.bytes == bytes_of(path, piece.sizes, type);
    fits = fits && piece.offset >= files[piece.file].header_bytes &&
           piece.offset <= files[piece.file].bytes &&
           piece.bytes <= files[piece.file].bytes - piece.offset;
    if (!fits) fail(0, "\"", path, "\": a piece that does not fit value or file");
  }

  uint64_t bytes_of(const std::string& path, const Shape& shape, const FormatType& type) const {
    int64_t product = type.bytes;
    bool is_empty = false;
    for (const int64_t size : shape) {
      is_empty = is_empty || size == 0;
      if (size < 0 || __builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product)) {
        fail(0, "\"", path, "\": a shape that no memory holds: ", bracketed(shape));
      }
    }
    return is_empty ? 0 : static_cast<uint64_t>(product);
  }

  const std::string& text_;
  const std::string& path_;
  const Of of_;
  const uint64_t seed_ = random_number();  // so that nobody can make boxes for it
};

}  // namespace

bool do_fill(const Shape& shape, const std::vector<ManifestPiece>& pieces) {
  Filling filling(random_number(), shape);
  for (const ManifestPiece& piece : pieces) {
    if (piece.starts.size() != shape.size() || piece.sizes.size() != shape.size()) return false;
    filling.add(piece);
  }
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return is_empty || filling.is_exact();
}

std::string manifest_text(const Manifest& manifest) {
  std::string body;
  try {
    body = str_cat("{\"format\": ", json(kFormat).dump(), ", \"format_version\": ", kVersion,
                   ",\n\"files\": ", files_of(manifest).dump(), ",\n\"values\": {\n");
    const char* separator = "";
    for (const auto& [path, value] : manifest.values) {  // a line for each
      body += str_cat(separator, json(path).dump(), ": ", json_of(value).dump());
      separator = ",\n";
    }
    json aliases = json::object();
    for (const auto& [alias, path] : manifest.aliases) aliases[alias] = path;
    body += str_cat("},\n\"aliases\": ", aliases.dump(),
                    ",\n\"unfinished\": ", json(manifest.unfinished).dump(),
                    ",\n\"intra_op_threads\": ", manifest.intra_op_threads, "}");
  } catch (const json::exception& e) {
    throw InvalidArgument(str_cat("[checkpoint.save] expected names in UTF-8: ", e.what()));
  }
  return str_cat(kHead, digits_of(base::crc32c(body)), kMiddle, body, kTail);
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  return Parser(text, path, Parser::Of::kAll).parse();
}

Manifest parse_part(const std::string& text, const std::string& writer) {
  return Parser(text, writer, Parser::Of::kPart).parse();
}

}  // namespace cohort::internal::checkpoint
