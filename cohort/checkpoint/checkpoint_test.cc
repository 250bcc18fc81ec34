// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using testing::Box;
using testing::bytes_of;
using testing::error_text;
using testing::shard_of;
using testing::write_bytes;

class CheckpointTest : public testing::FolderTest {};

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  const std::map<std::string, Tensor> saved = {
      {"kernel", from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
      {"bias", from_vector<double>({-0.0, 1e300}, {2})},
      {"mask", tensor({1, 0, 1}, kBool)},
      {"half", tensor({0.5, 2}, kBFloat16)},
      {"none", zeros({0, 4})},
      {"scalar", scalar(-7, kInt64)}};
  int64_t step = (int64_t{1} << 62) + 1;
  double rate = 0.1;
  std::string note("a\0b\xff", 4);
  {
    const Box box(saved);
    Checkpoint({{"box", box}, {"step", &step}, {"rate", &rate}, {"note", &note}})
        .save(path("a/b/c"));
  }
  std::map<std::string, Tensor> fresh;
  for (const auto& [name, value] : saved) fresh[name] = zeros(shape_of(value), value.scalar_type());
  const Box box(fresh);
  int64_t other_step = 0;
  double other_rate = 0;
  std::string other_note = "longer than before";
  const Checkpoint checkpoint(
      {{"box", box}, {"step", &other_step}, {"rate", &other_rate}, {"note", &other_note}});
  checkpoint.restore(path("a/b/c")).assert_consumed();
  for (const auto& [name, value] : saved) EXPECT_TRUE(box[name].equal(value)) << name;
  EXPECT_EQ(other_step, step);
  EXPECT_EQ(other_rate, rate);
  EXPECT_EQ(other_note, note);
}

TEST_F(CheckpointTest, IsASafetensorsFileForOtherTools) {
  const Box box({{"w", tensor({1, 2})}, {"on", tensor({1, 0}, kBool)}});
  Checkpoint({{"box", box}}).save(path("x"));
  const TensorFile file = load_tensors(shard_of(path("x")));
  EXPECT_TRUE(file.tensors.at("box/w").equal(tensor({1, 2})));
  EXPECT_EQ(file.tensors.at("box/on").scalar_type(), kUint8);
  EXPECT_EQ(file.metadata.at("DCP_SHARDING_INFO"),
            R"({"box/on":{"saved_offsets":[0]},"box/w":{"saved_offsets":[0]}})");
}

TEST_F(CheckpointTest, ListsWhatDoesNotMatchAndSetsNothing) {
  const Box saved(
      {{"same", ones({2})}, {"shape", ones({2, 3})}, {"type", ones({2})}, {"old", ones({1})}});
  Checkpoint({{"box", saved}}).save(path("x"));
  const Box live({{"same", zeros({2})},
                  {"shape", zeros({3, 2})},
                  {"type", zeros({2}, kFloat64)},
                  {"new", zeros({1})}});
  const Checkpoint checkpoint({{"box", live}});
  const std::string text = error_text<InvalidArgument>([&] { checkpoint.restore(path("x")); });
  for (const char* part : {"box/shape: expected float32[3, 2], got float32[2, 3] in the checkpoint",
                           "box/type: expected float64[2], got float32[2] in the checkpoint",
                           "box/new: float32[1] in the program, not in the checkpoint",
                           "box/old: float32[1] in the checkpoint, not in the program"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("box/same"), std::string::npos) << text;
  EXPECT_TRUE(live["same"].equal(zeros({2})));
}

TEST_F(CheckpointTest, RestoresAPartOnlyIfToldSo) {
  const Box saved({{"both", ones({2})}, {"old", ones({1})}});
  Checkpoint({{"box", saved}}).save(path("x"));
  const Box live({{"both", zeros({2})}, {"new", zeros({1})}});
  const Checkpoint checkpoint({{"box", live}});
  EXPECT_THROW(checkpoint.restore(path("x")), InvalidArgument);
  const RestoreStatus status = checkpoint.restore(path("x"), {.allow_partial = true});
  EXPECT_TRUE(live["both"].equal(ones({2})));
  EXPECT_TRUE(live["new"].equal(zeros({1})));
  EXPECT_EQ(status.waiting(), std::vector<std::string>{"box/old"});
  EXPECT_THROW(status.assert_consumed(), FailedPrecondition);
  const Box wrong({{"both", zeros({3})}});
  EXPECT_THROW(Checkpoint({{"box", wrong}}).restore(path("x"), {.allow_partial = true}),
               InvalidArgument);
}

TEST_F(CheckpointTest, KeepsSharedValuesOnce) {
  const Tensor shared = tensor({1, 2, 3});
  const Box a({{"w", shared}}), b({{"w", shared}});
  Checkpoint({{"a", a}, {"b", b}}).save(path("x"));
  EXPECT_EQ(load_tensors(shard_of(path("x"))).tensors.size(), 1u);
  // Into objects that share, and into some that do not.
  const Tensor one = zeros({3});
  const Box c({{"w", one}}), d({{"w", one}}), e({{"w", zeros({3})}}), f({{"w", zeros({3})}});
  Checkpoint({{"a", c}, {"b", d}}).restore(path("x")).assert_consumed();
  EXPECT_TRUE(one.equal(shared));
  Checkpoint({{"a", e}, {"b", f}}).restore(path("x")).assert_consumed();
  EXPECT_TRUE(e["w"].equal(shared));
  EXPECT_TRUE(f["w"].equal(shared));
  // From objects that do not share.
  Checkpoint({{"a", e}, {"b", f}}).save(path("y"));
  one.zero_();
  Checkpoint({{"a", c}, {"b", d}}).restore(path("y")).assert_consumed();
  EXPECT_TRUE(one.equal(shared));
  // One of the two names is enough.
  one.zero_();
  Checkpoint({{"b", d}}).restore(path("x")).assert_consumed();
  EXPECT_TRUE(one.equal(shared));
}

TEST_F(CheckpointTest, NestsObjectsAndGroups) {
  int64_t n = 5;
  Box inner({{"w", ones({2})}});
  Box outer({{"w", full({2}, 3)}});
  outer.add("inner", inner.trackable());
  const auto group = trackable_group({{"outer", outer}, {"n", &n}});
  Checkpoint({{"all", group}}).save(path("x"));
  const TensorFile file = load_tensors(shard_of(path("x")));
  EXPECT_TRUE(file.tensors.contains("all/outer/inner/w"));
  EXPECT_TRUE(file.tensors.contains("all/outer/w"));
  EXPECT_TRUE(file.tensors.contains("all/n"));
  EXPECT_THROW(trackable_group({{"a/b", &n}}), InvalidArgument);
  Box twice({{"inner", ones({2})}});
  twice.add("inner", trackable_group({{"x", &n}}));
  EXPECT_NO_THROW(Checkpoint({{"t", twice}}).save(path("y")));
  Box clash({{"n", ones({2})}});
  clash.add("n", TrackableRef(&n).trackable());
  EXPECT_NE(error_text<InvalidArgument>([&] {
              Checkpoint({{"c", clash}}).save(path("z"));
            }).find("two of \"c/n\""),
            std::string::npos);
}

TEST_F(CheckpointTest, SetsValuesThatAreMadeLater) {
  {
    const Box first({{"w", ones({2})}}), second({{"w", full({3}, 2)}});
    Checkpoint({{"first", first}, {"second", second}}).save(path("x"));
  }
  Box first, second;
  const RestoreStatus status =
      Checkpoint({{"first", first}, {"second", second}}).restore(path("x"));
  EXPECT_EQ(status.waiting(), (std::vector<std::string>{"first/w", "second/w"}));
  fs::remove_all(path("x"));  // Not needed any more.
  second.build({{"w", zeros({3})}});
  EXPECT_TRUE(second["w"].equal(full({3}, 2)));
  EXPECT_EQ(status.waiting(), std::vector<std::string>{"first/w"});
  first.build({{"w", zeros({2})}});
  EXPECT_TRUE(first["w"].equal(ones({2})));
  status.assert_consumed();
  second["w"].zero_();  // Training goes on, and nothing comes back.
  second.build({{"w", second["w"]}});
  EXPECT_TRUE(second["w"].equal(zeros({3})));
}

TEST_F(CheckpointTest, RefusesLaterValuesThatDoNotMatch) {
  {
    const Box box({{"w", ones({2})}});
    Checkpoint({{"box", box}}).save(path("x"));
  }
  Box box;
  Checkpoint({{"box", box}}).restore(path("x"));
  EXPECT_THROW(box.build({{"w", zeros({3})}}), InvalidArgument);
  EXPECT_FALSE(box.built());
  EXPECT_THROW(box.build({{"other", zeros({2})}}), InvalidArgument);
  EXPECT_THROW(box.build({{"w", zeros({2})}, {"more", zeros({2})}}), InvalidArgument);
  box.build({{"w", zeros({2})}});
  EXPECT_TRUE(box["w"].equal(ones({2})));
}

TEST_F(CheckpointTest, AnObjectThatHadNoValuesWhenItWasSavedStartsAnew) {
  int64_t n = 3;
  {
    const Box unbuilt;
    Checkpoint({{"box", unbuilt}, {"n", &n}}).save(path("x"));
  }
  Box box;
  Checkpoint({{"box", box}, {"n", &n}}).restore(path("x")).assert_consumed();
  box.build({{"w", full({2}, 9)}});
  EXPECT_TRUE(box["w"].equal(full({2}, 9)));
  // But values that are there already are missing in the checkpoint.
  const Box built({{"w", full({2}, 9)}});
  EXPECT_THROW(Checkpoint({{"box", built}, {"n", &n}}).restore(path("x")), InvalidArgument);
}

TEST_F(CheckpointTest, TheLastRestoreCounts) {
  for (const int value : {1, 2}) {
    const Box box({{"w", full({2}, value)}});
    Checkpoint({{"box", box}}).save(path(std::to_string(value)));
  }
  Box box;
  const Checkpoint checkpoint({{"box", box}});
  checkpoint.restore(path("1"));
  checkpoint.restore(path("2"));
  box.build({{"w", zeros({2})}});
  EXPECT_TRUE(box["w"].equal(full({2}, 2)));
}

TEST_F(CheckpointTest, SavesWhatStillWaits) {
  {
    const Box box({{"w", ones({2})}});
    Checkpoint({{"box", box}}).save(path("x"));
  }
  const Box unbuilt;
  const Checkpoint checkpoint({{"box", unbuilt}});
  checkpoint.restore(path("x"));
  checkpoint.save(path("y"));
  const Box box({{"w", zeros({2})}});
  Checkpoint({{"box", box}}).restore(path("y")).assert_consumed();
  EXPECT_TRUE(box["w"].equal(ones({2})));
  EXPECT_THROW(Checkpoint({{"renamed", unbuilt}}).save(path("z")), FailedPrecondition);
}

TEST_F(CheckpointTest, RefusesObjectsThatHaveEnded) {
  auto box = std::make_unique<Box>(std::map<std::string, Tensor>{{"w", ones({2})}});
  const Checkpoint checkpoint({{"box", *box}});
  checkpoint.save(path("x"));
  box.reset();
  EXPECT_THROW(checkpoint.save(path("y")), FailedPrecondition);
  EXPECT_THROW(checkpoint.restore(path("x")), FailedPrecondition);
  const Box empty;
  EXPECT_THROW(Checkpoint({{"box", empty}}).save(path("y")), FailedPrecondition);
  EXPECT_FALSE(fs::exists(path("y")));
}

TEST_F(CheckpointTest, RefusesReplicasAndBadNames) {
  int64_t n = 1;
  const Checkpoint checkpoint({{"n", &n}});
  checkpoint.save(path("x/"));
  {
    const internal::runtime::ReplicaScope scope(nullptr, 0, 2);
    EXPECT_THROW(checkpoint.save(path("y")), FailedPrecondition);
    EXPECT_THROW(checkpoint.restore(path("x")), FailedPrecondition);
  }
  EXPECT_THROW(checkpoint.save(""), InvalidArgument);
  EXPECT_THROW(Checkpoint({{"", &n}}), InvalidArgument);
  EXPECT_THROW(Checkpoint({{"a/b", &n}}), InvalidArgument);
  EXPECT_THROW(Checkpoint({}), InvalidArgument);
  EXPECT_THROW(Checkpoint({{"n", static_cast<int64_t*>(nullptr)}}), InvalidArgument);
  std::string bad_name = "\xff";
  EXPECT_THROW(Checkpoint({{bad_name, &n}}).save(path("z")), InvalidArgument);
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(CheckpointTest, ReplacesACheckpointAndNothingElse) {
  int64_t n = 1;
  const Checkpoint checkpoint({{"n", &n}});
  checkpoint.save(path("x"));
  n = 2;
  checkpoint.save(path("x"));
  n = 0;
  checkpoint.restore(path("x"));
  EXPECT_EQ(n, 2);
  fs::create_directory(path("folder"));
  write_bytes(path("folder/precious"), "data");
  write_bytes(path("file"), "data");
  for (const char* name : {"folder", "file"}) {
    testing::expect_error(ErrorCode::kAlreadyExists, {}, [&] { checkpoint.save(path(name)); });
  }
  EXPECT_EQ(bytes_of(path("folder/precious")), "data");
  EXPECT_EQ(names(), (std::vector<std::string>{"file", "folder", "x"}));
}

TEST_F(CheckpointTest, SaysWhatCannotBeOpened) {
  int64_t n = 1;
  const Checkpoint checkpoint({{"n", &n}});
  testing::expect_error(ErrorCode::kNotFound, {"absent"},
                        [&] { checkpoint.restore(path("absent")); });
  write_bytes(path("file"), "");
  EXPECT_THROW(checkpoint.save(path("file/x")), Error);
}

TEST_F(CheckpointTest, FindsEveryChangedBitAndEveryCut) {
  const Box box({{"w", tensor({1, 2})}});
  const Checkpoint checkpoint({{"box", box}});
  checkpoint.save(path("x"));
  for (const std::string& file : {shard_of(path("x")), path("x/cohort.json")}) {
    const std::string good = bytes_of(file);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      write_bytes(file, bad);
      box["w"].fill_(7);
      const std::string text = error_text<DataLoss>([&] { checkpoint.restore(path("x")); });
      EXPECT_NE(text.find(file + ": at byte "), std::string::npos) << i << ": " << text;
      EXPECT_TRUE(box["w"].equal(full({2}, 7)));
    }
    for (std::size_t size = 0; size <= good.size() + 1; ++size) {
      if (size == good.size()) continue;
      write_bytes(file, size < good.size() ? good.substr(0, size) : good + "x");
      const std::string text = error_text<DataLoss>([&] { checkpoint.restore(path("x")); });
      EXPECT_NE(text.find(file + ": at byte "), std::string::npos) << size << ": " << text;
    }
    write_bytes(file, good);
  }
  checkpoint.restore(path("x"));
  EXPECT_TRUE(box["w"].equal(tensor({1, 2})));
  fs::remove(shard_of(path("x")));
  EXPECT_THROW(checkpoint.restore(path("x")), Error);
}

}  // namespace
}  // namespace cohort
