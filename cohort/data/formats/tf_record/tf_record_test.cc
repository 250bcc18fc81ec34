// SPDX-License-Identifier: Apache-2.0
//
// TFRecords: whole, damaged, compressed, several files at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/data/formats/test_gzip.h"
#include "cohort/data/formats/test_records.h"
#include "cohort/data/formats/tf_record/tf_record.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::all_of;
using testing::compressed;
using testing::error_text;
using testing::gzip;
using testing::Strings;
using testing::strings_of;

class TfRecords : public testing::FilesTest {
 protected:
  std::string write_records(const std::string& name, const Strings& records,
                            TfRecordWriterOptions options = {}) const {
    TfRecordWriter writer(path(name), options);
    for (const std::string& r : records) writer.write(r);
    return path(name);
  }
};

TEST_F(TfRecords, BytesAreTensorFlows) {
  // A version record and a scalar, as TensorBoard's reader took them.
  std::string record("\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d", 11);
  record += "brain.Event:2";
  write_records("a", {record});
  EXPECT_EQ(read("a"), std::string("\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22", 12) +
                           record + "\x2a\x28\x64\x6c");
}

TEST_F(TfRecords, RoundTripsPlainZlibAndGzip) {
  Strings records = {"", "a", std::string(100'000, 'z'), std::string("\0\n\xff", 3)};
  for (int i = 0; i < 500; ++i) records.push_back("record " + std::to_string(i));
  for (const char* name : {"a.tfrecord", "a.tfrecord.gz", "a.zlib"}) {
    const std::string file = write_records(name, records);
    EXPECT_EQ(strings_of(Dataset::tf_records({file})), records) << name;
    EXPECT_EQ(strings_of(Dataset::tf_records({file}, {.buffer_bytes = 1})), records) << name;
  }
  EXPECT_LT(read("a.zlib").size(), read("a.tfrecord").size() / 5);
  write_records("b.tfrecord.gz", {"one more"});
  const std::string both = write("c.gz", read("a.tfrecord.gz") + read("b.tfrecord.gz"));
  EXPECT_EQ(strings_of(Dataset::tf_records({both})).back(), "one more");
}

TEST_F(TfRecords, EveryTruncationIsDataLossOrAShorterFile) {
  const std::string whole = read(write_records("a", {"first", "second"}).substr(path("").size()));
  const std::size_t second = whole.size() - 6 - 16;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Strings got = all_of(Dataset::tf_records({write("cut", whole.substr(0, size))}));
    const bool at_border = size == 0 || size == second;
    Strings expected;
    if (size >= second) expected.push_back("first");
    ASSERT_EQ(got.size(), expected.size() + (at_border ? 0 : 1)) << size;
    if (at_border) continue;
    const std::string start =
        str_cat("!cut at byte ", size > second ? second : 0, ": truncated record: expected ");
    EXPECT_TRUE(got.back().starts_with(start)) << got.back();
  }
}

TEST_F(TfRecords, EveryChangedBitIsFound) {
  write_records("a", {"first", "second", "third"});
  const std::string whole = read("a");
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::string changed = whole;
    changed[byte] = static_cast<char>(changed[byte] ^ (1 << (byte % 8)));
    const Strings got = all_of(Dataset::tf_records({write("changed", changed)}));
    int64_t errors = 0;
    for (const std::string& g : got) errors += g.starts_with("!changed at byte ") ? 1 : 0;
    EXPECT_EQ(errors, 1) << byte;
  }
}

TEST_F(TfRecords, GoesOnAfterDamage) {
  const std::string good = write_records("good", {"x", "y"});
  write_records("a", {"first", "second", "third"});
  std::string data = read("a");
  data[12] = 'F';
  EXPECT_EQ(all_of(Dataset::tf_records({write("data", data), good})),
            (Strings{"!data at byte 0: corrupted record: the checksum of its data is wrong",
                     "second", "third", "x", "y"}));
  std::string length = read("a");
  length[21] = 7;
  EXPECT_EQ(all_of(Dataset::tf_records({write("length", length), good})),
            (Strings{"first",
                     "!length at byte 21: corrupted record: the checksum of its length is wrong "
                     "(is this a TFRecord file, and is it compressed?)",
                     "x", "y"}));
}

TEST_F(TfRecords, IgnoreErrorsSkipsAndCounts) {
  write_records("a", {"first", "second", "third"});
  std::string data = read("a");
  data[12] = 'F';
  data[21 + 12] = 'S';
  const std::string file = write("bad", data);
  auto skipped = std::make_shared<std::atomic<int64_t>>(0);
  const auto ds = Dataset::tf_records({path("none"), file})
                      .ignore_errors({.log_warning = false, .skipped = skipped});
  EXPECT_EQ(strings_of(ds), Strings{"third"});
  EXPECT_EQ(*skipped, 3);
  EXPECT_EQ(strings_of(ds.prefetch(1)), Strings{"third"});
  EXPECT_EQ(*skipped, 6);
  EXPECT_EQ(Dataset::range(10)
                .map([](int64_t x) {
                  if (x % 2 == 0) throw std::runtime_error("even");
                  return x;
                })
                .ignore_errors({.log_warning = false})
                .batch(10)
                .make_iterator()
                .next()
                ->rows(),
            5);
  EXPECT_THROW(strings_of(Dataset::tf_records({file}).ignore_errors(
                   {.log_warning = false, .max_errors = 1})),
               DataLoss);
}

TEST_F(TfRecords, WriterErrors) {
  EXPECT_THROW(TfRecordWriter(path("no/such/folder")), Error);
  EXPECT_THROW(TfRecordWriter(path("x.gz"), {.level = 77}), InvalidArgument);
  TfRecordWriter writer(path("a"));
  writer.write("x");
  writer.flush();
  EXPECT_EQ(strings_of(Dataset::tf_records({path("a")})), Strings{"x"});
  writer.close();
  writer.close();
  EXPECT_THROW(writer.write("y"), FailedPrecondition);
}

TEST_F(TfRecords, NothingIsAppendedToAPartOfARecord) {
  std::filesystem::create_symlink("/dev/full", path("full"));
  for (const Compression compression : {Compression::kNone, Compression::kGzip}) {
    TfRecordWriter writer(path("full"), {.compression = compression});
    writer.write("record");
    EXPECT_THROW(writer.flush(), Error);
    EXPECT_THROW(writer.flush(), FailedPrecondition);
    EXPECT_THROW(writer.close(), FailedPrecondition);
  }
}

TEST_F(TfRecords, SeveralFilesAtOnceInTurns) {
  const Strings files = {write_records("a", {"a1", "a2", "a3"}), write_records("b", {"b1"}),
                         write_records("c", {"c1", "c2"}), write_records("d", {})};
  // TensorFlow's order: c begins when the turn of b comes again, after that of a.
  EXPECT_EQ(strings_of(Dataset::tf_records(files, {.parallel_reads = 2})),
            (Strings{"a1", "b1", "a2", "a3", "c1", "c2"}));
  EXPECT_EQ(strings_of(Dataset::tf_records(files, {.parallel_reads = 9})),
            (Strings{"a1", "b1", "c1", "a2", "c2", "a3"}));
  EXPECT_EQ(strings_of(Dataset::tf_records(files, {.parallel_reads = kAutotune})),
            (Strings{"a1", "b1", "c1", "a2", "c2", "a3"}));
  EXPECT_EQ(strings_of(Dataset::tf_records({files[0]}, {.parallel_reads = 4})),
            (Strings{"a1", "a2", "a3"}));
  EXPECT_TRUE(strings_of(Dataset::tf_records({}, {.parallel_reads = 4})).empty());
  EXPECT_EQ(error_text<InvalidArgument>([&] { Dataset::tf_records(files, {.parallel_reads = 0}); }),
            "[dataset.tf_records] expected at least 1 parallel read or kAutotune, got 0");
  Strings any =
      strings_of(Dataset::tf_records(files, {.parallel_reads = 3, .deterministic = false}));
  std::sort(any.begin(), any.end());
  EXPECT_EQ(any, (Strings{"a1", "a2", "a3", "b1", "c1", "c2"}));
}

TEST_F(TfRecords, DamageInOneOfSeveralFilesAtOnce) {
  write_records("a", {"first", "second"});
  std::string data = read("a");
  data[12] = 'F';
  const Strings files = {write("bad", data), path("none"), write_records("c", {"c1", "c2"})};
  auto skipped = std::make_shared<std::atomic<int64_t>>(0);
  const auto ds = Dataset::tf_records(files, {.parallel_reads = 3})
                      .ignore_errors({.log_warning = false, .skipped = skipped});
  Strings got = strings_of(ds);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, (Strings{"c1", "c2", "second"}));
  EXPECT_EQ(*skipped, 2);
}

TEST_F(TfRecords, PositionsAreSavedInSeveralFilesAtOnce) {
  Strings files;
  for (int f = 0; f < 5; ++f) {
    Strings records;
    for (int i = 0; i <= f; ++i) records.push_back(str_cat(f, ".", i));
    files.push_back(write_records(str_cat("f", f), records));
  }
  const auto make = [&] { return Dataset::tf_records(files, {.parallel_reads = 3}).prefetch(2); };
  const Strings all = strings_of(make());
  ASSERT_EQ(all.size(), 15U);
  for (std::size_t n = 0; n <= all.size(); ++n) {
    auto it = make().make_iterator();
    for (std::size_t i = 0; i < n; ++i) it.next();
    const Strings rest(all.begin() + static_cast<int64_t>(n), all.end());
    EXPECT_EQ(strings_of(make().make_iterator(it.save())), rest) << n;
    EXPECT_EQ(strings_of(std::move(it)), rest) << n;
  }
}

TEST_F(TfRecords, PositionsAreSavedInPlainAndCompressedFiles) {
  for (const std::string end : {"", ".gz"}) {
    const Strings files = {write_records("a" + end, {"1", "2", "", "4"}),
                           write_records("b" + end, {}), write_records("c" + end, {"5", "6"})};
    const auto ds = Dataset::tf_records(files);
    const Strings all = strings_of(ds);
    for (std::size_t n = 0; n <= all.size(); ++n) {
      auto it = ds.make_iterator();
      for (std::size_t i = 0; i < n; ++i) it.next();
      EXPECT_EQ(strings_of(Dataset::tf_records(files).make_iterator(it.save())),
                Strings(all.begin() + static_cast<int64_t>(n), all.end()));
    }
  }
}

}  // namespace
}  // namespace cohort
