// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cohort-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A file of this header, with the length in front of it, and these data bytes.
  std::string write(const std::string& header, const std::string& data) const {
    uint64_t length = header.size();
    std::string text(sizeof length, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    return write_raw(text + header + data);
  }
  std::string write_raw(const std::string& bytes) const {
    fs::remove(path("raw"));  // Truncating a file is slow on some file systems.
    std::ofstream(path("raw"), std::ios::binary) << bytes;
    return path("raw");
  }
  static void expect_damage(std::string_view words, const std::string& path) {
    testing::expect_error<DataLoss>({words}, [&] { load_tensors(path); });
  }

  fs::path folder_;
};

TEST_F(Safetensors, GivesBackWhatWasSaved) {
  const std::map<std::string, Tensor> saved = {
      {"a/kernel", from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
      {"a/bias", from_vector<double>({-0.0, 1e300}, {2})},
      {"steps", scalar(7, kInt64)},
      {"mask", tensor({1, 0, 1}, kBool)},
      {"half", tensor({0.5, 2}, kBFloat16)},
      {"none", zeros({0, 4})}};
  save_tensors(path("x.safetensors"), saved, {{"format", "cohort"}, {"note", "\"\n\u00e9"}});
  const TensorFile file = load_tensors(path("x.safetensors"));
  EXPECT_EQ(file.metadata.at("format"), "cohort");
  EXPECT_EQ(file.metadata.at("note"), "\"\n\u00e9");
  ASSERT_EQ(file.tensors.size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    const Tensor& got = file.tensors.at(name);
    EXPECT_EQ(got.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(got.equal(tensor)) << name;
  }
}

TEST_F(Safetensors, WritesTheBytesOfTheReferenceImplementation) {
  save_tensors(path("x"), {{"attn.0", zeros({1, 2, 3})}}, {{"format", "pt"}});
  const std::string bytes = bytes_of(path("x"));
  const std::string header = R"({"__metadata__":{"cohort.crc32c":"{\"attn.0\":\"84fbecee\"}",)"
                             R"("cohort.crc32c.header":"HHHHHHHH","format":"pt"},)"
                             R"("attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})";
  std::string got = bytes.substr(8, bytes.size() - 8 - 24);
  const std::size_t sum = header.find("HHHHHHHH");
  ASSERT_GE(got.size(), header.size());
  got.replace(sum, 8, "HHHHHHHH");
  EXPECT_EQ(got, header + std::string((8 - header.size() % 8) % 8, ' '));
  EXPECT_EQ(bytes[0], static_cast<char>(got.size()));
  EXPECT_EQ(bytes.substr(bytes.size() - 24), std::string(24, '\0'));
}

// ---- checksums ----

TEST_F(Safetensors, ReadsFilesWithoutChecksums) {
  const std::string file = write(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
      "\1\2");
  EXPECT_TRUE(load_tensors(file).tensors.at("a").equal(tensor({1, 2}, kUint8)));
  EXPECT_EQ(load_tensors(file).metadata.size(), 1u);
}

TEST_F(Safetensors, KeepsItsChecksumsToItself) {
  save_tensors(path("x"), {{"a", tensor({1})}}, {{"note", "n"}});
  const TensorFile file = load_tensors(path("x"));
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"note", "n"}}));
  save_tensors(path("y"), file.tensors, file.metadata);
  EXPECT_EQ(bytes_of(path("x")), bytes_of(path("y")));
  EXPECT_THROW(save_tensors(path("z"), {}, {{"cohort.crc32c", "{}"}}), InvalidArgument);
}

TEST_F(Safetensors, ReadsWhatAnotherToolHasWrittenInAnotherOrder) {
  save_tensors(path("x"), {{"a", tensor({1}, kUint8)}, {"b", tensor({2}, kUint8)}});
  const std::string bytes = bytes_of(path("x"));
  const std::size_t end = bytes.find("\"a\":{");
  const std::string head = bytes.substr(8, end - 8);
  const std::string file = write(head + R"("b":{"shape":[1],"dtype":"U8","data_offsets":[0,1]}, )" +
                                     R"("a":{"shape":[1],"dtype":"U8","data_offsets":[1,2]}})",
                                 "\2\1");
  EXPECT_EQ(load_tensors(file).tensors.at("b").item<uint8_t>(), 2);
  // The same with the two tensors' bytes exchanged.
  const std::string swapped =
      write(head + R"("b":{"shape":[1],"dtype":"U8","data_offsets":[0,1]},)" +
                R"("a":{"shape":[1],"dtype":"U8","data_offsets":[1,2]}})",
            "\1\2");
  expect_damage("of tensor \"b\" are not those", swapped);
}

class FlippedBits : public Safetensors {
 protected:
  void SetUp() override {
    Safetensors::SetUp();
    saved_ = {{"dense/kernel", from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
              {"dense/bias", from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2})},
              {"half", tensor({0.5, 2}, kBFloat16)},
              {"mask", tensor({1, 0, 1}, kBool)},
              {"steps", scalar(7, kInt64)},
              {"u", tensor({1, 2}, kUint8)}};
    save_tensors(path("x"), saved_, metadata_);
    good_ = bytes_of(path("x"));
  }
  /// Whether these bytes load, and give something else than what was saved.
  bool loads_wrong(const std::string& bytes) const {
    try {
      const TensorFile file = load_tensors(write_raw(bytes));
      // Checksums that got another name beside data as they were are no harm.
      if (file.tensors.size() != saved_.size()) return true;
      for (const auto& [key, text] : metadata_) {
        if (!file.metadata.contains(key) || file.metadata.at(key) != text) return true;
      }
      return !std::all_of(saved_.begin(), saved_.end(), [&](const auto& entry) {
        const auto got = file.tensors.find(entry.first);
        return got != file.tensors.end() &&
               got->second.scalar_type() == entry.second.scalar_type() &&
               shape_of(got->second) == shape_of(entry.second) && got->second.equal(entry.second);
      });
    } catch (const DataLoss&) {
      return false;
    }
  }

  const std::map<std::string, std::string> metadata_ = {{"format", "cohort"}, {"epoch", "12"}};
  std::map<std::string, Tensor> saved_;
  std::string good_;
};

TEST_F(FlippedBits, EachOneIsFound) {
  for (std::size_t i = 0; i < 8 * good_.size(); ++i) {
    std::string bytes = good_;
    bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << (i % 8)));
    EXPECT_FALSE(loads_wrong(bytes)) << "bit " << i % 8 << " of byte " << i / 8;
    SCOPED_TRACE(i);
    expect_damage("at byte", path("raw"));
  }
}

TEST_F(FlippedBits, EachOtherByteIsFound) {
  for (std::size_t i = 0; i < good_.size(); ++i) {
    for (const int value : {0, 32, 34, 44, 48, 57, 65, 127, 255}) {
      std::string bytes = good_;
      bytes[i] = static_cast<char>(value);
      EXPECT_FALSE(loads_wrong(bytes)) << value << " as byte " << i;
    }
  }
}

TEST_F(FlippedBits, ManyAtOnceAreFound) {
  std::mt19937 random(7);
  for (int round = 0; round < 10000; ++round) {
    std::string bytes = good_;
    const std::size_t flips = 1 + random() % 8;
    for (std::size_t k = 0; k < flips; ++k) {
      const std::size_t bit = random() % (8 * bytes.size());
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    }
    EXPECT_FALSE(loads_wrong(bytes)) << "round " << round;
  }
}

TEST_F(Safetensors, PutsWideTypesFirstSoThatAllAreAligned) {
  save_tensors(path("x"), {{"a", tensor({1}, kBool)}, {"b", tensor({1}, kFloat64)}});
  const std::string bytes = bytes_of(path("x"));
  EXPECT_LT(bytes.find("\"b\""), bytes.find("\"a\""));
}

TEST_F(Safetensors, SavesViewsInTheirLogicalOrder) {
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  save_tensors(path("x"), {{"t", x.t()}, {"column", x.select(1, 1)}});
  const TensorFile file = load_tensors(path("x"));
  EXPECT_TRUE(file.tensors.at("t").equal(x.t()));
  EXPECT_TRUE(file.tensors.at("column").equal(tensor({2, 5})));
}

TEST_F(Safetensors, ReplacesAFileAndLeavesNoTemporaries) {
  save_tensors(path("x"), {{"v", tensor({1})}});
  save_tensors(path("x"), {{"v", tensor({2})}});
  EXPECT_EQ(load_tensors(path("x")).tensors.at("v").item<float>(), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(Safetensors, KeepsTheOldFileIfTheNewOneCannotBeWritten) {
  save_tensors(path("x"), {{"v", tensor({1})}});
  EXPECT_THROW(save_tensors(path("x"), {{"v", Tensor()}}), InvalidArgument);
  EXPECT_THROW(save_tensors(path("x"), {{"__metadata__", tensor({1})}}), InvalidArgument);
  EXPECT_THROW(save_tensors(path("x"), {{"\xff", tensor({1})}}), InvalidArgument);
  EXPECT_THROW(save_tensors(path("x"), {{"v", at::Tensor(zeros({1}, DType::ComplexFloat))}}),
               InvalidArgument);
  EXPECT_EQ(load_tensors(path("x")).tensors.at("v").item<float>(), 1);
  fs::create_directory(path("folder"));
  EXPECT_THROW(save_tensors(path("folder"), {{"v", tensor({1})}}), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2) << "a temporary file is left";
}

TEST_F(Safetensors, SaysWhyAFileCannotBeOpened) {
  testing::expect_error(ErrorCode::kNotFound, {"absent"}, [&] { load_tensors(path("absent")); });
  EXPECT_THROW(load_tensors(folder_.string()), InvalidArgument);
  EXPECT_THROW(save_tensors(path("no/such/folder"), {}), Error);
}

TEST_F(Safetensors, ReportsEveryPlaceWhereAFileIsCutOff) {
  save_tensors(path("x"), {{"a", tensor({1, 2})}, {"b", tensor({1, 0}, kBool)}});
  const std::string bytes = bytes_of(path("x"));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    SCOPED_TRACE(size);
    expect_damage("at byte", write_raw(bytes.substr(0, size)));
  }
  expect_damage("1 more bytes", write_raw(bytes + "x"));
}

TEST_F(Safetensors, RefusesHeadersThatLie) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"("dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets;
  };
  const auto one = [&](const std::string& text) { return "{\"a\":{" + text + "}}"; };
  const std::string data(4, '\0');
  EXPECT_NO_THROW(load_tensors(write(one(entry("F32", "[1]", "[0,4]")), data)));
  const std::vector<std::string> bad = {
      one(entry("F32", "[2]", "[0,4]")),                      // more than there is
      one(entry("F64", "[1]", "[0,4]")),                      // another type
      one(entry("F99", "[1]", "[0,4]")),                      // no such type
      one(entry("F32", "[-1]", "[0,4]")),                     // a negative size
      one(entry("F32", "[1.0]", "[0,4]")),                    // no integer
      one(entry("F32", "[1]", "[4,0]")),                      // the wrong way round
      one(entry("F32", "[1]", "[4,8]")),                      // beyond the end
      one(entry("F32", "[1]", "[0]")),                        // one offset
      one(entry("F32", "[4611686018427387904,4]", "[0,4]")),  // 2^64 elements
      one(entry("F32", "[18446744073709551615]", "[0,4]")),   // 2^64 - 1
      one("\"dtype\":\"F32\",\"shape\":[1]"),                 // no offsets
      one(entry("F32", "[1]", "[0,4]") + ",\"more\":1"),      // one key too many
      "{\"a\":1}",                                            // no object
      "[]",                                                   // no object at all
      "{",                                                    // no JSON
      "",                                                     // nothing
      "{\"__metadata__\":{\"a\":1}}",                         // metadata is text
      "{\"a\":1e999}",                                        // no number of this machine
      "{\"a\":{" + entry("U8", "[3]", "[0,3]") + "},\"b\":{" + entry("U8", "[2]", "[2,4]") + "}}",
      "{\"a\":{" + entry("U8", "[1]", "[0,1]") + "},\"b\":{" + entry("U8", "[2]", "[2,4]") + "}}",
      "{\"a\":{" + entry("F32", "[1]", "[0,4]") + "},\"a\":{" + entry("F32", "[1]", "[0,4]") + "}}",
  };
  for (const std::string& header : bad) {
    SCOPED_TRACE(header);
    expect_damage("raw: at byte", write(header, data));
  }
  const std::string empty = one(entry("F32", "[0,4611686018427387904,4]", "[0,0]"));
  expect_damage("do not fit", write(empty, ""));
  const std::string deep = "{\"a\":" + std::string(1'000'000, '[');
  expect_damage("nested", write(deep, ""));
  const std::string no_bool(4, '\2');
  expect_damage("0 or 1", write(one(entry("BOOL", "[4]", "[0,4]")), no_bool));
  const std::string huge = std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}      ";
  expect_damage("at byte 0", write_raw(huge));
}

}  // namespace
}  // namespace cohort
