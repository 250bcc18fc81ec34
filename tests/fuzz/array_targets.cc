// SPDX-License-Identifier: Apache-2.0
//
// IDX, NPY and NPZ.
#include <zlib.h>

#include "cohort/data/formats/idx/idx.h"
#include "cohort/data/formats/npy/npy.h"
#include "cohort/data/formats/test_gzip.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

using Strings = std::vector<std::string>;
using namespace std::string_literals;
using testing::gzip;

/// Reads every byte, so that AddressSanitizer sees them.
void touch(const Tensor& values) {
  const auto* bytes = static_cast<const volatile uint8_t*>(values.const_data_ptr());
  for (std::size_t i = 0; i < values.nbytes(); ++i) static_cast<void>(bytes[i]);
}

void fuzz_idx(std::string_view bytes) {
  survives([&] { touch(data::read_idx(memory_file(bytes))); });
}

Strings idx_seeds() {
  const std::string bytes = "\0\0\x08\x01\0\0\0\x03"s + "abc";
  return {bytes, gzip(bytes), "\0\0\x0d\x02\0\0\0\x01\0\0\0\x02"s + "12345678",
          "\0\0\x0b\0"s + "ab"};
}

void fuzz_npy(std::string_view bytes) {
  survives([&] { touch(data::read_npy(memory_file(bytes))); });
}

std::string npy(const Tensor& values) {
  const std::string path = temporary_file();
  data::write_npy(path, values);
  return taken(path);
}

Strings npy_seeds() {
  std::string columns = npy(arange(6).reshape({2, 3}));
  columns.replace(columns.find("False"), 5, "True ");
  std::string big_endian = npy(ones({3}));
  big_endian[big_endian.find("<f4")] = '>';
  return {npy(scalar(1)), npy(zeros({0, 3}, kUint8)), columns, big_endian};
}

void fuzz_npz(std::string_view bytes) {
  survives([&] {
    for (const auto& [name, values] : data::read_npz(memory_file(bytes))) touch(values);
  });
}

void put(std::string& out, std::size_t bytes, uint64_t value) {
  for (; bytes > 0; --bytes, value >>= 8) out += static_cast<char>(value);
}

struct Member {
  std::string name;
  std::string bytes;
  bool deflated = false;
};

std::string zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const Member& member : members) {
    // gzip's middle part is the same deflate stream.
    std::string stored = member.deflated ? gzip(member.bytes) : member.bytes;
    if (member.deflated) stored = stored.substr(10, stored.size() - 18);
    std::string facts;
    put(facts, 2, 20);
    put(facts, 2, 0);
    put(facts, 2, member.deflated ? 8 : 0);
    put(facts, 4, 0);
    put(facts, 4,
        crc32(0, reinterpret_cast<const Bytef*>(member.bytes.data()),
              static_cast<uInt>(member.bytes.size())));
    put(facts, 4, stored.size());
    put(facts, 4, member.bytes.size());
    put(facts, 2, member.name.size());
    put(facts, 2, 0);
    directory += "PK\x01\x02\x14\0"s;
    directory += facts;
    put(directory, 10, 0);
    put(directory, 4, out.size());
    directory += member.name;
    for (const std::string& part : {"PK\x03\x04"s, facts, member.name, stored}) out += part;
  }
  const std::size_t start = out.size();
  out += directory;
  out += "PK\x05\x06";
  put(out, 4, 0);
  put(out, 2, members.size());
  put(out, 2, members.size());
  put(out, 4, directory.size());
  put(out, 4, start);
  put(out, 2, 0);
  return out;
}

Strings npz_seeds() {
  const std::string small = npy(arange(3)), large = npy(zeros({50}));
  return {zip({}), zip({{"x.npy", small}}), zip({{"a.npy", large, true}, {"b.npy", small}})};
}

}  // namespace

std::span<const Target> array_targets() {
  static const Target targets[] = {
      {"idx", fuzz_idx, idx_seeds}, {"npy", fuzz_npy, npy_seeds}, {"npz", fuzz_npz, npz_seeds}};
  return targets;
}

}  // namespace cohort::fuzz
