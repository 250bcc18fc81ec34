// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files and zip archives: what was written is read, and hostile ones are refused.
#include <gtest/gtest.h>
#include <hdf5.h>
#include <zip.h>

#include <functional>

#include "cohort/archive/hdf5_file.h"
#include "cohort/archive/internal/hdf5_trailer.h"
#include "cohort/archive/zip_file.h"
#include "cohort/base/sanitizers.h"
#include "cohort/checkpoint/internal/file.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::archive {
namespace {

using testing::expect_error;

FileBytes copy(std::string_view bytes) {
  FileBytes out(bytes.size());
  bytes.copy(out.data.get(), bytes.size());
  return out;
}

// The same left where they are, in a file that may be written meanwhile.
std::unique_ptr<CheckedBytes> checked(const std::string& bytes) {
  return std::make_unique<CheckedBytes>("load_weights", "x.weights.h5", bytes.size(),
                                        [&bytes](uint64_t place, void* out, std::size_t count) {
                                          bytes.copy(static_cast<char*>(out), count,
                                                     static_cast<std::size_t>(place));
                                        });
}

TEST(Hdf5File, KeepsWhatIsPutIntoIt) {
  const std::map<std::string, Tensor> tensors = {
      {"vars/0", arange(6, kFloat32).reshape({2, 3})},
      {"layers/dense/vars/0", scalar(-0.5, kFloat64)},
      {"layers/dense/vars/1", zeros({0, 3})},
      {"layers/dense/vars/2", arange(4, kInt64) - 2},
      {"layers/dense/vars/3", arange(4).to(kInt32)},
      {"layers/dense/vars/4", arange(4).ne(2)},
      {"layers/dense/vars/5", arange(4).to(kFloat16) / 3},
      {"layers/dense/vars/6", arange(4).to(kBFloat16) / 3},
      {"layers/dense/vars/7", arange(4).to(kUint8)},
      {"layers/dense/vars/8", arange(6, kFloat32).reshape({2, 3}).t()}};
  Hdf5Writer out;
  out.add_group("vars", "model");
  out.add_group("layers/dense/vars", "dense_7");
  for (const auto& [path, values] : tensors) out.add(path, values);
  const Hdf5Reader in("test", "x.h5", std::move(out).finish());
  EXPECT_EQ(in.arrays().size(), tensors.size());
  for (const auto& [path, values] : tensors) {
    SCOPED_TRACE(path);
    const Tensor read = in.read(path);
    EXPECT_EQ(read.scalar_type(), values.scalar_type());
    EXPECT_EQ(in.arrays().at(path).shape, shape_of(values));
    EXPECT_TRUE(read.equal(values));
  }
}

// A file of a few groups and arrays, and what is in it.
FileBytes small_file(std::map<std::string, Tensor>* tensors) {
  *tensors = {{"vars/0", arange(6, kFloat32).reshape({2, 3}) * 0.37 + 1},
              {"vars/1", arange(16).remainder(3).eq(1)},
              {"layers/dense/vars/0", (arange(8).to(kFloat32) / 3 + 1).to(kBFloat16)}};
  Hdf5Writer out;
  out.add_group("vars", "model");
  out.add_group("layers/dense/vars", "dense");
  for (const auto& [path, values] : *tensors) out.add(path, values);
  return std::move(out).finish();
}

// Whatever it says: of what arrays are, where they begin, or what is in them. libhdf5 sees none.
TEST(Hdf5File, EachFlippedBitOfAFileIsFound) {
  std::map<std::string, Tensor> tensors;
  const FileBytes whole = small_file(&tensors);
  FileBytes bytes = copy(whole.view());
  for (std::size_t bit = 0; bit < 8 * bytes.size; bit += COHORT_UNDER_SANITIZER != 0 ? 7 : 1) {
    bytes.data[bit / 8] = static_cast<char>(bytes.data[bit / 8] ^ (1 << bit % 8));
    try {
      const Hdf5Reader in("test", "x.h5", copy(bytes.view()));
      // Of the mark that a checksum follows: what stands before it is whole.
      ASSERT_GE(bit / 8, bytes.size - kTrailerBytes) << "bit " << bit;
      for (const auto& [path, values] : tensors) ASSERT_TRUE(in.read(path).equal(values)) << bit;
    } catch (const DataLoss& error) {
      ASSERT_STREQ(error.what(),
                   "[test] x.h5: the file is not what was written: its checksum is another");
    }
    bytes.data[bit / 8] = whole.data[bit / 8];
  }
}

// As what another program has opened to write: it ends where HDF5 says.
TEST(Hdf5File, IsReadWithoutItsChecksum) {
  std::map<std::string, Tensor> tensors;
  const FileBytes whole = small_file(&tensors);
  const Hdf5Reader in("test", "x.h5", copy(whole.view().substr(0, whole.size - kTrailerBytes)));
  for (const auto& [path, values] : tensors) EXPECT_TRUE(in.read(path).equal(values)) << path;
}

// A value that has changed is not loaded as another one, and a tool that means it is told how.
TEST(Hdf5File, AFlippedBitSaysWhatToolsHaveToDo) {
  Hdf5Writer out;
  out.add_group("vars", "model");
  out.add("vars/0", full({64}, 0.5));
  const FileBytes whole = std::move(out).finish();
  FileBytes bytes = copy(whole.view().substr(0, whole.size - kTrailerBytes));
  const std::string_view value("\0\0\0\x3f\0\0\0\x3f", 8);
  const std::size_t place = bytes.view().find(value);
  ASSERT_NE(place, std::string_view::npos);
  bytes.data[place] = 1;
  const Hdf5Reader in("test", "x.h5", std::move(bytes));
  expect_error<DataLoss>({"[test] x.h5: \"vars/0\" is not what was written: expected checksum ",
                          "delete their attribute \"cohort.crc32c\""},
                         [&] { in.read("vars/0"); });
}

// Of two models that are saved at once.
TEST(Hdf5File, SeveralAreWrittenAtOnce) {
  Hdf5Writer one, two;
  one.add_group("g", "one");
  two.add_group("g", "two");
  one.add("g/0", full({3}, 1));
  two.add("g/0", full({3}, 2));
  Hdf5Reader first("test", "one", std::move(one).finish());
  Hdf5Reader second("test", "two", std::move(two).finish());
  EXPECT_TRUE(first.read("g/0").equal(full({3}, 1)));
  EXPECT_TRUE(second.read("g/0").equal(full({3}, 2)));
}

TEST(Hdf5File, RefusesWhatItCannotKeep) {
  Hdf5Writer out;
  out.add_group("vars", "model");
  EXPECT_THROW(out.add("vars/0", Tensor()), InvalidArgument);
  EXPECT_THROW(out.add("vars/0", zeros({2}, DType::ComplexFloat)), InvalidArgument);
}

// The file that libhdf5 makes of what a test does to it.
std::string hostile(const std::function<void(hid_t file)>& make) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_core(access, 1 << 16, 0);
  const hid_t file = H5Fcreate("hostile", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  make(file);
  H5Fflush(file, H5F_SCOPE_LOCAL);
  std::string bytes(static_cast<std::size_t>(H5Fget_file_image(file, nullptr, 0)), '\0');
  H5Fget_file_image(file, bytes.data(), bytes.size());
  H5Fclose(file);
  H5Pclose(access);
  return bytes;
}

void add_array(hid_t file, const char* name, std::vector<hsize_t> sizes,
               const std::function<void(hid_t made)>& how) {
  const hid_t space = H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr);
  const hid_t made = H5Pcreate(H5P_DATASET_CREATE);
  how(made);
  const hid_t array = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  ASSERT_GE(array, 0);
  H5Dclose(array);
  H5Pclose(made);
  H5Sclose(space);
}

struct Hostile {
  const char* what;
  const char* told;
  std::function<void(hid_t)> make;
};

constexpr hsize_t kHuge = hsize_t{1} << 34;

std::vector<Hostile> files_with_links() {
  return {
      {"a soft link", "\"vars\" is a link",
       [](hid_t f) { H5Lcreate_soft("/etc", f, "vars", H5P_DEFAULT, H5P_DEFAULT); }},
      {"an external link", "\"vars\" is a link to another file",
       [](hid_t f) {
         H5Lcreate_external("/etc/passwd", "/", f, "vars", H5P_DEFAULT, H5P_DEFAULT);
       }},
      {"a circle", "a circle",
       [](hid_t f) {
         const hid_t group = H5Gcreate2(f, "vars", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
         H5Lcreate_hard(f, "/", group, "again", H5P_DEFAULT, H5P_DEFAULT);
         H5Gclose(group);
       }},
  };
}

std::vector<Hostile> files_with_arrays() {
  return {
      {"bytes elsewhere", "\"0\" has its bytes in another file",
       [](hid_t f) {
         add_array(f, "0", {4}, [](hid_t made) { H5Pset_external(made, "/etc/passwd", 0, 16); });
       }},
      {"a virtual array", "\"0\" is made of parts of other files",
       [](hid_t f) {
         add_array(f, "0", {4}, [](hid_t made) {
           const hsize_t size = 4;
           const hid_t space = H5Screate_simple(1, &size, nullptr);
           H5Pset_virtual(made, space, "/tmp/other.h5", "/0", space);
           H5Sclose(space);
         });
       }},
      {"an array that is not there", "\"0\" says that it is 68719476736 bytes, of which 0",
       [](hid_t f) { add_array(f, "0", {kHuge}, [](hid_t) {}); }},
      {"an array beyond all memory", "\"0\" says that it is larger than any memory",
       [](hid_t f) {
         add_array(f, "0", {kHuge, kHuge}, [](hid_t made) {
           const hsize_t part[] = {1, 64};
           H5Pset_chunk(made, 2, part);
         });
       }},
  };
}

std::vector<Hostile> large_files() {
  return {
      {"too many members", "has more than 10000 members",
       [](hid_t f) {
         for (int i = 0; i < 10'001; ++i) {
           H5Gclose(
               H5Gcreate2(f, std::to_string(i).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
         }
       }},
      {"too many levels", "groups deep",
       [](hid_t f) {
         hid_t at = H5Gopen2(f, "/", H5P_DEFAULT);
         for (int i = 0; i < 102; ++i) {
           const hid_t below = H5Gcreate2(at, "x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
           H5Gclose(at);
           at = below;
         }
         H5Gclose(at);
       }},
  };
}

TEST(Hdf5File, RefusesHostileFiles) {
  for (const auto& files : {files_with_links(), files_with_arrays(), large_files()}) {
    for (const Hostile& file : files) {
      SCOPED_TRACE(file.what);
      const std::string bytes = hostile(file.make);
      expect_error<DataLoss>({"[load_weights] x.weights.h5", file.told},
                             [&] { Hdf5Reader("load_weights", "x.weights.h5", copy(bytes)); });
      expect_error<DataLoss>({"[load_weights] x.weights.h5", file.told},
                             [&] { Hdf5Reader("load_weights", "x.weights.h5", checked(bytes)); });
    }
  }
}

// Arrays of less than a block, of several and a part, and beyond the blocks that are kept.
TEST(Hdf5File, IsReadWhereItIs) {
  const std::map<std::string, Tensor> tensors = {{"a/vars/0", arange(100'000, kFloat32)},
                                                 {"a/vars/1", arange(3, kFloat64)},
                                                 {"a/vars/2", arange(40'001).to(kInt64)},
                                                 {"b/vars/0", arange(5).ne(2)},
                                                 {"b/vars/1", arange(1'500'000, kFloat32) * 0.37}};
  Hdf5Writer out;
  out.add_group("a/vars", "a");
  out.add_group("b/vars", "b");
  for (const auto& [path, values] : tensors) out.add(path, values);
  const FileBytes whole = std::move(out).finish();
  // Theirs have no sum behind them.
  for (const std::size_t trailer : {std::size_t{0}, kTrailerBytes}) {
    std::string bytes(whole.view().substr(0, whole.size - trailer));
    const Hdf5Reader in("load_weights", "x.weights.h5", checked(bytes));
    for (const auto& [path, values] : tensors) {
      EXPECT_TRUE(in.read(path).equal(values)) << path;
    }
    const Tensor into = zeros({100'000});
    in.read_into("a/vars/0", into);
    EXPECT_TRUE(into.equal(tensors.at("a/vars/0")));
    const std::size_t begin = bytes.find(std::string("\0\0\0\0\0\0\x80\x3f\0\0\0\x40", 12));
    bytes[begin + 200'000] ^= 1;  // of a block that is nowhere else
    expect_error<DataLoss>({"[load_weights] x.weights.h5", "was changed while it was read"},
                           [&] { in.read("a/vars/0"); });
    EXPECT_TRUE(in.read("a/vars/1").equal(tensors.at("a/vars/1")));
  }
}

TEST(Hdf5File, EachFlippedBitIsFoundWhereItIs) {
  std::map<std::string, Tensor> tensors;
  std::string bytes(small_file(&tensors).view());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += COHORT_UNDER_SANITIZER != 0 ? 97 : 17) {
    const auto flip = [&] { bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8)); };
    flip();
    try {
      const Hdf5Reader in("load_weights", "x.weights.h5", checked(bytes));
      ASSERT_GE(bit / 8, bytes.size() - kTrailerBytes) << "bit " << bit;
      for (const auto& [path, values] : tensors) ASSERT_TRUE(in.read(path).equal(values)) << bit;
    } catch (const DataLoss&) {
    }
    flip();
    const Hdf5Reader in("load_weights", "x.weights.h5", checked(bytes));
    flip();  // behind the first look
    for (const auto& [path, values] : tensors) {
      try {
        ASSERT_TRUE(in.read(path).equal(values)) << bit;
      } catch (const DataLoss&) {
      }
    }
    flip();
  }
}

TEST(Hdf5File, SaysWhatIsNone) {
  for (const std::string& bytes : {std::string(), std::string("PK\3\4"), std::string(4096, 'x')}) {
    expect_error<DataLoss>({"is no HDF5 file"}, [&] { Hdf5Reader("test", "x.h5", copy(bytes)); });
  }
  Hdf5Writer out;
  out.add_group("vars", "model");
  out.add("vars/0", ones({1000}));
  const FileBytes whole = std::move(out).finish();
  for (const double part : {0.1, 0.5, 0.99}) {
    const auto bytes = static_cast<std::size_t>(part * static_cast<double>(whole.size));
    EXPECT_THROW(Hdf5Reader("test", "x.h5", copy(whole.view().substr(0, bytes))).read("vars/0"),
                 DataLoss);
  }
}

class ZipFile : public ::cohort::testing::FolderTest {
 protected:
  std::string file() const { return path("x.keras"); }
  void write(const std::vector<ZipMember>& members) const {
    checkpoint::AtomicFile out("test", file());
    write_zip("test", out.file(), members);
    out.commit();
  }
  /// An archive of libzip's with such members, of which `change` may make something else.
  void write_by_libzip(const std::vector<std::pair<std::string, std::string>>& members,
                       const std::function<void(zip_t*)>& change = {}) const {
    int error = 0;
    zip_t* zip = zip_open(file().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
    ASSERT_NE(zip, nullptr);
    for (const auto& [name, bytes] : members) {
      zip_file_add(zip, name.c_str(), zip_source_buffer(zip, bytes.data(), bytes.size(), 0), 0);
    }
    if (change) change(zip);
    ASSERT_EQ(zip_close(zip), 0);
  }
  void expect_refused(const std::string& told) const {
    expect_error<DataLoss>({"[load_model] " + file(), told},
                           [&] { ZipReader("load_model", file()); });
  }
};

TEST_F(ZipFile, KeepsWhatIsPutIntoIt) {
  const std::string large(5'000'000, 'y');
  write({{"config.json", "{}"}, {"model.weights.h5", large}, {"empty", ""}});
  const ZipReader in("test", file());
  EXPECT_EQ(in.names(), (std::vector<std::string>{"config.json", "empty", "model.weights.h5"}));
  EXPECT_EQ(in.read("config.json").view(), "{}");
  EXPECT_EQ(in.read("empty").view(), "");
  EXPECT_EQ(in.read("model.weights.h5").view(), large);
  EXPECT_FALSE(in.contains("metadata.json"));
  expect_error<DataLoss>({file(), "has no \"metadata.json\""}, [&] { in.read("metadata.json"); });
}

TEST_F(ZipFile, LeavesMembersWhereTheyAre) {
  std::string large(300'001, 'y');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i >> 5);
  write({{"config.json", "{}"}, {"model.weights.h5", large}, {"empty", ""}});
  std::unique_ptr<CheckedBytes> bytes, empty;
  {
    const ZipReader in("load_model", file());
    bytes = in.open("model.weights.h5");
    empty = in.open("empty");
    expect_error<DataLoss>({"has no \"x\""}, [&] { in.open("x"); });
  }
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(empty->size(), 0u);
  for (const std::size_t place : {0, 5, 65'536, 131'000, 300'000}) {
    std::string got(large.size() - place, ' ');
    bytes->read(place, got.data(), got.size());
    EXPECT_TRUE(got == large.substr(place)) << place;
  }
  std::string one(1, ' ');
  expect_error<DataLoss>({"x.keras/model.weights.h5: the file ends before"},
                         [&] { bytes->read(large.size(), one.data(), 1); });
  std::string text = testing::bytes_of(file());
  text[text.find(large.substr(1000, 100))] ^= 1;
  testing::write_bytes(file(), text);
  expect_error<DataLoss>({"\"model.weights.h5\" is damaged: CRC error"},
                         [&] { ZipReader("load_model", file()).open("model.weights.h5"); });
  write_by_libzip({{"packed", std::string(20'000, ' ')}});
  EXPECT_EQ(ZipReader("test", file()).open("packed"), nullptr);
}

TEST_F(ZipFile, ReadsPackedMembers) {
  write_by_libzip({{"config.json", std::string(20'000, ' ')}});
  EXPECT_EQ(ZipReader("test", file()).read("config.json").size, 20'000u);
}

TEST_F(ZipFile, F7_RefusesNamesThatLeadElsewhere) {
  const std::vector<std::string> bad = {"..",
                                        "../x",
                                        "a/../x",
                                        "a/../../x",
                                        "/x",
                                        "/etc/passwd",
                                        "//x",
                                        "a//x",
                                        ".",
                                        "./x",
                                        "a/./x",
                                        "a/.",
                                        "a/..",
                                        "C:x",
                                        "c:/x",
                                        "a\\x",
                                        "..\\x",
                                        "\\\\host\\share",
                                        "a\nb",
                                        "a\x01",
                                        "\x7f",
                                        "a ",
                                        "a./x",
                                        "x.",
                                        "caf\xc3\xa9",
                                        "\xd0\xb0.json",
                                        "\xe2\x80\xaegnp.h5",
                                        "\xff",
                                        "file:///etc",
                                        "a/ /x",
                                        "..../x",
                                        "a/...",
                                        std::string(5000, 'a'),
                                        ""};
  for (const std::string& name : bad) EXPECT_NE(why_bad_member_name(name), "") << name;
  for (const char* good : {"config.json", "model.weights.h5", "assets/layers/string_lookup/v.txt",
                           "assets/", "_a-b+c(1).txt", ".hidden", "..a"}) {
    EXPECT_EQ(why_bad_member_name(good), "") << good;
  }
  write_by_libzip({{"config.json", "{}"}, {"../../etc/cron.d/x", "evil"}});
  expect_refused("the name \"../../etc/cron.d/x\" of a member leads elsewhere");
}

TEST_F(ZipFile, RefusesHostileArchives) {
  write_by_libzip({{"config.json", "{}"}, {"Config.json", "[]"}});
  expect_refused("two members have the name");
  write_by_libzip({{"config.json", "/etc/passwd"}}, [](zip_t* zip) {
    zip_file_set_external_attributes(zip, 0, 0, ZIP_OPSYS_UNIX, 0120777u << 16);
  });
  expect_refused("\"config.json\" is a link or a device");
  write_by_libzip({{"model.weights.h5", std::string(4'000'000, '\0')}});
  expect_refused("\"model.weights.h5\" says that it is 4000000 bytes, of which");
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 10'001; ++i) many.emplace_back(std::to_string(i), "");
  write_by_libzip(many);
  expect_refused("expected at most 10000 members, got 10001");
}

TEST_F(ZipFile, SaysWhatIsDamagedOrNone) {
  write({{"config.json", std::string(1000, 'a')}});
  std::string bytes = checkpoint::InputFile("test", file()).read_all(1 << 20);
  const std::size_t place = bytes.find("aaaa");
  bytes[place] = 'b';
  {
    checkpoint::AtomicFile out("test", file());
    out.file().write(bytes.data(), bytes.size());
    out.commit();
  }
  expect_error<DataLoss>({file(), "\"config.json\" is damaged"},
                         [&] { ZipReader("test", file()).read("config.json"); });
  {
    checkpoint::AtomicFile out("test", file());
    out.file().write(bytes.data(), place);
    out.commit();
  }
  expect_refused("expected a zip archive");
  EXPECT_THROW(ZipReader("test", path("none.keras")), Error);
  EXPECT_THROW(ZipReader("test", path("")), InvalidArgument);
}

}  // namespace
}  // namespace cohort::internal::archive
