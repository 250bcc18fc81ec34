// SPDX-License-Identifier: Apache-2.0
//
// A folder of images with a sub-folder for each class as a dataset.
//
//   auto train = image_dataset_from_directory("flowers", {.image_size = {180, 180},
//       .seed = 7, .validation_split = 0.2, .subset = Subset::kTraining});
//   model.fit(train.dataset, {.epochs = 3});      // train.class_names: daisy, roses, ...
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/data/image/image.h"

namespace cohort::data {

enum class LabelMode {
  kInt,          ///< int32 [].
  kCategorical,  ///< float32 [classes], one-hot.
  kBinary,       ///< float32 [1], 0 or 1: for two classes.
  kNone,         ///< The elements are images alone.
};
enum class ColorMode { kRgb, kGrayscale, kRgba };
enum class Subset { kAll, kTraining, kValidation };

struct ImageFolderOptions {
  LabelMode label_mode = LabelMode::kInt;
  /// The sub-folders in the order of their labels; without: by name.
  std::vector<std::string> class_names = {};
  ColorMode color_mode = ColorMode::kRgb;
  int64_t batch_size = 32;                         ///< 0: single images.
  std::array<int64_t, 2> image_size = {256, 256};  ///< Height and width.
  /// Another order in every pass. False: by class, then by name.
  bool shuffle = true;
  /// Of the order and of the split; needed where a shuffled folder is split.
  std::optional<uint64_t> seed = {};
  double validation_split = 0;  ///< This part of the images is Subset::kValidation.
  Subset subset = Subset::kAll;
  ResizeMethod interpolation = ResizeMethod::kBilinear;
  bool crop_to_aspect_ratio = false;  ///< As DecodeAndResizeOptions::crop_to_aspect_ratio.
  bool follow_links = false;          ///< Also reads sub-folders that are symbolic links.
  bool dct_scaling = false;           ///< As DecodeAndResizeOptions::dct_scaling.
  int parallel_calls = kAutotune;     ///< Images that are decoded at once.
  int64_t max_pixels = 1 << 27;       ///< Of a file's image.
  bool pad_to_aspect_ratio = false;   ///< As DecodeAndResizeOptions::pad_to_aspect_ratio.
};

struct ImageFolder {
  Dataset dataset;
  std::vector<std::string> class_names;
  std::vector<std::string> file_paths;  ///< Of this subset, in the order without shuffling.

  operator const Dataset&() const { return dataset; }  // NOLINT: implicit
};

/// (images, labels) of the PNG and JPEG files (.png, .jpg, .jpeg) below `directory`, in batches and
/// read ahead. Sub-folders of a class belong to it; names that begin with a dot are left out.
/// With LabelMode::kNone and no sub-folders, the images of the folder itself.
/// Shapes: images [b, height, width, channels], float32 from 0 to 255 (nearest: uint8); labels [b],
/// [b, classes] or [b, 1].
/// Order: the names are shuffled as a whole, whatever their number; a split takes the last part of
/// one order by the seed, which is not Keras's. Workers that share it read different
/// files. Errors: InvalidArgument for options that do not fit and a folder without images, Error
/// kNotFound for none; next() names the file that cannot be read.
/// TF: keras.utils.image_dataset_from_directory.
ImageFolder image_dataset_from_directory(const std::string& directory,
                                         const ImageFolderOptions& options = {});

}  // namespace cohort::data
