// SPDX-License-Identifier: Apache-2.0
//
// NumPy's files: what Python writes, and damage.
#include <gtest/gtest.h>

#include <utility>

#include "cohort/data/formats/npy/npy.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

// NumPy's np.savez_compressed of a = int32[3] {0, 1, 2} and b = float64[1,2] {1.5, -2}.
const char* const kNpz =
    "504b03042d00000008000000210002ecbda9ffffffffffffffff05001400612e6e7079010010008c000000000000"
    "004c000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a2aea3a09e965f54529498179f"
    "5f94920a12774bcc294e058a17672416a402f91ac63a9a3a0ab50a14002e062060046226200600504b03042d0000"
    "0008000000210075d8b17effffffffffffffff05001400622e6e70790100100090000000000000004f0000000000"
    "00009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a1aea3a09e965f54529498179f5f94920a12774b"
    "cc294e058a17672416a402f91a863a0a469a3a0ab50a64032e0630f8610fa1190e0000504b01022d032d00000008"
    "000000210002ecbda94c0000008c000000050000000000000000000000800100000000612e6e7079504b01022d03"
    "2d00000008000000210075d8b17e4f00000090000000050000000000000000000000800183000000622e6e707950"
    "4b0506000000000200020066000000090100000000";
// np.save of {{1, 2, 3}, {4, 5, 6}}: big-endian int16 in Fortran order.
const char* const kFortran =
    "934e554d5059010076007b276465736372273a20273e6932272c2027666f727472616e5f6f72646572273a205472"
    "75652c20277368617065273a2028322c2033292c207d202020202020202020202020202020202020202020202020"
    "20202020202020202020202020202020202020202020202020202020202020202020200a00010004000200050003"
    "0006";
// np.save of int64 {1, 2}.
const char* const kInts =
    "934e554d5059010076007b276465736372273a20273c6938272c2027666f727472616e5f6f72646572273a204661"
    "6c73652c20277368617065273a2028322c292c207d20202020202020202020202020202020202020202020202020"
    "20202020202020202020202020202020202020202020202020202020202020202020200a01000000000000000200"
    "000000000000";

class Npy : public testing::FilesTest {};

TEST_F(Npy, ReadsWhatNumPyWrites) {
  const Tensor fortran = read_npy(write("f.npy", from_hex(kFortran)));
  EXPECT_EQ(shape_of(fortran), (Shape{2, 3}));
  EXPECT_EQ(fortran.scalar_type(), DType::Short);
  EXPECT_EQ(to_vector<int64_t>(fortran), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  const auto arrays = read_npz(write("a.npz", from_hex(kNpz)));
  ASSERT_EQ(arrays.size(), 2U);
  EXPECT_EQ(to_vector<int32_t>(arrays.at("a")), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(arrays.at("b").scalar_type(), kFloat64);
  EXPECT_EQ(shape_of(arrays.at("b")), (Shape{1, 2}));
  EXPECT_EQ(to_vector<double>(arrays.at("b")), (std::vector<double>{1.5, -2}));
}

TEST_F(Npy, IntegersWithoutASign) {
  using namespace std::string_literals;
  for (const std::string descr : {"<u2", ">u2", "<u4", ">u8"}) {
    const auto width = static_cast<std::size_t>(descr[2] - '0');
    std::string head = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2,), }";
    head.resize(117, ' ');
    std::string one(width, '\0'), most(width, '\xff');
    (descr[0] == '<' ? one.front() : one.back()) = '\1';
    if (width == 8) most = one;
    std::string bytes = "\x93NUMPY\1\0\x76\0"s;
    bytes.append(head).append("\n").append(one).append(most);
    const Tensor t = read_npy(write("u.npy", bytes));
    const int64_t greatest = width == 8 ? 1 : (int64_t{1} << (8 * width)) - 1;
    EXPECT_EQ(to_vector<int64_t>(t.to(kInt64)), (std::vector<int64_t>{1, greatest})) << descr;
    write_npy(path("back.npy"), t);
    EXPECT_EQ(read_npy(path("back.npy")).scalar_type(), t.scalar_type());
  }
}

TEST_F(Npy, WritesWhatNumPyWrites) {
  write_npy(path("a"), from_vector<int64_t>({1, 2}, {2}));
  EXPECT_EQ(read("a"), from_hex(kInts));
  for (const Tensor& t : {scalar(3), zeros({0, 4}), full({2, 1, 3}, 7, kUint8), ones({2}, kBool)}) {
    write_npy(path("b"), t);
    const Tensor back = read_npy(path("b"));
    EXPECT_EQ(shape_of(back), shape_of(t));
    EXPECT_EQ(back.scalar_type(), t.scalar_type());
    EXPECT_EQ(to_vector<double>(back), to_vector<double>(t));
  }
  EXPECT_THROW(write_npy(path("b"), zeros({1}, kBFloat16)), Unimplemented);
  testing::expect_error(ErrorCode::kNotFound,
                        {"[write_npy] cannot write " + path("no/folder"), "No such file"},
                        [&] { write_npy(path("no/folder"), zeros({1})); });
}

// What NumPy 2 says to each of these: it refuses all but a few, and of those it reads only the
// other byte order as other values of the same number.
TEST_F(Npy, NoFlippedBitOfAHeaderLoadsAsOtherValues) {
  write_npy(path("floats"), (arange(12) + 1).reshape({3, 4}).to(kFloat32));
  write_npy(path("ints"), from_vector<int64_t>({1, 2, 3}, {3}));
  write_npy(path("bools"), from_vector<bool>({true, false, true}, {3}));
  constexpr std::pair<std::size_t, int> kOtherByteOrder{21, 1};
  for (const std::string& file :
       {read("floats"), read("ints"), read("bools"), from_hex(kFortran)}) {
    const Tensor expected = read_npy(write("whole", file));
    const std::size_t header = file.size() - expected.nbytes();
    for (std::size_t byte = 0; byte < header; ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        if (std::pair(byte, bit) == kOtherByteOrder) continue;
        std::string changed = file;
        changed[byte] = static_cast<char>(changed[byte] ^ (1 << bit));
        try {
          const Tensor got = read_npy(write("changed", changed));
          EXPECT_TRUE(got.scalar_type() == expected.scalar_type() &&
                      shape_of(got) == shape_of(expected) && got.equal(expected))
              << "byte " << byte << ", bit " << bit;
        } catch (const Error&) {  // NOLINT: as it should be.
        }
      }
    }
  }
}

/// A number of a zip file, which is little-endian.
void put(std::string& file, std::size_t at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    file[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
}

TEST_F(Npy, MembersThatOverlapAreRefused) {
  const std::string npz = from_hex(kNpz);
  const std::size_t directory = npz.find("PK\x01\x02");
  const std::size_t second = npz.find("PK\x01\x02", directory + 1);
  // Both entries of the directory name the first member.
  std::string twice = npz;
  constexpr std::size_t kEntry = 46 + std::string_view("a.npy").size();
  twice.replace(second, kEntry, npz.substr(directory, kEntry));
  const std::string text = error_text<DataLoss>([&] { read_npz(write("a", twice)); });
  EXPECT_NE(text.find("members that overlap"), std::string::npos) << text;
}

// Names have no checksum: a flipped bit of one must not rename an array, or swap two.
TEST_F(Npy, ANameThatTheArchiveSpellsInTwoWaysIsRefused) {
  const std::string npz = from_hex(kNpz);
  for (const char* header : {"PK\x01\x02", "PK\x03\x04"}) {
    std::string renamed = npz;
    renamed[npz.find("b.npy", npz.rfind(header))] = 'c';
    testing::expect_error<DataLoss>({"a member called", "b.npy", "c.npy"},
                                    [&] { read_npz(write("a", renamed)); });
  }
}

// A flipped bit of the number of members must not leave arrays out in silence.
TEST_F(Npy, ADirectoryThatHasMoreThanItCountsIsRefused) {
  const std::string npz = from_hex(kNpz);
  const std::size_t end = npz.rfind("PK\x05\x06");
  for (const uint64_t count : {0, 1}) {
    std::string fewer = npz;
    put(fewer, end + 10, count, 2);
    testing::expect_error<DataLoss>({"a directory of", "instead of"},
                                    [&] { read_npz(write("a", fewer)); });
  }
}

TEST_F(Npy, AnyByteOfABooleanButZeroIsTrue) {  // As in NumPy.
  std::string bytes(1, '\x93');
  const std::string text = "{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}\n";
  bytes += std::string("NUMPY\x01\0", 7) + static_cast<char>(text.size()) + '\0' + text +
           std::string("\0\x01\x02\xff", 4);
  const Tensor truths = read_npy(write("a", bytes));
  EXPECT_EQ(truths.sum().item<int64_t>(), 3);
  EXPECT_TRUE(truths.equal(tensor({0, 1, 1, 1}) > 0));
}

TEST_F(Npy, ArchivesAreNoLargerThanAllowed) {
  const std::string file = write("a", from_hex(kNpz));
  EXPECT_EQ(read_npz(file, {.max_bytes = 284}).size(), 2U);
  testing::expect_error(ErrorCode::kResourceExhausted, {"max_bytes"},
                        [&] { read_npz(file, {.max_bytes = 283}); });
  // What a directory says is checked before anything is unpacked.
  std::string bomb = from_hex(kNpz);
  for (std::size_t at = bomb.find("PK\x01\x02"); at != std::string::npos;
       at = bomb.find("PK\x01\x02", at + 1)) {
    put(bomb, at + 24, 0xfffffff0, 4);
  }
  EXPECT_THROW(read_npz(write("b", bomb), {.max_bytes = int64_t{4} << 30}), Error);
}

TEST_F(Npy, DamageIsAnErrorNeverACrash) {
  EXPECT_THROW(read_npy(path("none")), Error);
  const std::string npy = from_hex(kInts), npz = from_hex(kNpz);
  for (std::size_t size = 0; size < npy.size(); ++size) {
    EXPECT_THROW(read_npy(write("cut", npy.substr(0, size))), DataLoss) << size;
  }
  for (std::size_t size = 0; size < npz.size(); ++size) {
    EXPECT_THROW(read_npz(write("cut", npz.substr(0, size))), DataLoss) << size;
  }
  for (std::size_t bit = 0; bit < npz.size() * 8; bit += 11) {
    std::string changed = npz;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    try {
      read_npz(write("changed", changed));
    } catch (const Error&) {  // Some bits, as dates, mean nothing to a reader.
    }
  }
  std::string objects = npy;
  objects.replace(objects.find("<i8"), 3, "|O8");
  EXPECT_THROW(read_npy(write("objects", objects)), Unimplemented);
  std::string huge = npy;
  huge.replace(huge.find("(2,), }   "), 10, "(9999999),");
  EXPECT_THROW(read_npy(write("huge", huge)), DataLoss);
}

}  // namespace
}  // namespace cohort
