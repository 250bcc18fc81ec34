// SPDX-License-Identifier: Apache-2.0
#include "data_files.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>

#include "cohort/base/check.h"
#include "cohort/data/formats/example/example.h"
#include "cohort/data/formats/tf_record/tf_record.h"
#include "cohort/data/image/image.h"
#include "workload.h"

namespace cohort::bench {
namespace {

constexpr int kImageExamples = 20000;
constexpr int kTableRows = 50000;
constexpr int kRecordsPerFile = 1000;
constexpr int kRecordBytes = 100;

void write_bytes(const std::string& path, const void* data, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  COHORT_CHECK_STATE(file, "[data_bench] cannot write ", path);
}

void write_rows(const std::string& images, const std::string& folder) {
  const Images rows = read_fashion_mnist(images);
  write_bytes(folder + "/images.u8", rows.pixels.data(), rows.pixels.size());
  write_bytes(folder + "/labels.u8", rows.labels.data(), rows.labels.size());
}

void write_image_examples(const std::string& images, const std::string& folder) {
  const Images rows = read_fashion_mnist(images);
  TfRecordWriter writer(folder + "/examples.tfrecord");
  for (int i = 0; i < kImageExamples; ++i) {
    const auto* pixels = reinterpret_cast<const char*>(rows.pixels.data()) + i * kImageBytes;
    const std::int64_t label = rows.labels[static_cast<std::size_t>(i)];
    const Example example{{{"image", std::vector<std::string>{std::string(pixels, kImageBytes)}},
                           {"label", std::vector<std::int64_t>{label}}}};
    writer.write(example.serialize());
  }
  writer.close();
}

void write_float_examples(const std::string& folder) {
  std::mt19937 random(1);
  std::normal_distribution<float> value;
  TfRecordWriter writer(folder + "/examples.tfrecord");
  for (int i = 0; i < kTableRows; ++i) {
    Example example;
    for (int c = 0; c < kColumns; ++c) {
      example.features[str_cat("f", c)] = std::vector<float>{value(random)};
    }
    writer.write(example.serialize());
  }
  writer.close();
}

void write_table(const std::string& folder) {
  std::mt19937 random(2);
  std::normal_distribution<float> value;
  std::string text;
  for (int i = 0; i < kTableRows; ++i) {
    for (int c = 0; c < kColumns; ++c) {
      char number[32];
      std::snprintf(number, sizeof number, "%.7g", static_cast<double>(value(random)));
      text += number;
      text += c + 1 < kColumns ? ',' : '\n';
    }
  }
  write_bytes(folder + "/table.csv", text.data(), text.size());
}

// Photographs are smooth for the most part: waves of three colours, and a little noise.
void write_images(const std::string& folder) {
  constexpr int kImages = 256;
  constexpr std::int64_t kSide = 256;
  std::mt19937 random(4);
  std::uniform_real_distribution<float> wave(0.01F, 0.1F);
  const Tensor image = empty({kSide, kSide, 3}, kUint8);
  for (int i = 0; i < kImages; ++i) {
    auto* pixel = image.mutable_data_ptr<std::uint8_t>();
    const float down = wave(random), right = wave(random);
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        for (int c = 0; c < 3; ++c) {
          const float angle =
              down * static_cast<float>(y) + right * static_cast<float>(x * (c + 1));
          *pixel++ = static_cast<std::uint8_t>(128 + 100 * std::sin(angle) +
                                               static_cast<float>(random() % 8));
        }
      }
    }
    const std::string bytes = encode_jpeg(image, {.quality = 90});
    char name[32];
    std::snprintf(name, sizeof name, "/image-%03d.jpg", i);
    write_bytes(folder + name, bytes.data(), bytes.size());
  }
}

std::string random_line(std::mt19937& random) {
  std::string line(kRecordBytes, ' ');
  for (char& c : line) c = static_cast<char>('a' + random() % 26);
  return line;
}

void write_many(const std::string& name, const std::string& folder) {
  std::mt19937 random(3);
  for (const std::string& path : many_files(name, folder)) {
    if (name == "interleave_lines") {
      std::string text;
      for (int i = 0; i < kRecordsPerFile; ++i) text += random_line(random) + "\n";
      write_bytes(path, text.data(), text.size());
      continue;
    }
    TfRecordWriter writer(path);
    for (int i = 0; i < kRecordsPerFile; ++i) writer.write(random_line(random));
    writer.close();
  }
}

}  // namespace

std::vector<std::string> many_files(const std::string& name, const std::string& folder) {
  const char* format = name == "interleave_lines" ? "/lines-%02d.txt" : "/record-%02d.tfrecord";
  std::vector<std::string> files;
  for (int i = 0; i < kManyFiles; ++i) {
    char file[32];
    std::snprintf(file, sizeof file, format, i);
    files.push_back(folder + file);
  }
  return files;
}

void write_data_files(const std::string& name, const std::string& images,
                      const std::string& folder) {
  if (name == "rows") {
    write_rows(images, folder);
  } else if (name == "examples_image") {
    write_image_examples(images, folder);
  } else if (name == "examples_floats" || name == "examples_shuffled") {
    write_float_examples(folder);
  } else if (name == "csv") {
    write_table(folder);
  } else if (name == "images") {
    write_images(folder);
  } else {
    write_many(name, folder);
  }
}

}  // namespace cohort::bench
