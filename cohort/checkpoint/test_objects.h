// SPDX-License-Identifier: Apache-2.0
//
// What the tests of checkpoints share: a folder of their own, and objects to keep.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/checkpoint/checkpoint.h"

namespace cohort::testing {

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cohort_checkpoint_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  /// Names in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  std::string folder_;
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // Truncating a file is slow on some file systems.
  std::ofstream(path, std::ios::binary) << bytes;
}
/// Changes one bit in the middle of the file.
inline void damage(const std::string& path) {
  std::string bytes = bytes_of(path);
  bytes[bytes.size() / 2] ^= 1;
  write_bytes(path, bytes);
}
inline std::string shard_of(const std::string& checkpoint) {
  return checkpoint + "/shard-00001-model-00001-of-00001.safetensors";
}

/// An object with tensors by name, which it may make later.
class Box {
 public:
  Box() : tracked_(std::make_shared<TrackedObject>([this] { return parts(); })) {}
  explicit Box(std::map<std::string, Tensor> values) : Box() {
    values_ = std::move(values);
    built_ = true;
  }
  ~Box() { tracked_->release(); }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  /// As a layer: what the checkpoint refuses is not built.
  void build(std::map<std::string, Tensor> values) {
    values_ = std::move(values);
    built_ = true;
    try {
      tracked_->grown();
    } catch (...) {
      built_ = false;
      values_.clear();
      throw;
    }
  }
  void add(const std::string& name, std::shared_ptr<Trackable> child) {
    children_.emplace_back(name, std::move(child));
  }
  const Tensor& operator[](const std::string& name) const { return values_.at(name); }
  bool built() const { return built_; }
  std::shared_ptr<Trackable> trackable() const { return tracked_; }

 private:
  TrackedParts parts() const {
    TrackedParts parts{.children = children_, .growing = !built_};
    for (const auto& [name, tensor] : values_) {
      parts.values.push_back({.name = name,
                              .dtype = tensor.scalar_type(),
                              .shape = shape_of(tensor),
                              .read = [t = tensor] { return t; },
                              .write = [t = tensor](const Tensor& x) { t.copy_(x); },
                              .identity = tensor.unsafeGetTensorImpl()});
    }
    return parts;
  }

  std::map<std::string, Tensor> values_;
  std::vector<std::pair<std::string, std::shared_ptr<Trackable>>> children_;
  bool built_ = false;
  const std::shared_ptr<TrackedObject> tracked_;
};

}  // namespace cohort::testing
