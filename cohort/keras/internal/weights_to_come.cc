// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/weights_to_come.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "cohort/base/check.h"

namespace cohort::keras::internal {
namespace {
thread_local WeightsToCome* t_weights_to_come = nullptr;
constexpr uint64_t kMostWidening = 8;
constexpr uint64_t kLeastBesides = uint64_t{256} << 20;
constexpr uint64_t kUnset = UINT64_MAX;
std::atomic<uint64_t> g_most_besides{kUnset};

// 0: not known.
uint64_t number_in(const char* path, std::string_view name = {}) {
  std::ifstream file(path);
  std::string word;
  while (!name.empty() && file >> word && word != name) {
  }
  uint64_t number = 0;
  return file >> number ? number : 0;
}

// What the system could give this process, a container's limit included.
uint64_t free_memory() {
  const uint64_t free = number_in("/proc/meminfo", "MemAvailable:") * 1024;
  const uint64_t most = number_in("/sys/fs/cgroup/memory.max");
  const uint64_t taken = number_in("/sys/fs/cgroup/memory.current");
  return most == 0 ? free : std::min(free, most - std::min(most, taken));
}
}  // namespace

uint64_t WeightsToCome::most_besides() {
  const uint64_t set = g_most_besides;
  return set != kUnset ? set : std::max(kLeastBesides, free_memory() / 2);
}

void WeightsToCome::set_most_besides(std::optional<uint64_t> bytes) {
  g_most_besides = bytes.value_or(kUnset);
}

// Values may be wider in the model than in the file.
WeightsToCome::WeightsToCome(bool come, uint64_t bytes, uint64_t besides)
    : outer_(std::exchange(t_weights_to_come, come ? this : nullptr)),
      most_(bytes > (kAny - besides) / kMostWidening ? kAny : kMostWidening * bytes + besides) {}
WeightsToCome::~WeightsToCome() { t_weights_to_come = outer_; }

WeightsToCome* WeightsToCome::here() { return t_weights_to_come; }

void WeightsToCome::expect(const std::string& name, const Shape& shape, DType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) bytes = kAny;
  }
  if (__builtin_add_overflow(expected_, bytes, &expected_)) expected_ = kAny;
  COHORT_CHECK_ARG(expected_ <= most_, "expected a model whose weights are in the file, got ", name,
                   " of shape ", bracketed(shape), ", for which the file is too small, and ", most_,
                   " bytes are all that may be taken: half of the memory that is free, and 8 times "
                   "what the file has");
}

void WeightsToCome::add(const Variable& variable, std::function<void()> draw) {
  weights_.emplace_back(variable, std::move(draw));
}

void WeightsToCome::draw_all_but(std::span<const Variable> filled) const {
  std::set<const void*> known;
  for (const Variable& v : filled) known.insert(&v.impl());
  for (const auto& [variable, draw] : weights_) {
    if (!known.contains(&variable.impl())) draw();
  }
}

}  // namespace cohort::keras::internal
