// SPDX-License-Identifier: Apache-2.0
//
// TFRecord, CSV and tf.train.Example.
#include <algorithm>

#include "cohort/base/crc32c.h"
#include "cohort/data/dataset.h"
#include "cohort/data/formats/example/example.h"
#include "cohort/data/formats/example/example_parser.h"
#include "cohort/data/formats/internal/little_endian.h"
#include "cohort/data/formats/tf_record/internal/tf_record_format.h"
#include "cohort/data/formats/tf_record/tf_record.h"
#include "cohort/data/store/internal/element_file.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

using Strings = std::vector<std::string>;

/// Reads to the end, over errors; saves and restores on the way.
void read_all(const Dataset& dataset) {
  constexpr int64_t kMostElements = 1'000'000;
  auto it = dataset.make_iterator();
  bool more = true;
  for (int64_t i = 0; more; ++i) {
    if (i > kMostElements) broken("a file without end");
    survives([&] { more = it.next().has_value(); });
    if (i == 2) {
      // A file that was cut off there cannot be opened again, which is an error of its own.
      const std::string state = it.save();
      survives([&] { it.restore(state); });
    }
  }
}

/// Makes the checksums right, so that what is behind them is reached.
std::string with_checksums(std::string_view bytes) {
  using internal::base::masked_crc32c;
  using internal::data::append_little_endian;
  std::string out;
  while (bytes.size() >= internal::data::kTfRecordHeader) {
    const auto length = internal::data::load_little_endian<uint64_t>(bytes.data());
    out += bytes.substr(0, sizeof(uint64_t));
    append_little_endian(out, masked_crc32c(bytes.substr(0, sizeof(uint64_t))));
    bytes.remove_prefix(internal::data::kTfRecordHeader);
    if (length > bytes.size()) return out.append(bytes);
    const std::string_view data = bytes.substr(0, length);
    out += data;
    append_little_endian(out, masked_crc32c(data));
    bytes.remove_prefix(length);
    bytes.remove_prefix(std::min<std::size_t>(internal::data::kTfRecordFooter, bytes.size()));
  }
  return out.append(bytes);
}

void fuzz_tf_record(std::string_view bytes) {
  const uint8_t choice = take_choice(bytes);
  const std::string repaired = (choice & 8) != 0 ? with_checksums(bytes) : "";
  FileOptions options;
  options.compression = static_cast<Compression>(1 + choice % 3);
  options.buffer_bytes = (choice & 16) != 0 ? 1 : 4096;
  const Dataset records =
      Dataset::tf_records({memory_file((choice & 8) != 0 ? repaired : bytes)}, options);
  read_all((choice & 32) != 0 ? records.batch(3) : records);
}

std::string record_file(const char* end, const Strings& records) {
  const std::string path = temporary_file() + end;
  TfRecordWriter writer(path);
  for (const std::string& record : records) writer.write(record);
  writer.close();
  return taken(path);
}

void fuzz_element_file(std::string_view bytes) {
  const std::string& path = memory_file(with_checksums(bytes));
  survives([&] { internal::data::read_element_file_header("[fuzz]", path); });
  read_all(Dataset(internal::data::make_element_file_node("[fuzz]", path, {})));
}

Strings tf_record_seeds() {
  const Strings records = {"", "a", "record", std::string(300, 'z')};
  const std::string plain = record_file(".tfrecord", records);
  return {'\0' + plain, '\x28' + plain, '\x11' + record_file(".zlib", records),
          '\x02' + record_file(".gz", records)};
}

Strings element_file_seeds() {
  const std::string path = temporary_file();
  const Element element = Element::named(
      {{"x", arange(3)}, {"s", std::string("text")}, {"n", std::vector<std::string>{"a", ""}}});
  internal::data::ElementFileWriter writer(path, {"id", "range.map", element.spec()});
  for (int i = 0; i < 3; ++i) writer.write(element);
  writer.close();
  return {taken(path)};
}

void fuzz_csv(std::string_view bytes) {
  const uint8_t choice = take_choice(bytes);
  CsvOptions options;
  options.columns = {{.type = CsvType::kString, .name = "s"},
                     {.type = CsvType::kFloat32, .name = "f", .default_value = "1.5"},
                     {.type = CsvType::kInt64, .name = "i"},
                     {.type = CsvType::kInt32, .name = "j", .default_value = "7"},
                     {.type = CsvType::kFloat64, .name = "d"}};
  options.header = (choice & 1) != 0;
  options.quotes = (choice & 2) == 0;
  options.delimiter = (choice & 4) != 0 ? ';' : ',';
  if ((choice & 8) != 0) options.select_columns = {4, 0, 2, 1, 3};
  if ((choice & 16) != 0) options.na_value = "NA";
  options.file = {.compression = Compression::kNone, .buffer_bytes = (choice & 32) != 0 ? 1 : 4096};
  const Dataset records = Dataset::csv({memory_file(bytes)}, options);
  read_all((choice & 64) != 0 ? records.batch(3) : records);
}

Strings csv_seeds() {
  using namespace std::string_literals;
  return {"\0a,1.5,2,3,4.5\r\n\"b \"\"c\"\", d\",,-9223372036854775808,,1e308\n"s,
          "\1s,f,i,j,d\nx,nan,0,2147483647,-inf\n"s, "\x76x;NA;1;NA;2\n;;;;\n\n"s,
          "\x08"
          "1,2,3,4,5\n\"multi\nline\",0,0,0,0"s};
}

FeatureSpecs specs() {
  return {{"fixed", FixedLenFeature{FeatureType::kFloat32, {2}}},
          {"number", FixedLenFeature{FeatureType::kInt64, {}, Element(scalar(7, kInt64))}},
          {"ragged", RaggedFeature{FeatureType::kInt64}},
          {"text", FixedLenFeature{FeatureType::kString, {}, Element(std::string("none"))}},
          {"values", VarLenFeature{FeatureType::kFloat32}},
          {"words", VarLenFeature{FeatureType::kString}}};
}

void fuzz_example(std::string_view bytes) {
  static const ExampleParser parser(specs());
  const std::string whole(bytes);
  const std::string half(bytes.substr(0, bytes.size() / 2));
  survives([&] { parser.parse_single(whole); });
  survives([&] { parser.parse({whole, half, whole}); });
  survives([&] {
    const std::string again = Example::parse(whole).serialize();
    if (Example::parse(again).serialize() != again)
      broken("an Example changed when it was written");
  });
}

Example example() {
  return {{{"fixed", std::vector<float>{1, 2}},
           {"number", std::vector<int64_t>{-1}},
           {"ragged", std::vector<int64_t>{1, 300, 1LL << 62}},
           {"text", std::vector<std::string>{"text"}},
           {"values", std::vector<float>{}},
           {"words", std::vector<std::string>{"", "b"}},
           {"other", std::monostate()}}};
}

Strings example_seeds() {
  return {example().serialize(), Example{}.serialize(),
          Example{{{"fixed", std::vector<float>{1, 2}}}}.serialize()};
}

void fuzz_sequence_example(std::string_view bytes) {
  static const SequenceFeatureSpecs sequences = {
      {"frames", FixedLenSequenceFeature{FeatureType::kFloat32, {2}}},
      {"labels", FixedLenSequenceFeature{FeatureType::kInt64, {}, true}},
      {"ragged", RaggedFeature{FeatureType::kInt64}},
      {"words", RaggedFeature{FeatureType::kString}}};
  const std::string whole(bytes);
  survives([&] { parse_single_sequence_example(whole, specs(), sequences); });
  survives([&] {
    const std::string again = SequenceExample::parse(whole).serialize();
    if (SequenceExample::parse(again).serialize() != again) {
      broken("a SequenceExample changed when it was written");
    }
  });
}

Strings sequence_example_seeds() {
  SequenceExample out{example().features, {}};
  out.feature_lists["frames"] = {std::vector<float>{1, 2}, std::vector<float>{3, 4}};
  out.feature_lists["labels"] = {std::vector<int64_t>{1}};
  out.feature_lists["ragged"] = {std::vector<int64_t>{}, std::vector<int64_t>{1, 2}};
  out.feature_lists["words"] = {std::vector<std::string>{"a", "b"}};
  return {out.serialize(), SequenceExample{}.serialize()};
}

}  // namespace

std::span<const Target> record_targets() {
  static const Target targets[] = {
      {"tf_record", fuzz_tf_record, tf_record_seeds},
      {"element_file", fuzz_element_file, element_file_seeds},
      {"csv", fuzz_csv, csv_seeds},
      {"example", fuzz_example, example_seeds},
      {"sequence_example", fuzz_sequence_example, sequence_example_seeds}};
  return targets;
}

}  // namespace cohort::fuzz
