// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/image/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/data/core/internal/rows/row_source.h"
#include "cohort/data/image/internal/load_image.h"
#include "cohort/data/pipeline/internal/iteration_seeds.h"
#include "cohort/data/pipeline/internal/nodes.h"
#include "cohort/data/pipeline/internal/shuffle_random.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
constexpr const char* kTag = "[image_dataset_from_directory]";

struct Files {
  Strings paths;
  std::vector<int32_t> labels;
};

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_image(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

/// The names of the folders in `directory`, in order.
Strings folders_in(const fs::path& directory, bool follow_links) {
  Strings out;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (is_hidden(entry.path()) || !entry.is_directory()) continue;
    if (entry.is_symlink() && !follow_links) continue;
    out.push_back(entry.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The images in a folder and below it, in order.
void append_images(const fs::path& folder, int32_t label, bool follow_links, Files& files) {
  Strings found;
  const auto how =
      follow_links ? fs::directory_options::follow_directory_symlink : fs::directory_options::none;
  for (auto at = fs::recursive_directory_iterator(folder, how); at != end(at); ++at) {
    if (is_hidden(at->path())) {
      at.disable_recursion_pending();
    } else if (is_image(at->path()) && at->is_regular_file()) {
      found.push_back(at->path().string());
    }
  }
  std::sort(found.begin(), found.end());
  files.labels.resize(files.labels.size() + found.size(), label);
  std::move(found.begin(), found.end(), std::back_inserter(files.paths));
}

Strings class_names_of(const std::string& directory, const ImageFolderOptions& options) {
  Strings found = folders_in(directory, options.follow_links);
  if (options.class_names.empty()) return found;
  Strings sorted = options.class_names;
  std::sort(sorted.begin(), sorted.end());
  COHORT_CHECK_ARG(sorted == found, kTag, " expected class_names to be the sub-folders ",
                   bracketed(found), ", got ", bracketed(options.class_names));
  return options.class_names;
}

Files find_files(const std::string& directory, const Strings& class_names,
                 const ImageFolderOptions& options) {
  Files files;
  if (class_names.empty()) append_images(directory, 0, options.follow_links, files);
  for (std::size_t i = 0; i < class_names.size(); ++i) {
    append_images(fs::path(directory) / class_names[i], static_cast<int32_t>(i),
                  options.follow_links, files);
  }
  COHORT_CHECK_ARG(!files.paths.empty(), kTag, " expected images (.png, .jpg, .jpeg) in ",
                   directory, ", got none");
  return files;
}

/// The part of the files that the subset asks for, of an order that the seed gives.
Files split(Files files, const ImageFolderOptions& options) {
  if (options.subset == Subset::kAll) return files;
  const std::size_t count = files.paths.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) {
    internal::data::ShuffleRandom random(*options.seed, 0);
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  const auto validation =
      static_cast<std::size_t>(options.validation_split * static_cast<double>(count));
  const bool training = options.subset == Subset::kTraining;
  const std::size_t begin = training ? 0 : count - validation;
  const std::size_t end = training ? count - validation : count;
  COHORT_CHECK_ARG(begin < end, kTag, " expected images in both subsets, got ", count,
                   " images and a validation_split of ", options.validation_split);
  std::sort(order.begin() + static_cast<int64_t>(begin), order.begin() + static_cast<int64_t>(end));
  Files out;
  for (std::size_t i = begin; i < end; ++i) {
    out.paths.push_back(std::move(files.paths[order[i]]));
    out.labels.push_back(files.labels[order[i]]);
  }
  return out;
}

void check_options(const ImageFolderOptions& options) {
  COHORT_CHECK_ARG(options.batch_size >= 0, kTag,
                   " expected a batch_size of at least 1, or 0 for single images, got ",
                   options.batch_size);
  const double part = options.validation_split;
  COHORT_CHECK_ARG(part >= 0 && part < 1, kTag, " expected a validation_split of 0 to 1, got ",
                   part);
  COHORT_CHECK_ARG((part > 0) == (options.subset != Subset::kAll), kTag,
                   " expected a validation_split and a subset (kTraining or kValidation) together");
  COHORT_CHECK_ARG(part == 0 || !options.shuffle || options.seed, kTag,
                   " expected a seed for a shuffled folder that is split: without, training and "
                   "validation images would overlap");
  COHORT_CHECK_ARG(!options.crop_to_aspect_ratio || !options.pad_to_aspect_ratio, kTag,
                   " expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got both");
  internal::data::check_result_size(kTag, options.image_size[0], options.image_size[1],
                                    options.max_pixels);
}

/// What an image and its number become.
class Loader {
 public:
  Loader(const ImageFolderOptions& options, int64_t classes)
      : mode_(options.label_mode),
        size_(options.image_size),
        classes_(classes),
        image_{.channels = options.color_mode == ColorMode::kGrayscale ? 1
                           : options.color_mode == ColorMode::kRgba    ? 4
                                                                       : 3,
               .method = options.interpolation,
               .crop_to_aspect_ratio = options.crop_to_aspect_ratio,
               .dct_scaling = options.dct_scaling,
               .max_pixels = options.max_pixels,
               .pad_to_aspect_ratio = options.pad_to_aspect_ratio} {}

  Element operator()(const Element& file) const {
    Tensor image = internal::data::load_image_file(file[0].string(), size_[0], size_[1], image_);
    if (mode_ == LabelMode::kNone) return image;
    return {std::move(image), label(file[1].tensor())};
  }

  ElementSpec spec() const {
    const bool copied = image_.method == ResizeMethod::kNearest;
    const TensorSpec image{{size_[0], size_[1], image_.channels}, copied ? kUint8 : kFloat32};
    switch (mode_) {
      case LabelMode::kNone:
        return image;
      case LabelMode::kInt:
        return ElementSpec::tuple({image, TensorSpec{{}, kInt32}});
      case LabelMode::kBinary:
        return ElementSpec::tuple({image, TensorSpec{{1}, kFloat32}});
      default:
        return ElementSpec::tuple({image, TensorSpec{{classes_}, kFloat32}});
    }
  }

 private:
  Tensor label(const Tensor& number) const {
    if (mode_ == LabelMode::kInt) return number;
    const int32_t index = *static_cast<const int32_t*>(number.const_data_ptr());
    if (mode_ == LabelMode::kBinary) return full({1}, index, kFloat32);
    Tensor out = zeros({classes_}, kFloat32);
    static_cast<float*>(out.data_ptr())[index] = 1;
    return out;
  }

  LabelMode mode_;
  std::array<int64_t, 2> size_;
  int64_t classes_;
  DecodeAndResizeOptions image_;
};

Dataset pipeline(const Files& files, const ImageFolderOptions& options, int64_t classes) {
  const Element rows = {files.paths,
                        from_vector(files.labels, {static_cast<int64_t>(files.labels.size())})};
  Dataset names(internal::data::make_rows_node("image_files",
                                               internal::data::make_tensor_rows(rows), {},
                                               internal::data::ElementKind::kFiles));
  if (options.shuffle) {
    names = names.shuffle(names.cardinality(), {.seed = options.seed});
  }
  const Loader load(options, classes);
  const Dataset images = names.map([load](const Element& file) { return load(file); },
                                   {.parallel_calls = options.parallel_calls, .spec = load.spec()});
  return (options.batch_size == 0 ? images : images.batch(options.batch_size)).prefetch();
}

}  // namespace

ImageFolder image_dataset_from_directory(const std::string& directory,
                                         const ImageFolderOptions& options) {
  check_options(options);
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw Error(ErrorCode::kNotFound, str_cat(kTag, " expected a folder, got ", directory));
  }
  Strings class_names = class_names_of(directory, options);
  const std::size_t classes = class_names.size();
  COHORT_CHECK_ARG(options.label_mode == LabelMode::kNone || classes > 0, kTag,
                   " expected a sub-folder for each class in ", directory,
                   ", got none (LabelMode::kNone reads images without classes)");
  COHORT_CHECK_ARG(options.label_mode != LabelMode::kBinary || classes == 2, kTag,
                   " expected 2 classes for LabelMode::kBinary, got ", bracketed(class_names));
  Files files = find_files(directory, class_names, options);
  const std::size_t all = files.paths.size();
  files = split(std::move(files), options);
  COHORT_LOG(kInfo, "Found ", all, " images belonging to ", classes, " classes; using ",
             files.paths.size());
  Dataset dataset = pipeline(files, options, static_cast<int64_t>(classes));
  return {std::move(dataset), std::move(class_names), std::move(files.paths)};
}

}  // namespace cohort::data
