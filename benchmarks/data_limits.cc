// SPDX-License-Identifier: Apache-2.0
#include "data_limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "data_files.h"

namespace cohort::bench {
namespace {

// What the compiler makes of it for the machine's widest vectors. A product, not the quotient that
// pipelines have to give: a bound may be a bit wrong in the last place.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void convert_row(
    const std::uint8_t* __restrict row, float* __restrict out) {
  constexpr float kScale = 1 / 255.0F;
  for (std::int64_t i = 0; i < kImageBytes; ++i) out[i] = static_cast<float>(row[i]) * kScale;
}

/// Bytes on huge pages, where the system has them to give.
class HugeBytes {
 public:
  explicit HugeBytes(std::size_t bytes) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t length = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    data_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kHugePage, length)));
    madvise(data_.get(), length, MADV_HUGEPAGE);
    std::memset(data_.get(), 0, length);
  }
  std::uint8_t* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::uint8_t* data) const { std::free(data); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
};

class GatherLimit final : public BatchSource {
 public:
  GatherLimit(const std::string& folder, std::int64_t batch)
      : labels_(read_file(folder + "/labels.u8")),
        pixels_(labels_.size() * kImageBytes),
        order_(labels_.size()),
        x_(static_cast<std::size_t>(batch * kImageBytes) * sizeof(float)),
        y_(static_cast<std::size_t>(batch)) {
    const std::string bytes = read_file(folder + "/images.u8");
    std::memcpy(pixels_.get(), bytes.data(), bytes.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random_);
  }

  void read(std::int64_t count) override {
    for (std::int64_t i = 0; i < count; ++i) read_batch();
  }
  Pass pass() const override {
    Pass pass{static_cast<std::int64_t>(labels_.size()), 0};
    std::vector<float> x(kImageBytes);
    for (const std::int64_t row : order_) {
      convert_row(pixels(row), x.data());
      pass.sum = std::accumulate(x.begin(), x.end(), pass.sum);
      pass.sum += static_cast<std::uint8_t>(labels_[static_cast<std::size_t>(row)]);
    }
    return pass;
  }

 private:
  void read_batch() {
    auto* x = reinterpret_cast<float*>(x_.get());
    for (std::size_t i = 0; i < y_.size(); ++i) {
      if (next_ == order_.size()) {
        std::shuffle(order_.begin(), order_.end(), random_);
        next_ = 0;
      }
      const std::int64_t row = order_[next_++];
      // The order is known: so far ahead lies what the memory takes to answer.
      if (next_ + 8 < order_.size()) {
        const std::uint8_t* later = pixels(order_[next_ + 8]);
        for (std::int64_t byte = 0; byte < kImageBytes; byte += 64) {
          __builtin_prefetch(later + byte);
        }
      }
      convert_row(pixels(row), x + static_cast<std::int64_t>(i) * kImageBytes);
      y_[i] = static_cast<std::uint8_t>(labels_[static_cast<std::size_t>(row)]);
    }
    asm volatile("" ::"r"(x), "r"(y_.data()) : "memory");
  }
  const std::uint8_t* pixels(std::int64_t row) const { return pixels_.get() + row * kImageBytes; }

  const std::string labels_;
  const HugeBytes pixels_;
  std::mt19937_64 random_{1};
  std::vector<std::int64_t> order_;
  std::size_t next_ = 0;
  const HugeBytes x_;
  std::vector<std::int64_t> y_;
};

/// Goes through pieces of a file in memory, `batch` pieces a step, from the start again at the end.
class PiecesLimit : public BatchSource {
 public:
  PiecesLimit(const std::string& file, std::int64_t batch)
      : bytes_(read_file(file)), batch_(batch) {}

  void read(std::int64_t count) final {
    double sum = 0;
    for (std::int64_t i = 0; i < count * batch_; ++i) {
      if (next_ == pieces_.size()) next_ = 0;
      sum += work(pieces_[next_++]);
    }
    asm volatile("" ::"x"(sum));
  }
  /// Pieces are not what the pipeline's values are: nothing to compare.
  Pass pass() const final { return {static_cast<std::int64_t>(pieces_.size()), std::nan("")}; }

 protected:
  virtual double work(std::string_view piece) const = 0;

  std::string_view bytes() const { return bytes_; }
  void add(std::string_view piece) { pieces_.push_back(piece); }

 private:
  const std::string bytes_;
  const std::int64_t batch_;
  std::vector<std::string_view> pieces_;
  std::size_t next_ = 0;
};

class CrcLimit final : public PiecesLimit {
 public:
  CrcLimit(const std::string& file, std::int64_t batch) : PiecesLimit(file, batch) {
    constexpr std::size_t kHeader = 12, kFooter = 4;
    for (std::size_t at = 0; at < bytes().size();) {
      std::uint64_t length = 0;
      std::memcpy(&length, bytes().data() + at, sizeof length);
      add(bytes().substr(at + kHeader, length));
      at += kHeader + length + kFooter;
    }
  }

 private:
  double work(std::string_view piece) const override { return internal::base::crc32c(piece); }
};

class FromCharsLimit final : public PiecesLimit {
 public:
  FromCharsLimit(const std::string& file, std::int64_t batch) : PiecesLimit(file, batch) {
    for (std::size_t at = 0; at < bytes().size();) {
      const std::size_t end = bytes().find('\n', at);
      add(bytes().substr(at, end - at));
      at = end + 1;
    }
  }

 private:
  double work(std::string_view piece) const override {
    const char* at = piece.data();
    const char* end = at + piece.size();
    float sum = 0;
    while (at < end) {
      float value = 0;
      at = std::from_chars(at, end, value).ptr + 1;
      sum += value;
    }
    return sum;
  }
};

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  COHORT_CHECK_STATE(file, "[data_bench] cannot read ", path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::unique_ptr<BatchSource> make_gather_limit(const std::string& folder, std::int64_t batch) {
  return std::make_unique<GatherLimit>(folder, batch);
}
std::unique_ptr<BatchSource> make_crc_limit(const std::string& file, std::int64_t batch) {
  return std::make_unique<CrcLimit>(file, batch);
}
std::unique_ptr<BatchSource> make_from_chars_limit(const std::string& file, std::int64_t batch) {
  return std::make_unique<FromCharsLimit>(file, batch);
}

}  // namespace cohort::bench
