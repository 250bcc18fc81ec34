// SPDX-License-Identifier: Apache-2.0
//
// {"crc32c": "0123abcd", "manifest": {...}}: the checksum is of the bytes of the inner object.
#include "cohort/checkpoint/internal/manifest.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/checkpoint/internal/format.h"

namespace cohort::internal {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "cohort.checkpoint";
constexpr int kVersion = 1;
constexpr std::string_view kHead = "{\"crc32c\": \"";
constexpr std::string_view kMiddle = "\", \"manifest\": ";
constexpr std::string_view kTail = "}\n";
constexpr std::size_t kDigits = 8;
constexpr int kDeepest = 10;

std::string digits_of(uint32_t crc) {
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

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

class Parser {
 public:
  Parser(const std::string& text, const std::string& path) : text_(text), path_(path) {}

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
    throw DataLoss(str_cat("[checkpoint.restore] ", path_, ": at byte ", byte, ": ", parts...));
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
    const std::string computed = digits_of(crc32c(body));
    if (stored != computed) {
      fail(begin, "expected checksum ", stored, " over ", body.size(), " bytes, got ", computed);
    }
    return body;
  }

  json parse_body(std::string_view body) const {
    const auto watch = [&](int depth, json::parse_event_t, json&) {
      if (depth > kDeepest) fail(0, "expected values nested ", kDeepest, " deep at most");
      return true;
    };
    try {
      return json::parse(body, watch);
    } catch (const json::exception& e) {
      fail(0, "expected JSON: ", e.what());
    }
  }

  Manifest read(const json& root) const {
    if (root.at("format") != kFormat) fail(0, "expected format ", kFormat);
    const int version = root.at("format_version").get<int>();
    if (version > kVersion) {
      throw Unimplemented(str_cat("[checkpoint.restore] ", path_, ": expected format_version ",
                                  kVersion, " at most, got ", version,
                                  ": a later version of Cohort wrote it"));
    }
    Manifest out;
    for (const json& file : root.at("files")) out.files.push_back(file_of(file));
    for (const auto& [path, value] : root.at("values").items()) {
      out.values.emplace(path, value_of(path, value, out.files));
    }
    for (const auto& [alias, path] : root.at("aliases").items()) {
      const std::string& target = path.get_ref<const std::string&>();
      if (!out.values.contains(target)) fail(0, "alias of \"", target, "\", which is not there");
      out.aliases.emplace(alias, target);
    }
    out.unfinished = root.at("unfinished").get<std::set<std::string>>();
    return out;
  }

  ManifestFile file_of(const json& file) const {
    ManifestFile out{file.at("name"), file.at("bytes"), file.at("header_bytes"),
                     file.at("header_crc32c")};
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
    ManifestValue out{type->dtype, value.at("shape").get<Shape>(), {}};
    uint64_t all = 0;
    for (const json& item : value.at("pieces")) {
      ManifestPiece piece{item.at("file"),   item.at("offset"), item.at("bytes"),
                          item.at("crc32c"), item.at("starts"), item.at("sizes")};
      check_piece(path, out.shape, piece, *type, files);
      for (const ManifestPiece& other : out.pieces) {
        if (overlap(piece, other)) fail(0, "\"", path, "\": two pieces overlap");
      }
      all += piece.bytes;
      out.pieces.push_back(std::move(piece));
    }
    if (all != bytes_of(path, out.shape, *type)) {
      fail(0, "\"", path, "\": expected pieces that make up ", bracketed(out.shape));
    }
    return out;
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

  static bool overlap(const ManifestPiece& a, const ManifestPiece& b) {
    for (std::size_t i = 0; i < a.starts.size(); ++i) {
      if (a.starts[i] >= b.starts[i] + b.sizes[i] || b.starts[i] >= a.starts[i] + a.sizes[i]) {
        return false;
      }
    }
    return a.bytes > 0 && b.bytes > 0;
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
};

}  // namespace

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
                    ",\n\"unfinished\": ", json(manifest.unfinished).dump(), "}");
  } catch (const json::exception& e) {
    throw InvalidArgument(str_cat("[checkpoint.save] expected names in UTF-8: ", e.what()));
  }
  return str_cat(kHead, digits_of(crc32c(body)), kMiddle, body, kTail);
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  return Parser(text, path).parse();
}

}  // namespace cohort::internal
