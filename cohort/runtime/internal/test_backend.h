// SPDX-License-Identifier: Apache-2.0
//
// For tests: GPUs whose memory is the CPU's. LibTorch takes their tensors for CPU ones, so that
// everything works on them, and what asks a device's backend can be told from what does not.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::runtime {

/// What happened, in order: "reserve GPU:0", "use GPU:0", "copy GPU:0 to GPU:1"...
class BackendLog {
 public:
  void add(std::string text) {
    const base::MutexLock lock(mutex_);
    lines_.push_back(std::move(text));
  }
  /// How many lines begin with `text`.
  int count(const std::string& text) const {
    const base::MutexLock lock(mutex_);
    int found = 0;
    for (const std::string& line : lines_) found += line.starts_with(text) ? 1 : 0;
    return found;
  }
  std::vector<std::string> take() {
    const base::MutexLock lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  mutable base::Mutex mutex_;
  std::vector<std::string> lines_ COHORT_GUARDED_BY(mutex_);
};

/// The backend of all GPUs while it lives.
class TestBackend final : public DeviceBackend {
 public:
  explicit TestBackend(int gpus = 8)
      : gpus_(gpus), before_(exchange_device_backend(c10::kCUDA, this)) {}
  ~TestBackend() override { exchange_device_backend(c10::kCUDA, before_); }

  BackendLog& log() { return *log_; }

  int count() const override { return gpus_; }
  void split(int, std::span<const int64_t>) override {}
  c10::Device place(const Device&) const override { return c10::kCPU; }
  std::unique_ptr<Region> reserve(const Device& device, std::size_t bytes) override {
    log_->add("reserve " + device.short_name());
    return std::make_unique<Memory>(device.short_name(), bytes, log_);
  }
  std::size_t reservable(const Device&) const override { return std::size_t{1} << 30; }
  Tensor view(const Device& device, std::byte* data, const Shape& shape, DType dtype,
              std::function<void(void*)> release) override {
    log_->add("view " + device.short_name());
    return device_backend(host_device())
        .view(host_device(), data, shape, dtype, std::move(release));
  }
  Tensor upload(const Device& device, const Tensor& host) override {
    log_->add("upload " + device.short_name());
    return host.clone();
  }
  void copy(const Device& to, std::byte* destination, const Device& from, const std::byte* source,
            std::size_t bytes) override {
    log_->add(str_cat("copy ", from.short_name(), " to ", to.short_name()));
    std::memcpy(destination, source, bytes);
  }
  std::unique_ptr<DeviceGuard> guard(const Device& device) override {
    return std::make_unique<Guard>(device.short_name(), log_);
  }
  bool is_asynchronous() const override { return true; }
  void publish(const Device& device) override { log_->add("publish " + device.short_name()); }
  void await(const Device& device) override { log_->add("await " + device.short_name()); }

 private:
  class Memory final : public Region {
   public:
    Memory(std::string device, std::size_t bytes, std::shared_ptr<BackendLog> log)
        : Region(static_cast<std::byte*>(std::calloc(bytes, 1)), bytes),
          device_(std::move(device)),
          log_(std::move(log)) {}
    ~Memory() override { std::free(data()); }
    void use(std::size_t, std::size_t) override { log_->add("use " + device_); }
    void clear(std::size_t offset, std::size_t bytes) override {
      log_->add("clear " + device_);
      std::memset(data() + offset, 0, bytes);
    }

   private:
    const std::string device_;
    const std::shared_ptr<BackendLog> log_;
  };
  class Guard final : public DeviceGuard {
   public:
    Guard(std::string device, std::shared_ptr<BackendLog> log)
        : device_(std::move(device)), log_(std::move(log)) {
      log_->add("enter " + device_);
    }
    ~Guard() override { log_->add("leave " + device_); }

   private:
    const std::string device_;
    const std::shared_ptr<BackendLog> log_;
  };

  const std::shared_ptr<BackendLog> log_ = std::make_shared<BackendLog>();
  const int gpus_;
  DeviceBackend* const before_;
};

}  // namespace cohort::internal::runtime
