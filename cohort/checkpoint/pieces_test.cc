// SPDX-License-Identifier: Apache-2.0
//
// Values that their objects keep in pieces.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "cohort/base/strings.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

struct PieceBox {
  Shape offset;
  Shape extent;
};
using PieceBoxes = std::vector<PieceBox>;

/// A value of [5, 6] that is kept in boxes, or whole.
class Sharded {
 public:
  explicit Sharded(const PieceBoxes& boxes, const Tensor& value = zeros({5, 6})) : boxes_(boxes) {
    for (const PieceBox& box : boxes) parts_.push_back(cut(value, box).clone());
    if (boxes.empty()) parts_.push_back(value.clone());
  }
  std::shared_ptr<Trackable> trackable() {
    TrackedValue value{.dtype = kFloat32, .shape = Shape{5, 6}, .identity = this};
    if (boxes_.empty()) {
      value.read = [this] { return parts_[0]; };
      value.write = [this](const Tensor& x) { parts_[0] = x.clone(); };
    }
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      value.pieces.push_back({.offset = boxes_[i].offset,
                              .extent = boxes_[i].extent,
                              .read = [this, i] { return parts_[i]; },
                              .write =
                                  [this, i](const Tensor& x) {
                                    EXPECT_EQ(shape_of(x), boxes_[i].extent);
                                    parts_[i] = x.clone();
                                  }});
    }
    return trackable_value(value);
  }
  Tensor whole() const {
    if (boxes_.empty()) return parts_[0];
    Tensor out = full({5, 6}, -1);
    for (std::size_t i = 0; i < boxes_.size(); ++i) cut(out, boxes_[i]).copy_(parts_[i]);
    return out;
  }

 private:
  static Tensor cut(Tensor value, const PieceBox& box) {
    for (std::size_t i = 0; i < box.extent.size(); ++i) {
      value = value.narrow(static_cast<int64_t>(i), box.offset[i], box.extent[i]);
    }
    return value;
  }
  const PieceBoxes boxes_;
  std::vector<Tensor> parts_;
};

const std::vector<PieceBoxes>& partitions() {
  static const std::vector<PieceBoxes> all = {
      {},
      {{{0, 0}, {5, 6}}},
      {{{0, 0}, {2, 6}}, {{2, 0}, {2, 6}}, {{4, 0}, {1, 6}}},
      {{{3, 0}, {2, 6}}, {{0, 0}, {3, 2}}, {{0, 2}, {3, 4}}}};
  return all;
}

class PiecesTest : public testing::FolderTest {};

TEST_F(PiecesTest, AreRestoredIntoWhateverPieces) {
  const Tensor value = arange(30, kFloat32).reshape({5, 6}) + 0.5;
  for (const PieceBoxes& before : partitions()) {
    for (const PieceBoxes& after : partitions()) {
      SCOPED_TRACE(str_cat(before.size(), " pieces into ", after.size()));
      Sharded saved(before, value);
      double beside = 7;
      Checkpoint({{"table", saved.trackable()}, {"again", saved.trackable()}, {"beside", &beside}})
          .save(path("x"));
      Sharded restored(after);
      double other = 0;
      Checkpoint(
          {{"table", restored.trackable()}, {"again", restored.trackable()}, {"beside", &other}})
          .restore(path("x"))
          .assert_consumed();
      EXPECT_TRUE(restored.whole().equal(value));
      EXPECT_EQ(other, 7);
    }
  }
}

// A file for each piece, under the value's own name: what readers of sharded safetensors expect.
TEST_F(PiecesTest, LieInFilesOfTheirOwnWithTheirOffsets) {
  const Tensor value = arange(30, kFloat32).reshape({5, 6});
  Sharded saved(partitions()[3], value);
  double beside = 7;
  Checkpoint({{"table", saved.trackable()}, {"beside", &beside}}).save(path("x"));
  const auto file = [&](int i) {
    return load_tensors(str_cat(path("x"), "/shard-0000", i, "-model-00001-of-00003.safetensors"));
  };
  EXPECT_TRUE(file(1).tensors.at("table").equal(value.slice(0, 3, 5)));
  EXPECT_EQ(file(1).tensors.count("beside"), 1U);
  EXPECT_TRUE(file(3).tensors.at("table").equal(value.slice(0, 0, 3).slice(1, 2, 6)));
  EXPECT_EQ(file(3).metadata.at("DCP_SHARDING_INFO"), R"({"table":{"saved_offsets":[0,2]}})");
  std::filesystem::remove(path("x") + "/shard-00002-model-00001-of-00003.safetensors");
  Sharded restored(partitions()[0]);
  double other = 0;
  EXPECT_THROW(Checkpoint({{"table", restored.trackable()}, {"beside", &other}}).restore(path("x")),
               Error);
}

// As many workers write them: more than a process may have open.
TEST_F(PiecesTest, OfMoreFilesThanMayBeOpenAreRestored) {
  constexpr int64_t kPieces = 200;
  const Tensor rows = arange(kPieces, kFloat32);
  const auto of_rows = [&](const Tensor& store) {
    TrackedValue out{.dtype = kFloat32, .shape = Shape{kPieces}, .identity = store.data_ptr()};
    for (int64_t i = 0; i < kPieces; ++i) {
      out.pieces.push_back(
          {.offset = {i},
           .extent = {1},
           .read = [store, i] { return store.slice(0, i, i + 1).clone(); },
           .write = [store, i](const Tensor& x) { store.slice(0, i, i + 1).copy_(x); }});
    }
    return trackable_value(out);
  };
  Checkpoint({{"rows", of_rows(rows)}}).save(path("x"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 150;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const Tensor restored = zeros({kPieces});
  EXPECT_NO_THROW(Checkpoint({{"rows", of_rows(restored)}}).restore(path("x")).assert_consumed());
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(restored.equal(rows));
}

TEST_F(PiecesTest, ThatDoNotFillTheirValueAreRefused) {
  for (const PieceBoxes& boxes :
       {PieceBoxes{{{0, 0}, {2, 6}}, {{3, 0}, {2, 6}}},
        PieceBoxes{{{0, 0}, {3, 6}}, {{2, 0}, {3, 6}}}, PieceBoxes{{{0, 0}, {4, 6}}}}) {
    Sharded holed(boxes);
    const Checkpoint checkpoint({{"table", holed.trackable()}});
    testing::expect_error<InvalidArgument>({"\"table\"", "each element once"},
                                           [&] { checkpoint.save(path("x")); });
  }
}

}  // namespace
}  // namespace cohort
