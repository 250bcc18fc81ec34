// SPDX-License-Identifier: Apache-2.0
//
// Folders of images as Keras reads them: classes, labels, subsets, orders.
#include "cohort/data/image/image_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cohort/base/error.h"
#include "cohort/data/image/test_images.h"
#include "cohort/data/pipeline/auto_shard.h"
#include "cohort/data/test_files.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

class ImageFolders : public testing::FilesTest {
 protected:
  /// An image of one gray level.
  void image(const std::string& name, int level) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    const Tensor pixels = full({6, 4, 3}, level, kUint8);
    write(name, name.ends_with("png") ? encode_png(pixels) : encode_jpeg(pixels));
  }
  /// cats: 10 to 10 + n - 1, dogs: 110 and so on.
  std::string cats_and_dogs(int n) const {
    for (int i = 0; i < n; ++i) {
      image(str_cat("pets/cats/c", i, i % 2 == 0 ? ".png" : ".JPG"), 10 + i);
      image(str_cat("pets/dogs/d", i, ".jpeg"), 110 + i);
    }
    return path("pets");
  }
};

/// The levels of the images of a pass, in order.
Ints levels(const Dataset& dataset) {
  Ints out;
  for (const Element& e : dataset) {
    const Tensor& images = e.is_tuple() ? e[0].tensor() : e.tensor();
    for (int64_t i = 0; i < images.size(0); ++i) {
      out.push_back(std::lround(images[i].mean().item<double>()));
    }
  }
  return out;
}
Ints sorted(Ints values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST_F(ImageFolders, ClassesByNameAndBatches) {
  const auto pets = image_dataset_from_directory(
      cats_and_dogs(3), {.batch_size = 4, .image_size = {5, 7}, .shuffle = false});
  EXPECT_EQ(pets.class_names, (Strings{"cats", "dogs"}));
  EXPECT_EQ(pets.file_paths.size(), 6U);
  EXPECT_EQ(pets.file_paths[1], path("pets/cats/c1.JPG"));
  EXPECT_EQ(pets.dataset.element_spec().to_string(), "(float32[?,5,7,3], int32[?])");
  EXPECT_EQ(pets.dataset.cardinality(), 2);
  EXPECT_EQ(pets.dataset.batch_rows(), 4);
  auto it = pets.dataset.make_iterator();
  const auto [x, y] = it.next()->as<Tensor, Tensor>();
  EXPECT_EQ(shape_of(x), (Shape{4, 5, 7, 3}));
  EXPECT_EQ(to_vector<int64_t>(y), (Ints{0, 0, 0, 1}));
  EXPECT_EQ(to_vector<int64_t>(it.next()->operator[](1).tensor()), (Ints{1, 1}));
  EXPECT_FALSE(it.next());
  EXPECT_EQ(levels(pets), (Ints{10, 11, 12, 110, 111, 112}));
}

TEST_F(ImageFolders, KindsOfLabels) {
  const std::string folder = cats_and_dogs(1);
  const auto labels = [&](LabelMode mode) {
    return image_dataset_from_directory(folder, {.label_mode = mode, .shuffle = false})
        .dataset.make_iterator()
        .next()
        ->
        operator[](1)
        .tensor();
  };
  EXPECT_EQ(labels(LabelMode::kInt).scalar_type(), kInt32);
  EXPECT_EQ(shape_of(labels(LabelMode::kBinary)), (Shape{2, 1}));
  EXPECT_EQ(to_vector<float>(labels(LabelMode::kBinary)), (std::vector<float>{0, 1}));
  EXPECT_EQ(shape_of(labels(LabelMode::kCategorical)), (Shape{2, 2}));
  EXPECT_EQ(to_vector<float>(labels(LabelMode::kCategorical)), (std::vector<float>{1, 0, 0, 1}));
  const auto images = image_dataset_from_directory(
      folder + "/dogs", {.label_mode = LabelMode::kNone, .batch_size = 0});
  EXPECT_EQ(images.dataset.element_spec().to_string(), "float32[256,256,3]");
  EXPECT_TRUE(images.class_names.empty());
}

TEST_F(ImageFolders, NamesInAnotherOrderAndOtherColours) {
  const auto pets =
      image_dataset_from_directory(cats_and_dogs(2), {.class_names = {"dogs", "cats"},
                                                      .color_mode = ColorMode::kGrayscale,
                                                      .batch_size = 0,
                                                      .image_size = {2, 2},
                                                      .shuffle = false,
                                                      .interpolation = ResizeMethod::kNearest});
  EXPECT_EQ(pets.dataset.element_spec().to_string(), "(uint8[2,2,1], int32[])");
  auto it = pets.dataset.make_iterator();
  const auto [x, y] = it.next()->as<Tensor, Tensor>();
  EXPECT_EQ(to_vector<int64_t>(x), (Ints{110, 110, 110, 110}));
  EXPECT_EQ(y.item<int64_t>(), 0);
  const auto rgba = image_dataset_from_directory(
      path("pets"), {.color_mode = ColorMode::kRgba, .image_size = {1, 1}, .shuffle = false});
  EXPECT_EQ(to_vector<int64_t>(rgba.dataset.make_iterator().next()->operator[](0).tensor()[0]),
            (Ints{10, 10, 10, 255}));
}

TEST_F(ImageFolders, OrdersFollowFromTheSeed) {
  const std::string folder = cats_and_dogs(6);
  const auto make = [&] {
    return image_dataset_from_directory(folder, {.batch_size = 5, .image_size = {2, 2}, .seed = 3});
  };
  const auto pets = make();
  const Ints first = levels(pets), second = levels(pets);
  EXPECT_NE(first, second);
  EXPECT_NE(first, sorted(first));
  EXPECT_EQ(sorted(first), sorted(second));
  const auto again = make();
  EXPECT_EQ(levels(again), first);
  EXPECT_EQ(levels(again), second);
}

TEST_F(ImageFolders, SubsetsShareNothingAndMissNothing) {
  const std::string folder = cats_and_dogs(5);
  for (bool shuffle : {false, true}) {
    const auto part = [&](Subset subset) {
      return levels(image_dataset_from_directory(folder, {.image_size = {2, 2},
                                                          .shuffle = shuffle,
                                                          .seed = 11,
                                                          .validation_split = 0.35,
                                                          .subset = subset}));
    };
    Ints all = part(Subset::kTraining);
    const Ints validation = part(Subset::kValidation);
    EXPECT_EQ(validation.size(), 3U);
    EXPECT_EQ(part(Subset::kValidation).size(), 3U);
    all.insert(all.end(), validation.begin(), validation.end());
    EXPECT_EQ(sorted(all), (Ints{10, 11, 12, 13, 14, 110, 111, 112, 113, 114}));
    if (!shuffle) {
      EXPECT_EQ(validation, (Ints{112, 113, 114}));
    }
  }
}

TEST_F(ImageFolders, WhatBelongsToAClass) {
  cats_and_dogs(1);
  image("pets/cats/kittens/young/k.png", 50);
  image("pets/.hidden/x.png", 1);
  image("pets/cats/.thumbnails/x.png", 1);
  image("pets/cats/.x.png", 1);
  image("pets/loose.png", 1);
  write("pets/dogs/notes.txt", "not an image");
  image("elsewhere/w.png", 77);
  std::filesystem::create_directory_symlink(path("elsewhere"), path("pets/wolves"));
  const auto pets = image_dataset_from_directory(path("pets"), {.shuffle = false});
  EXPECT_EQ(pets.class_names, (Strings{"cats", "dogs"}));
  EXPECT_EQ(levels(pets), (Ints{10, 50, 110}));
  const auto all =
      image_dataset_from_directory(path("pets"), {.shuffle = false, .follow_links = true});
  EXPECT_EQ(all.class_names, (Strings{"cats", "dogs", "wolves"}));
  EXPECT_EQ(levels(all), (Ints{10, 50, 110, 77}));
}

TEST_F(ImageFolders, DamageNamesTheFileAndCanBeLeftOut) {
  cats_and_dogs(2);
  const std::string bad = write("pets/cats/c0.png", "no image");
  const auto pets = image_dataset_from_directory(
      path("pets"), {.batch_size = 0, .image_size = {2, 2}, .shuffle = false});
  auto it = pets.dataset.make_iterator();
  const std::string text = error_text<DataLoss>([&] { it.next(); });
  EXPECT_NE(text.find("element 0 of image_files.map"), std::string::npos) << text;
  EXPECT_NE(text.find("[read_image] " + bad + ": expected a PNG or JPEG image, got other bytes"),
            std::string::npos)
      << text;
  EXPECT_EQ(it.next()->operator[](0).tensor().mean().item<float>(), 11);
  EXPECT_EQ(levels(pets.dataset.ignore_errors({.log_warning = false}).batch(8)),
            (Ints{11, 110, 111}));
}

TEST_F(ImageFolders, PositionsAreSaved) {
  const std::string folder = cats_and_dogs(4);
  const auto make = [&] {
    return image_dataset_from_directory(folder, {.batch_size = 3, .image_size = {2, 2}, .seed = 5})
        .dataset.repeat(2);
  };
  const auto rest = [](Iterator& it) {
    Ints out;
    while (auto e = it.next()) {
      for (float v : to_vector<float>((*e)[0].tensor().mean(std::vector<int64_t>{1, 2, 3})))
        out.push_back(std::lround(v));
    }
    return out;
  };
  auto whole = make().make_iterator();
  const Ints all = rest(whole);
  auto it = make().make_iterator();
  std::size_t seen = 0;
  while (auto e = it.next()) {
    seen += static_cast<std::size_t>(e->rows());
    auto resumed = make().make_iterator(it.save());
    EXPECT_EQ(rest(resumed), Ints(all.begin() + static_cast<int64_t>(seen), all.end()));
  }
  EXPECT_EQ(seen, all.size());
}

TEST_F(ImageFolders, WorkersReadOtherFiles) {
  const auto pets =
      image_dataset_from_directory(cats_and_dogs(4), {.batch_size = 2, .image_size = {2, 2}});
  std::set<int64_t> all;
  for (int worker = 0; worker < 2; ++worker) {
    const auto shard = auto_shard_dataset(pets.dataset, 2, worker);
    EXPECT_EQ(shard.applied, AutoShardPolicy::kFile);
    const Ints got = levels(shard.dataset);
    EXPECT_EQ(got.size(), 4U);
    all.insert(got.begin(), got.end());
  }
  EXPECT_EQ(all.size(), 8U);
}

TEST_F(ImageFolders, OptionsThatDoNotFit) {
  const std::string folder = cats_and_dogs(2);
  image("three/a/x.png", 1);
  image("three/b/x.png", 1);
  image("three/c/x.png", 1);
  std::filesystem::create_directories(path("none/a"));
  const auto refusal = [&](const std::string& name, const ImageFolderOptions& options) {
    return error_text<InvalidArgument>([&] { image_dataset_from_directory(path(name), options); });
  };
  const std::string tag = "[image_dataset_from_directory] ";
  EXPECT_EQ(refusal("three", {.label_mode = LabelMode::kBinary}),
            tag + "expected 2 classes for LabelMode::kBinary, got [a, b, c]");
  EXPECT_EQ(refusal("pets", {.class_names = {"cats", "cows"}}),
            tag + "expected class_names to be the sub-folders [cats, dogs], got [cats, cows]");
  EXPECT_EQ(refusal("none", {}),
            tag + "expected images (.png, .jpg, .jpeg) in " + path("none") + ", got none");
  EXPECT_EQ(refusal("pets/cats", {}),
            tag + "expected a sub-folder for each class in " + path("pets/cats") +
                ", got none (LabelMode::kNone reads images without classes)");
  EXPECT_EQ(refusal("pets", {.validation_split = 0.5, .subset = Subset::kTraining}),
            tag +
                "expected a seed for a shuffled folder that is split: without, training and "
                "validation images would overlap");
  EXPECT_EQ(refusal("pets", {.seed = 1, .validation_split = 0.1, .subset = Subset::kValidation}),
            tag + "expected images in both subsets, got 4 images and a validation_split of 0.1");
  const std::string together =
      tag + "expected a validation_split and a subset (kTraining or kValidation) together";
  EXPECT_EQ(refusal("pets", {.validation_split = 0.5}), together);
  EXPECT_EQ(refusal("pets", {.subset = Subset::kTraining}), together);
  EXPECT_NE(refusal("pets", {.image_size = {0, 4}}), "nothing thrown");
  EXPECT_NE(refusal("pets", {.batch_size = -1}), "nothing thrown");
  EXPECT_NE(refusal("pets", {.validation_split = 1, .subset = Subset::kTraining}),
            "nothing thrown");
  testing::expect_error(ErrorCode::kNotFound, {},
                        [&] { image_dataset_from_directory(path("nowhere")); });
}

}  // namespace
}  // namespace cohort
