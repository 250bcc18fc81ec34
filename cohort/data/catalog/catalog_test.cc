// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/catalog/catalog.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cohort/base/cpu.h"
#include "cohort/data/core/input_context.h"
#include "cohort/data/core/internal/rows/convert_rows.h"
#include "cohort/data/formats/idx/idx.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

/// A folder that goes with the test.
class IdxFiles : public ::testing::Test {
 protected:
  IdxFiles() {
    std::string name = (fs::temp_directory_path() / "cohort_idx_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~IdxFiles() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::string write_gz(const std::string& name, const std::string& bytes) const {
    gzFile file = gzopen((folder_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return folder_ / name;
  }

  fs::path folder_;
};

std::string big_endian(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

std::string idx(char type, const std::vector<uint32_t>& shape, const std::string& payload) {
  std::string out = {0, 0, type, static_cast<char>(shape.size())};
  for (uint32_t d : shape) out += big_endian(d);
  return out + payload;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(IdxFiles, EveryType) {
  auto read = [&](char type, const std::string& payload, uint32_t n) {
    return read_idx(write("x", idx(type, {n}, payload)));
  };
  using std::string;
  EXPECT_EQ(to_vector<int64_t>(read(0x08, "\xff\x01", 2)), (std::vector<int64_t>{255, 1}));
  EXPECT_EQ(to_vector<int64_t>(read(0x09, "\xff\x01", 2)), (std::vector<int64_t>{-1, 1}));
  EXPECT_EQ(to_vector<int64_t>(read(0x0B, string("\xff\xfe\x01\x02", 4), 2)),
            (std::vector<int64_t>{-2, 258}));
  EXPECT_EQ(to_vector<int64_t>(read(0x0C, string("\0\1\2\3", 4), 1)),
            (std::vector<int64_t>{66051}));
  EXPECT_EQ(to_vector<double>(read(0x0D, string("\x3f\xc0\0\0", 4), 1)),
            (std::vector<double>{1.5}));
  EXPECT_EQ(to_vector<double>(read(0x0E, string("\x3f\xf8\0\0\0\0\0\0", 8), 1)),
            (std::vector<double>{1.5}));
  EXPECT_EQ(read(0x0E, string("\x3f\xf8\0\0\0\0\0\0", 8), 1).scalar_type(), kFloat64);
}

TEST_F(IdxFiles, PlainAndCompressedShapes) {
  const std::string bytes = idx(8, {2, 3}, "abcdef");
  for (const std::string& path : {write("x", bytes), write_gz("x.gz", bytes)}) {
    Tensor t = read_idx(path);
    EXPECT_EQ(shape_of(t), (Shape{2, 3}));
    EXPECT_EQ(to_vector<int64_t>(t), (std::vector<int64_t>{97, 98, 99, 100, 101, 102}));
  }
  EXPECT_EQ(shape_of(read_idx(write("empty", idx(8, {0, 3}, "")))), (Shape{0, 3}));
}

TEST_F(IdxFiles, TruncatedAnywhereIsDataLossThatNamesTheFile) {
  const std::string bytes = idx(0x0C, {2, 3}, std::string(24, 'x'));
  const std::string packed = contents(write_gz("whole.gz", bytes));
  for (const std::string& whole : {bytes, packed}) {
    for (std::size_t n = 0; n < whole.size(); ++n) {
      const std::string path = write("cut", whole.substr(0, n));
      testing::expect_error<DataLoss>({"[read_idx] " + path + " at offset "},
                                      [&] { read_idx(path); });
    }
  }
}

TEST_F(IdxFiles, EveryFlippedBitIsReadOrRefused) {
  const std::string bytes = idx(8, {2, 3}, "abcdef");
  for (const std::string& whole : {bytes, contents(write_gz("whole.gz", bytes))}) {
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      try {
        read_idx(write("damaged", damaged));
      } catch (const DataLoss&) {
      }
    }
  }
}

TEST_F(IdxFiles, DamageIsNamed) {
  const auto expect_text = [&](const std::string& bytes, const std::string& text) {
    const std::string path = write("x", bytes);
    EXPECT_EQ(testing::error_text<DataLoss>([&] { read_idx(path); }),
              "[read_idx] " + path + " " + text);
  };
  expect_text("PNG...........",
              "at offset 4: expected an IDX file, which begins with two zero bytes");
  expect_text(idx(7, {1}, "a"), "at offset 4: expected a type code of 8, 9 or 11 to 14, got 7");
  expect_text(idx(8, {2, 3}, "abcde"), "at offset 17: expected 6 bytes of values, got 5");
  expect_text(idx(8, {2, 3}, "abcdefg"),
              "at offset 18: expected the end of the file, got more bytes");
  expect_text(idx(8, {4000000000U, 4000000000U}, ""),
              "at offset 12: expected dimensions whose product fits in 63 bits");
  expect_text(idx(8, {0, 4000000000U, 4000000000U}, ""),
              "at offset 16: expected dimensions whose product fits in 63 bits");
  expect_text(idx(8, {4000000000U, 4}, ""),
              "at offset 12: expected 16000000000 bytes of values, got a file of 12 bytes");
  const auto read_missing = [&] { read_idx(folder_ / "missing"); };
  testing::expect_error(ErrorCode::kNotFound, {}, read_missing);
  EXPECT_EQ(
      testing::error_text<Error>(read_missing),
      "[read_idx] cannot open " + (folder_ / "missing").string() + ": No such file or directory");
}

TEST(ConvertRows, DividesToTheSameBitsAsADivisionByEverySetOfInstructions) {
  std::vector<uint8_t> data(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  const std::vector<int64_t> rows = {3, 0, 2, 2, 1, 0, 3};
  constexpr int64_t kRow = 250;
  for (float divisor : {255.F, 256.F, 127.5F, 3.F, 0.7F}) {
    std::vector<float> expected;
    for (const int64_t row : rows) {
      for (int64_t i = 0; i < kRow; ++i) {
        expected.push_back(static_cast<float>(data[static_cast<std::size_t>(row * kRow + i)]) /
                           divisor);
      }
    }
    const internal::base::Isa before = internal::base::current_isa();
    for (int isa = 0; isa <= static_cast<int>(internal::base::best_isa()); ++isa) {
      internal::base::use_isa(static_cast<internal::base::Isa>(isa));
      std::vector<float> out(rows.size() * kRow);
      internal::data::gather_rows_divided(data.data(), kRow, divisor, rows, out.data());
      EXPECT_EQ(out, expected) << divisor << " by set " << isa;
    }
    internal::base::use_isa(before);
  }
}

TEST(ConvertRows, GathersRowsOfAnyWidth) {
  std::vector<uint8_t> data(240);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i);
  const std::vector<int64_t> rows = {9, 0, 3, 3, 5, 1, 8};
  for (int64_t width : {1, 2, 3, 4, 8, 24}) {
    std::vector<uint8_t> out(rows.size() * static_cast<std::size_t>(width));
    internal::data::gather_rows(data.data(), width, rows, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto w = static_cast<std::size_t>(width);
      EXPECT_EQ(out[i], data[static_cast<std::size_t>(rows[i / w]) * w + i % w]);
    }
  }
}

TEST(Catalog, FashionMnist) {
  auto [train, test] = fashion_mnist();
  EXPECT_EQ(train.cardinality(), 60000);
  EXPECT_EQ(test.cardinality(), 10000);
  EXPECT_EQ(train.element_spec().to_string(), "(float32[28,28], int64[])");
  for (const auto& [dataset, per_class] : {std::pair(train, 6000), std::pair(test, 1000)}) {
    std::vector<int> classes(10);
    float least = 1;
    float most = 0;
    for (const Element& e : dataset.batch(1000)) {
      auto [x, y] = e.as<Tensor, Tensor>();
      for (int64_t label : to_vector<int64_t>(y)) ++classes.at(static_cast<std::size_t>(label));
      least = std::min(least, x.min().item<float>());
      most = std::max(most, x.max().item<float>());
    }
    EXPECT_EQ(classes, std::vector<int>(10, per_class));
    EXPECT_EQ(least, 0);
    EXPECT_EQ(most, 1);
  }
  // The first training image is an ankle boot.
  EXPECT_EQ((*train.make_iterator().next())[1].as<int64_t>(), 9);
}

TEST(Catalog, FlattenKeepsTheBytesOverTwoHundredFiftyFive) {
  auto train = fashion_mnist({.flatten = true}).train;
  EXPECT_EQ(train.element_spec().to_string(), "(float32[784], int64[])");
  auto it = train.batch(64).make_iterator();
  const Tensor batch = (*it.next())[0];
  const Tensor raw = read_idx("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz");
  const Tensor expected = raw.narrow(0, 0, 64).view({64, 784}).to(kFloat32).div(255);
  EXPECT_TRUE(batch.equal(expected));
}

TEST_F(IdxFiles, CatalogReadsADirectoryAndSaysWhatIsMissing) {
  const auto read = [&] { mnist({.directory = folder_}); };
  testing::expect_error(ErrorCode::kNotFound, {}, read);
  EXPECT_EQ(testing::error_text<Error>(read),
            "[mnist] expected train-images-idx3-ubyte(.gz), train-labels-idx1-ubyte(.gz), "
            "t10k-images-idx3-ubyte(.gz) and t10k-labels-idx1-ubyte(.gz) in " +
                folder_.string() +
                ", found none; put the four files there, or set COHORT_DATA or "
                "CatalogOptions::directory");
  write_gz("train-images-idx3-ubyte.gz", idx(8, {2, 1, 2}, std::string("\0\xff\x33\x66", 4)));
  write("train-labels-idx1-ubyte", idx(8, {2}, std::string("\1\2")));
  write("t10k-images-idx3-ubyte", idx(8, {1, 1, 2}, "ab"));
  testing::expect_error(ErrorCode::kNotFound, {"t10k-labels-idx1-ubyte(.gz) in"}, read);
  write("t10k-labels-idx1-ubyte", idx(8, {1}, "\3"));
  auto [train, test] = mnist({.directory = folder_, .flatten = true});
  Element batch = *train.batch(2).make_iterator().next();
  EXPECT_EQ(to_vector<float>(batch[0]), (std::vector<float>{0, 1, 0.2F, 0.4F}));
  EXPECT_EQ(to_vector<int64_t>(batch[1]), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(test.cardinality(), 1);
  write("t10k-labels-idx1-ubyte", idx(8, {2}, "\3\4"));
  EXPECT_THROW(mnist({.directory = folder_}), DataLoss);
}

TEST(InputContext, DividesTheGlobalBatch) {
  const InputContext context{.num_replicas_in_sync = 6};
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  EXPECT_THROW(context.get_per_replica_batch_size(13), InvalidArgument);
  EXPECT_EQ(context.to_string(), "InputContext(input pipeline id 0, total: 1)");
}

}  // namespace
}  // namespace cohort
