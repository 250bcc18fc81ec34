// SPDX-License-Identifier: Apache-2.0
#include "keras_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "cohort/base/check.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "places.h"

namespace cohort::bench {
namespace {

constexpr std::int64_t kFileBytes = std::int64_t{256} << 20;
constexpr std::int64_t kUnits = 4096;  // four Dense of 4096 x 4096 are 256 MB
constexpr std::int64_t kLayers = 4;
constexpr std::size_t kPiece = std::size_t{1} << 20;

struct OpenFile {
  OpenFile(const std::string& path, int flags) : fd(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    COHORT_CHECK_STATE(fd >= 0, "[keras_bench] cannot open ", path);
  }
  ~OpenFile() { ::close(fd); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  const int fd;
};

// Also what is only in memory yet.
void to_disk(const std::string& path) {
  COHORT_CHECK_STATE(::fsync(OpenFile(path, O_RDONLY).fd) == 0, "[keras_bench] fsync failed");
}

// The next one who reads it reads the disk.
void forget(const std::string& path) {
  to_disk(path);
  ::posix_fadvise(OpenFile(path, O_RDONLY).fd, 0, 0, POSIX_FADV_DONTNEED);
}

struct FileTask {
  FileTask() : scratch("keras_bench"), bytes(kPiece, 'x') {
    std::vector<keras::Layer> layers = {keras::InputLayer({kUnits})};
    for (std::int64_t i = 0; i < kLayers; ++i) layers.push_back(keras::Dense(kUnits));
    model = std::make_shared<keras::Sequential>(layers);
    save();
    write_bare();
  }
  std::string model_file() const { return scratch.path() + "/model.keras"; }
  std::string bare_file() const { return scratch.path() + "/bare"; }

  void save() const {
    model->save(model_file());
    to_disk(model_file());
  }
  void write_bare() const {
    const OpenFile file(bare_file(), O_WRONLY | O_CREAT | O_TRUNC);
    for (std::int64_t done = 0; done < kFileBytes; done += static_cast<std::int64_t>(kPiece)) {
      const auto written = ::write(file.fd, bytes.data(), kPiece);
      COHORT_CHECK_STATE(written == static_cast<ssize_t>(kPiece), "[keras_bench] disk full?");
    }
    COHORT_CHECK_STATE(::fsync(file.fd) == 0, "[keras_bench] fsync failed");
  }
  void load() const { keras::load_model(model_file()); }
  void read_bare() {
    const OpenFile file(bare_file(), O_RDONLY);
    while (::read(file.fd, bytes.data(), kPiece) > 0) {
    }
  }

  const ScratchFolder scratch;
  std::string bytes;
  std::shared_ptr<keras::Model> model;
};

Way file_way(const std::string& name, const std::function<void()>& before,
             const std::function<void()>& work) {
  const auto time = [before, work](std::int64_t steps) {
    std::chrono::duration<double, std::micro> sum{0};
    for (std::int64_t i = 0; i < steps; ++i) {
      before();
      const auto start = std::chrono::steady_clock::now();
      work();
      sum += std::chrono::steady_clock::now() - start;
    }
    return sum.count() / static_cast<double>(steps);
  };
  return {name, time};
}

std::vector<Way> save_ways() {
  const auto task = std::make_shared<FileTask>();
  const auto nothing = [] {};
  return {file_way("cohort", nothing, [task] { task->save(); }),
          file_way("bare", nothing, [task] { task->write_bare(); })};
}

std::vector<Way> load_ways() {
  const auto task = std::make_shared<FileTask>();
  return {file_way(
              "cohort", [task] { forget(task->model_file()); }, [task] { task->load(); }),
          file_way(
              "bare", [task] { forget(task->bare_file()); }, [task] { task->read_bare(); })};
}

}  // namespace

std::vector<WaysCase> keras_file_cases() {
  const std::vector<std::pair<std::string, std::int64_t>> facts = {{"bytes", kFileBytes}};
  return {{"save", facts, save_ways}, {"load", facts, load_ways}};
}

}  // namespace cohort::bench
