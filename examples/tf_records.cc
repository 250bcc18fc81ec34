// SPDX-License-Identifier: Apache-2.0
//
// Trains from TFRecord files, as large data sets come: writes Fashion-MNIST as PNG images in shards
// of tf.train.Example (which TensorFlow reads, too), then reads several shards at once, decodes on
// background threads and trains on every core.
//
//   tf_records [--folder fashion_records] [--images 60000] [--shards 8] [--epochs 1]
#include <cstdio>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

struct Options {
  std::string folder = "fashion_records";
  int64_t images = 60000;
  int64_t shards = 8;
  int epochs = 1;
};

std::vector<std::string> write_shards(const Options& options) {
  std::filesystem::create_directories(options.folder);
  const Dataset images = data::fashion_mnist().train.take(options.images);
  std::vector<std::string> files;
  for (int64_t shard = 0; shard < options.shards; ++shard) {
    char name[64];
    std::snprintf(name, sizeof(name), "/train-%05d-of-%05d.tfrecord", static_cast<int>(shard),
                  static_cast<int>(options.shards));
    files.push_back(options.folder + name);
    TfRecordWriter writer(files.back());
    for (const Element& e : images.shard(options.shards, shard)) {
      const auto [image, label] = e.as<Tensor, Tensor>();
      const Tensor pixels = (image * 255).round().to(kUint8).reshape({28, 28, 1});
      const Example example{{{"image", std::vector<std::string>{encode_png(pixels)}},
                             {"label", std::vector<int64_t>{label.item<int64_t>()}}}};
      writer.write(example.serialize());
    }
    writer.close();
  }
  return files;
}

Dataset read_shards(const std::vector<std::string>& files) {
  const ExampleParser parser({{"image", FixedLenFeature{FeatureType::kString}},
                              {"label", FixedLenFeature{FeatureType::kInt64}}});
  const auto decode = [parser](const std::string& record) {
    const Element example = parser.parse_single(record);
    const Tensor image = decode_png(example["image"].string()).to(kFloat32).div(255).flatten();
    return std::tuple(image, example["label"].tensor());
  };
  return Dataset::tf_records(files, {.parallel_reads = kAutotune})
      .shuffle(10000)
      .map(decode, {.parallel_calls = kAutotune})
      .batch(128)
      .prefetch();
}

int run(const Options& options) {
  const std::vector<std::string> files = write_shards(options);
  std::printf("wrote %zu files to %s\n", files.size(), options.folder.c_str());

  MirroredStrategy strategy;
  auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(256, {.activation = "relu"}), keras::Dense(10)});
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy()}});
  model.fit(read_shards(files), {.epochs = options.epochs});
  return 0;
}

void declare(examples::Flags& flags, Options& options) {
  flags.add("--folder", options.folder, "Where the files are written");
  flags.add("--images", options.images, "Images in all of them", {.at_least = 1});
  flags.add("--shards", options.shards, "Files", {.at_least = 1});
  flags.add("--epochs", options.epochs, "Passes over the images", {.at_least = 1});
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(
      argc, argv, "Writes Fashion-MNIST as TFRecord files and trains from them.", declare, run);
}
