// SPDX-License-Identifier: Apache-2.0
//
// Tables of contents that several writers would make, and ones that lie.
#include "cohort/checkpoint/internal/manifest.h"

#include <gtest/gtest.h>

#include "cohort/base/crc32c.h"
#include "cohort/base/sanitizers.h"
#include "cohort/checkpoint/internal/checkpoint_folder.h"
#include "cohort/checkpoint/internal/tensor_writer.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using internal::checkpoint::Manifest;
using internal::checkpoint::ManifestPiece;
using testing::error_text;
using testing::write_bytes;

class ManifestTest : public testing::FolderTest {
 protected:
  /// A writer's file with one tensor, noted in the manifest.
  ManifestPiece write(Manifest& manifest, const std::string& name, const Tensor& part,
                      Shape starts) {
    internal::checkpoint::OutputFile file("test", path(name), name);
    const internal::checkpoint::WrittenTensors written =
        internal::checkpoint::write_tensors(file, {{"w", part}}, {});
    manifest.files.push_back({name, written.bytes, written.header_bytes, written.header_crc32c});
    const internal::checkpoint::WrittenTensor& place = written.tensors.at("w");
    return {manifest.files.size() - 1, place.offset,  place.bytes, place.crc32c,
            std::move(starts),         shape_of(part)};
  }
  void write(const Manifest& manifest) const {
    write_bytes(path(internal::checkpoint::kManifestName),
                internal::checkpoint::manifest_text(manifest));
  }
};

TEST_F(ManifestTest, PutsPiecesOfSeveralWritersTogether) {
  const Tensor whole = arange(30, kFloat64).reshape({5, 6});
  Manifest manifest;
  std::vector<ManifestPiece> pieces;
  pieces.push_back(write(manifest, "a", whole.slice(0, 0, 2), {0, 0}));
  pieces.push_back(write(manifest, "b", whole.slice(0, 2, 5).slice(1, 0, 4), {2, 0}));
  pieces.push_back(write(manifest, "c", whole.slice(0, 2, 5).slice(1, 4, 6), {2, 4}));
  manifest.values["w"] = {kFloat64, {5, 6}, pieces};
  write(manifest);
  EXPECT_TRUE(internal::checkpoint::read_checkpoint(folder_).tensors.at("w").equal(whole));

  std::swap(pieces[0], pieces[2]);
  manifest.values["w"] = {kFloat64, {5, 6}, pieces};
  write(manifest);
  EXPECT_TRUE(internal::checkpoint::read_checkpoint(folder_).tensors.at("w").equal(whole));

  for (const int missing : {0, 1, 2}) {
    std::vector<ManifestPiece> fewer = pieces;
    fewer.erase(fewer.begin() + missing);
    manifest.values["w"] = {kFloat64, {5, 6}, fewer};
    write(manifest);
    EXPECT_THROW(internal::checkpoint::read_checkpoint(folder_), DataLoss) << missing;
  }
}

std::string framed(const std::string& body) {
  char crc[9];
  std::snprintf(crc, sizeof crc, "%08x", internal::base::crc32c(body));
  return "{\"crc32c\": \"" + std::string(crc) + "\", \"manifest\": " + body + "}\n";
}

std::string with_value(const std::string& value) {
  return R"({"format":"cohort.checkpoint","format_version":1,"files":[{"name":"f","bytes":24,)"
         R"("header_bytes":16,"header_crc32c":0}],"values":{"w":)" +
         value + R"(},"aliases":{},"unfinished":[]})";
}
std::string with_piece(const std::string& piece) {
  return with_value(R"({"dtype":"F32","shape":[2],"pieces":[)" + piece + "]}");
}
std::string piece(const std::string& offset, const std::string& bytes, const std::string& starts,
                  const std::string& sizes, const std::string& file = "0") {
  return R"({"file":)" + file + R"(,"offset":)" + offset + R"(,"bytes":)" + bytes +
         R"(,"crc32c":1,"starts":)" + starts + R"(,"sizes":)" + sizes + "}";
}

std::string with_version(const std::string& version) {
  return R"({"format":"cohort.checkpoint","format_version":)" + version +
         R"(,"files":[],"values":{},"aliases":{},"unfinished":[]})";
}

TEST(Manifest, RefusesTextsThatLie) {
  EXPECT_NO_THROW(internal::checkpoint::parse_manifest(framed(with_version("1")), "m"));
  EXPECT_NO_THROW(internal::checkpoint::parse_manifest(
      framed(with_piece(piece("16", "8", "[0]", "[2]"))), "m"));
  const std::vector<std::string> bad = {
      with_piece(piece("16", "4", "[0]", "[1]")),       // half of it
      with_piece(piece("16", "8", "[0]", "[1]")),       // bytes of another box
      with_piece(piece("16", "8", "[1]", "[2]")),       // beyond the value
      with_piece(piece("16", "8", "[-1]", "[2]")),      // before it
      with_piece(piece("8", "8", "[0]", "[2]")),        // in the header
      with_piece(piece("20", "8", "[0]", "[2]")),       // beyond the file
      with_piece(piece("16", "8", "[0]", "[2]", "1")),  // no such file
      with_piece(piece("16", "8", "[0,0]", "[2,1]")),   // another rank
      with_piece(piece("16", "4", "[0]", "[1]") + "," + piece("20", "4", "[0]", "[1]")),  // twice
      with_piece(piece("18446744073709551615", "8", "[0]", "[2]")),
      with_value(R"({"dtype":"F99","shape":[0],"pieces":[]})"),
      with_value(R"({"dtype":"F32","shape":[-1],"pieces":[]})"),
      with_value(R"({"dtype":"F32","shape":[4611686018427387904,4],"pieces":[]})"),
      with_value(R"({"dtype":"F32","shape":"2","pieces":[]})"),
      with_value("1"),
      R"({"format":"other","format_version":1,"files":[],"values":{},"aliases":{},"unfinished":[]})",
      std::string(R"({"format":"cohort.checkpoint","format_version":1,"files":[],"values":{},)") +
          R"("aliases":{"a":"b"},"unfinished":[]})",
      R"({"format":"cohort.checkpoint"})",
      with_piece(piece("16", "8", "[0]", "[2]", "1e300")),
      with_piece(piece("16", "8", "[0]", "[2]", "-1")),
      with_piece(piece("16", "8", "[0]", "[2]", "0.5")),
      with_piece(piece("16.5", "8", "[0]", "[2]")),
      with_piece(piece("16", "1e300", "[0]", "[2]")),
      with_piece(piece("16", "8", "[0.5]", "[2]")),
      with_piece(piece("16", "8", "[0]", "[1e300]")),
      with_value(R"({"dtype":"F32","shape":[1e300],"pieces":[]})"),
      with_value(R"({"dtype":"F32","shape":[2.0],"pieces":[]})"),
      with_version("-1"),
      with_version("0"),
      with_version("1.9"),
      with_version("1e300"),
      with_version("\"1\""),
      with_version("null"),
      "[]",
      "{",
      "",
      std::string(100000, '['),
  };
  for (const std::string& body : bad) {
    EXPECT_THROW(internal::checkpoint::parse_manifest(framed(body), "m"), DataLoss)
        << body.substr(0, 300);
  }
  for (const char* name : {"../f", "/etc/passwd", "a/b", "", ".", "..", "f\\u0000"}) {
    const std::string body =
        std::string(R"({"format":"cohort.checkpoint","format_version":1,"files":[{"name":")") +
        name +
        R"(","bytes":1,"header_bytes":1,"header_crc32c":0}],"values":{},"aliases":{},"unfinished":[]})";
    EXPECT_THROW(internal::checkpoint::parse_manifest(framed(body), "m"), DataLoss) << name;
  }
}

// A small file could else ask for any amount of memory.
TEST(Manifest, RefusesValuesOverTheSameBytes) {
  const auto one = [](const std::string& offset) {
    return R"({"dtype":"F32","shape":[1],"pieces":[)" + piece(offset, "4", "[0]", "[1]") + "]}";
  };
  const auto parse = [&](const std::string& w, const std::string& v) {
    return internal::checkpoint::parse_manifest(framed(with_value(w + R"(,"v":)" + v)), "m");
  };
  EXPECT_EQ(parse(one("16"), one("20")).values.size(), 2u);
  const std::string both =
      R"({"dtype":"F32","shape":[2],"pieces":[)" + piece("16", "8", "[0]", "[2]") + "]}";
  for (const auto& [w, v] : {std::pair(one("16"), one("16")),
                             {one("17"), one("20")},
                             {one("20"), both},
                             {both, one("19")}}) {
    testing::expect_error<DataLoss>({"m: at byte 0: ", "a piece over bytes of"},
                                    [&, a = w, b = v] { parse(a, b); });
  }
  const std::string none =
      R"({"dtype":"F32","shape":[0],"pieces":[)" + piece("16", "0", "[0]", "[0]") + "]}";
  EXPECT_EQ(parse(none, both).values.size(), 2u);
}

/// A value of side x side float32, a piece for each place.
Manifest of_many_pieces(int64_t side) {
  Manifest manifest;
  const auto bytes = static_cast<uint64_t>(4 * side * side);
  manifest.files.push_back({"f", bytes, 0, 0});
  std::vector<ManifestPiece> pieces;
  for (int64_t i = 0; i < side; ++i) {
    for (int64_t k = 0; k < side; ++k) {
      pieces.push_back({0, 4 * static_cast<uint64_t>(i * side + k), 4, 0, {i, k}, {1, 1}});
    }
  }
  manifest.values["w"] = {kFloat32, {side, side}, std::move(pieces)};
  return manifest;
}

// Comparing every two of them would take minutes.
TEST(Manifest, TakesVeryManyPieces) {
  constexpr int64_t kSide = COHORT_UNDER_SANITIZER != 0 ? 100 : 400;
  Manifest manifest = of_many_pieces(kSide);
  const std::string text = internal::checkpoint::manifest_text(manifest);
  EXPECT_EQ(internal::checkpoint::parse_manifest(text, "m").values.at("w").pieces.size(),
            kSide * kSide);
  // One place twice, and another one not at all.
  manifest.values["w"].pieces.back().starts = {0, 0};
  EXPECT_THROW(
      internal::checkpoint::parse_manifest(internal::checkpoint::manifest_text(manifest), "m"),
      DataLoss);
}

TEST(Manifest, TakesBoxesThatFillAValueAndNoOthers) {
  Manifest manifest;
  manifest.files.push_back({"f", 1000, 0, 0});
  const auto parses = [&](const std::vector<std::pair<Shape, Shape>>& boxes) {
    std::vector<ManifestPiece> pieces;
    uint64_t offset = 0;
    for (const auto& [starts, sizes] : boxes) {
      uint64_t bytes = 1;
      for (const int64_t size : sizes) bytes *= static_cast<uint64_t>(size);
      pieces.push_back({0, offset, bytes, 0, starts, sizes});
      offset += bytes;
    }
    manifest.values["w"] = {kUint8, {3, 3}, pieces};
    const std::string text = error_text<DataLoss>([&] {
      internal::checkpoint::parse_manifest(internal::checkpoint::manifest_text(manifest), "m");
    });
    return text == "nothing thrown";
  };
  EXPECT_TRUE(parses({{{0, 0}, {3, 3}}}));
  EXPECT_TRUE(parses({{{0, 0}, {3, 3}}, {{1, 1}, {0, 2}}}));  // An empty one more.
  // The pinwheel, which no straight cut divides.
  EXPECT_TRUE(parses(
      {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}}));
  EXPECT_FALSE(parses({{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}}));
  EXPECT_FALSE(parses({{{0, 0}, {3, 2}}, {{0, 1}, {3, 1}}}));  // As many places, one column twice.
  EXPECT_FALSE(parses({{{0, 0}, {3, 3}}, {{1, 1}, {1, 1}}}));
  EXPECT_FALSE(parses({}));
}

TEST(Manifest, SaysThatALaterVersionWroteIt) {
  EXPECT_THROW(
      internal::checkpoint::parse_manifest(
          framed(R"({"format":"cohort.checkpoint","format_version":2,"anything":"else"})"), "m"),
      Unimplemented);
}

}  // namespace
}  // namespace cohort
