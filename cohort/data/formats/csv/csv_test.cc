// SPDX-License-Identifier: Apache-2.0
//
// CSV files: what Python writes, and damage.
#include <gtest/gtest.h>

#include "cohort/data/dataset.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using Strings = std::vector<std::string>;

class Csv : public testing::FilesTest {
 protected:
  /// Elements as "a|b|c"; errors from the file's name on.
  static Strings rows(const Dataset& dataset) {
    Strings out;
    auto it = dataset.make_iterator();
    while (true) {
      try {
        const auto e = it.next();
        if (!e) return out;
        std::string row;
        for (std::size_t i = 0; i < e->size(); ++i) {
          const Element& part = (*e)[i];
          if (i > 0) row += "|";
          row += part.is_string() ? part.string() : str_cat(part.as<double>());
        }
        out.push_back(row);
      } catch (const DataLoss& e) {
        const std::string text = e.what();
        out.push_back(text.substr(text.rfind('/') + 1));
      }
    }
  }
};

TEST_F(Csv, TypesAndDefaults) {
  const std::string file = write("a", "1,2.5,x\n-3,1e3,\n,+7, y \r\n");
  const auto ds = Dataset::csv({file}, {.columns = {{.type = CsvType::kInt64, .default_value = "9"},
                                                    {.type = CsvType::kFloat32},
                                                    {.type = CsvType::kString}}});
  EXPECT_EQ(ds.element_spec().to_string(), "(int64[], float32[], string[])");
  EXPECT_EQ(rows(ds), (Strings{"1|2.5|x", "-3|1000|", "9|7| y "}));
  EXPECT_EQ(ds.make_iterator().next()->spec().to_string(), "(int64[], float32[], string[])");
  const Element batch = *ds.batch(3).make_iterator().next();
  EXPECT_EQ(to_vector<int64_t>(batch[0].tensor()), (std::vector<int64_t>{1, -3, 9}));
  EXPECT_EQ(batch[2].strings(), (Strings{"x", "", " y "}));
}

TEST_F(Csv, QuotesEmptyLinesAndDelimiters) {
  const CsvOptions two = {.columns = {{.type = CsvType::kString}, {.type = CsvType::kString}}};
  const std::string quoted = "\"a,b\",\"say \"\"x\"\"\"\n\n\"two\nlines\",\"\"\n\r\nc,d";
  EXPECT_EQ(rows(Dataset::csv({write("a", quoted)}, two)),
            (Strings{"a,b|say \"x\"", "two\nlines|", "c|d"}));
  CsvOptions other = two;
  other.delimiter = ';';
  other.quotes = false;
  EXPECT_EQ(rows(Dataset::csv({write("b", "\"x;y,z\n")}, other)), Strings{"\"x|y,z"});
  other.file.buffer_bytes = 1;
  EXPECT_EQ(rows(Dataset::csv({path("b")}, other)), Strings{"\"x|y,z"});
}

TEST_F(Csv, ColumnsByNameOrPlace) {
  const std::string file = write("a", "id,name,age\n1,x,30\n2,y,40\n");
  const std::string moved = write("b", "age,id,name\n50,3,z\n");
  const auto by_name = Dataset::csv(
      {file, moved},
      {.columns = {{CsvType::kInt32, "age"}, {CsvType::kInt32, "id"}}, .header = true});
  EXPECT_EQ(by_name.element_spec().to_string(), "(age int32[], id int32[])");
  EXPECT_EQ(rows(by_name), (Strings{"30|1", "40|2", "50|3"}));
  auto it = by_name.make_iterator();
  for (int i = 0; i < 2; ++i) it.next();
  auto resumed = by_name.make_iterator(it.save());
  EXPECT_EQ((*resumed.next())["age"].as<int>(), 50);
  auto in_file = by_name.make_iterator();
  in_file.next();
  auto same_file = by_name.make_iterator(in_file.save());
  EXPECT_EQ((*same_file.next())["age"].as<int>(), 40);
  const auto by_place =
      Dataset::csv({file}, {.columns = {{CsvType::kInt64}}, .header = true, .select_columns = {2}});
  EXPECT_EQ(rows(by_place), (Strings{"30", "40"}));
  const std::string twice = write("twice", "x,y,x\n1,2,3\n");
  EXPECT_EQ(rows(Dataset::csv({twice}, {.columns = {{CsvType::kInt64, "x"}}, .header = true})),
            Strings{"twice line 1: expected one column x in the header, got [x, y, x]; say by "
                    "select_columns which is meant"});
  EXPECT_EQ(rows(Dataset::csv({file}, {.columns = {{CsvType::kInt64, "x"}}, .header = true})),
            Strings{"a line 1: expected a header with x, got [id, name, age]"});
  EXPECT_EQ(rows(Dataset::csv(
                {file}, {.columns = {{CsvType::kInt64}}, .header = true, .select_columns = {3}})),
            Strings{"a line 1: expected a header of at least 4 fields for select_columns, got "
                    "[id, name, age]"});
}

TEST_F(Csv, DamageNamesFileAndLineAndReadingGoesOn) {
  const CsvOptions ints = {.columns = {{CsvType::kInt32}, {CsvType::kInt32}}};
  const std::string no_default =
      "a line 4: expected a value in field 1, which has no default, got none";
  EXPECT_EQ(rows(Dataset::csv({write("a", "1,2\n3\n4,x\n5,\n6,7,8\n99999999999,1\n8,9\n")}, ints)),
            (Strings{"1|2", "a line 2: expected 2 fields, got 1",
                     "a line 3: expected int32[] in field 1, got \"x\"", no_default,
                     "a line 5: expected 2 fields, got 3",
                     "a line 6: expected int32[] in field 0, got \"99999999999\"", "8|9"}));
  const CsvOptions strings = {.columns = {{CsvType::kString}}};
  EXPECT_EQ(rows(Dataset::csv({write("b", "\"x\"y\nz\n\"open")}, strings)),
            (Strings{"b line 1: expected the end of a field after its closing quote, got more", "z",
                     "b line 3: expected the end of a quoted field, got the file's"}));
}

TEST_F(Csv, DamageNamesColumnsAndCountsEveryLine) {
  const CsvOptions options = {.columns = {{CsvType::kString, "name"}, {CsvType::kInt64, "age"}},
                              .header = true};
  // Empty lines and line ends in quotes count, too: it is what an editor shows.
  const std::string text = "name,age\r\n\"two\nlines\",1\n\n\"a\",old\nb,\nc,2\n";
  EXPECT_EQ(rows(Dataset::csv({write("a", text)}, options)),
            (Strings{"two\nlines|1", "a line 5: expected int64[] in column \"age\", got \"old\"",
                     "a line 6: expected a value in column \"age\", which has no default, got none",
                     "c|2"}));
  // A position knows the line.
  const Dataset ds = Dataset::csv({path("a")}, options);
  auto before = ds.make_iterator();
  before.next();
  auto it = ds.make_iterator(before.save());
  EXPECT_NE(error_text<DataLoss>([&] { it.next(); }).find("line 5"), std::string::npos);
}

TEST_F(Csv, AFirstLineOfNamesIsAHint) {
  CsvOptions options = {.columns = {{CsvType::kInt64, "id"}, {CsvType::kInt64, "age"}}};
  const std::string file = write("a", "id,age\n1,2\nx,3\n");
  EXPECT_EQ(rows(Dataset::csv({file}, options)),
            (Strings{"a line 1: expected int64[] in column \"id\", got \"id\"; if the first line "
                     "holds names, set .header = true",
                     "1|2", "a line 3: expected int64[] in column \"id\", got \"x\""}));
  options.header = true;
  EXPECT_EQ(rows(Dataset::csv({file}, options)),
            (Strings{"1|2", "a line 3: expected int64[] in column \"id\", got \"x\""}));
}

TEST_F(Csv, ByteOrderMarksAreNoPartOfAField) {
  const std::string mark = "\xef\xbb\xbf";
  const std::string named = write("named", mark + "x,y\n1,2\n3,4\n");
  EXPECT_EQ(rows(Dataset::csv({named}, {.columns = {{CsvType::kInt64, "x"}}, .header = true})),
            (Strings{"1", "3"}));
  const std::string plain = write("plain", mark + "\"a,b\",2\r\nc,3");
  const CsvOptions columns{.columns = {{CsvType::kString}, {CsvType::kInt32}}};
  EXPECT_EQ(rows(Dataset::csv({plain, plain}, columns)), (Strings{"a,b|2", "c|3", "a,b|2", "c|3"}));
  EXPECT_EQ(rows(Dataset::csv({write("short", "\xef\n")}, {.columns = {{CsvType::kString}}})),
            (Strings{"\xef"}));
}

TEST_F(Csv, NumbersNextToZeroAreNumbers) {  // As in TensorFlow, which also reads 1e39 as infinity.
  const std::string file = write("f", "1e-50\n-1e-60\n1e-45\n1e39\n1e400\ninf\n");
  auto it = Dataset::csv({file}, {.columns = {{CsvType::kFloat32}}}).make_iterator();
  for (const float expected : {0.F, -0.F, 1e-45F}) {
    const auto e = it.next();
    ASSERT_TRUE(e);
    EXPECT_EQ((*e)[0].as<float>(), expected);
  }
  EXPECT_THROW(it.next(), DataLoss);
  EXPECT_THROW(it.next(), DataLoss);
  EXPECT_TRUE(it.next());
}

TEST_F(Csv, OptionsAreCheckedAtOnce) {
  auto make = [&](CsvOptions options) { Dataset::csv({path("a")}, std::move(options)); };
  EXPECT_THROW(make({}), InvalidArgument);
  EXPECT_THROW(make({.columns = {{CsvType::kInt32, "a"}, {CsvType::kInt32}}}), InvalidArgument);
  EXPECT_THROW(make({.columns = {{CsvType::kInt32, "", "x"}}}), InvalidArgument);
  EXPECT_THROW(make({.columns = {{CsvType::kInt32}}, .select_columns = {1, 2}}), InvalidArgument);
  EXPECT_THROW(make({.columns = {{CsvType::kInt32}}, .select_columns = {-1}}), InvalidArgument);
  EXPECT_THROW(make({.columns = {{CsvType::kInt32}}, .delimiter = '\n'}), InvalidArgument);
}

}  // namespace
}  // namespace cohort
