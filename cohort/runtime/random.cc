// SPDX-License-Identifier: Apache-2.0
//
// Key: a mix of seed and operation. Counter, from its lowest bits: block 40, attempt 8, replica 16,
// step 64. Draws take the words of a stream in the order of philox.h.
#include "cohort/runtime/random.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>
#include <type_traits>

#include "cohort/base/check.h"
#include "cohort/runtime/philox.h"
#include "cohort/runtime/process_seed.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"

namespace cohort {
namespace internal::runtime {
namespace {

constexpr uint64_t kRun = 16;  // Groups computed at a time.
constexpr uint32_t kMaxAttempt = 255;

uint32_t low_half(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high_half(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// Spreads any difference over all bits; one to one.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Calls body(words, n, done) with the words [first, first + count) in runs, in order. If first and
// count are multiples of 2 or 4, so is every n.
template <class Body>
void for_words(const RandomStream& stream, uint64_t first, uint64_t count, uint32_t attempt,
               Body body) {
  alignas(64) uint32_t buffer[kRun * kPhiloxGroup];
  uint64_t group = first / kPhiloxGroup;
  uint64_t skip = first % kPhiloxGroup;
  for (uint64_t done = 0; done < count; skip = 0) {
    const uint64_t groups = std::min(kRun, (skip + count - done + kPhiloxGroup - 1) / kPhiloxGroup);
    stream.many_words(group, groups, attempt, buffer);
    const uint64_t n = std::min(groups * kPhiloxGroup - skip, count - done);
    body(buffer + skip, n, done);
    done += n;
    group += groups;
  }
}

uint64_t joined(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

// Words that make a number in [0, 1) of T's precision.
template <class T>
constexpr uint64_t kWordsEach = std::is_same_v<T, float> ? 1 : 2;

template <class T>
T unit(const uint32_t* words) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(words[0] >> 8) * 0x1p-24f;
  } else {
    return static_cast<double>(joined(words[0], words[1]) >> 11) * 0x1p-53;
  }
}

struct Pair {
  double first, second;
};

// Box and Muller's transformation, in double for either T.
template <class T>
Pair normal_pair(const uint32_t* words) {
  double u, angle;  // u in (0, 1].
  if constexpr (std::is_same_v<T, float>) {
    u = (words[0] + 1.0) * 0x1p-32;
    angle = words[1] * 0x1p-32;
  } else {
    u = static_cast<double>((joined(words[0], words[1]) >> 11) + 1) * 0x1p-53;
    angle = unit<double>(words + 2);
  }
  const double radius = std::sqrt(-2 * std::log(u));
  angle *= 2 * std::numbers::pi;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Draw `index` of attempt `attempt`: the same as fill_standard_normal's for attempt 0.
template <class T>
double normal_at(const RandomStream& stream, uint64_t index, uint32_t attempt) {
  constexpr uint64_t kEach = 2 * kWordsEach<T>;
  uint32_t words[kEach];
  for (uint64_t w = 0; w < kEach; ++w) words[w] = stream.word(index / 2 * kEach + w, attempt);
  const Pair pair = normal_pair<T>(words);
  return index % 2 == 0 ? pair.first : pair.second;
}

// Calls use(i, z) for draw first + i.
template <class T, class Use>
void for_normals(const RandomStream& stream, uint64_t first, uint64_t count, Use use) {
  if (count == 0) return;
  constexpr uint64_t kEach = 2 * kWordsEach<T>;
  const uint64_t first_pair = first / 2;
  const uint64_t pairs = (first + count + 1) / 2 - first_pair;
  const uint64_t skip = first % 2;
  for_words(stream, first_pair * kEach, pairs * kEach, 0,
            [&](const uint32_t* words, uint64_t n, uint64_t done) {
              uint64_t draw = done / kEach * 2;
              for (uint64_t w = 0; w < n; w += kEach, draw += 2) {
                const Pair pair = normal_pair<T>(words + w);
                if (draw >= skip) use(draw - skip, pair.first);
                if (draw + 1 - skip < count) use(draw + 1 - skip, pair.second);
              }
            });
}

// Lemire's multiplication: nothing if this word would favour some numbers.
bool below(uint64_t word, uint64_t n, uint64_t& out) {
  const auto product = static_cast<unsigned __int128>(word) * n;
  const auto rest = static_cast<uint64_t>(product);
  if (rest < n && rest < (0 - n) % n) return false;
  out = static_cast<uint64_t>(product >> 64);
  return true;
}

uint64_t below_from(const RandomStream& stream, uint64_t index, uint64_t n, uint32_t attempt) {
  uint64_t out = 0;
  for (; attempt <= kMaxAttempt; ++attempt) {
    const uint64_t word =
        joined(stream.word(2 * index, attempt), stream.word(2 * index + 1, attempt));
    if (below(word, n, out)) break;
  }
  return out;
}

// Writes the keep mask of a multiple of four words and returns their number. Written in vectors,
// because dropout pays for it in every step and g++ at -O2 leaves the plain loop as it is.
uint64_t keep_fours(const uint32_t* words, uint64_t n, uint32_t threshold, float scale,
                    float* out) {
  using Four = uint32_t __attribute__((vector_size(16)));
  const Four limit = Four{} + threshold;
  const Four value = Four{} + std::bit_cast<uint32_t>(scale);
  const uint64_t whole = n / 4 * 4;
  for (uint64_t i = 0; i < whole; i += 4) {
    Four four;
    std::memcpy(&four, words + i, sizeof four);
    four = value & (four >= limit);
    std::memcpy(out + i, &four, sizeof four);
  }
  return whole;
}

}  // namespace

RandomStream::RandomStream(uint64_t operation, uint64_t step, int replica)
    : RandomStream(current_seed(), operation, step, replica) {}

RandomStream::RandomStream(uint64_t seed, uint64_t operation, uint64_t step, int replica)
    : step_(step), replica_(static_cast<uint32_t>(replica + 1)) {
  COHORT_CHECK_ARG(replica >= -1 && replica < 0x7FFF,
                   "[random] expected a replica from -1 to 32766, got ", replica);
  const uint64_t key = mix(mix(seed) ^ operation);
  key_ = {low_half(key), high_half(key)};
}

void RandomStream::put(std::byte* out) const {
  const std::array<uint32_t, 4> first = first_counter();
  std::memcpy(out, key_.data(), sizeof key_);
  std::memcpy(out + sizeof key_, first.data(), sizeof first);
}

RandomStream RandomStream::at(const std::byte* place) {
  RandomStream stream(0, 0, 0, -1);
  stream.place_ = place;
  return stream;
}

std::array<uint32_t, 4> RandomStream::counter(uint64_t block, uint32_t attempt) const {
  return {low_half(block), (high_half(block) & 0xFF) | attempt << 8 | replica_ << 16,
          low_half(step_), high_half(step_)};
}

void RandomStream::many_words(uint64_t group, uint64_t groups, uint32_t attempt,
                              uint32_t* out) const {
  philox_groups(counter(group * kPhiloxLanes, attempt), key_, groups, out);
}

void RandomStream::words(uint64_t group, uint32_t attempt, std::span<uint32_t, 64> out) const {
  many_words(group, 1, attempt, out.data());
}

uint32_t RandomStream::word(uint64_t index, uint32_t attempt) const {
  const uint64_t place = index % kPhiloxGroup;
  const uint64_t block = index / kPhiloxGroup * kPhiloxLanes + place % kPhiloxLanes;
  return philox(counter(block, attempt), key_)[place / kPhiloxLanes];
}

template <class T>
void fill_uniform(const RandomStream& stream, T low, T high, std::span<T> out, uint64_t first) {
  constexpr uint64_t kEach = kWordsEach<T>;
  const T width = high - low;
  const T last = std::nextafter(high, low);  // Rounding must not reach `high`.
  for_words(stream, first * kEach, out.size() * kEach, 0,
            [&](const uint32_t* words, uint64_t n, uint64_t done) {
              T* to = out.data() + done / kEach;
              for (uint64_t i = 0; i < n / kEach; ++i) {
                to[i] = std::min(low + width * unit<T>(words + i * kEach), last);
              }
            });
}

template <class T>
void fill_normal(const RandomStream& stream, T mean, T stddev, std::span<T> out, uint64_t first) {
  for_normals<T>(stream, first, out.size(),
                 [&](uint64_t i, double z) { out[i] = static_cast<T>(mean + stddev * z); });
}

template <class T>
void fill_truncated_normal(const RandomStream& stream, T mean, T stddev, std::span<T> out,
                           uint64_t first) {
  for_normals<T>(stream, first, out.size(), [&](uint64_t i, double z) {
    for (uint32_t attempt = 1; !(std::abs(z) < 2) && attempt <= kMaxAttempt; ++attempt) {
      z = normal_at<T>(stream, first + i, attempt);
    }
    out[i] = static_cast<T>(mean + stddev * z);
  });
}

uint64_t uniform_below(const RandomStream& stream, uint64_t index, uint64_t n) {
  COHORT_CHECK_ARG(n > 0, "[uniform_below] expected n > 0, got 0");
  return below_from(stream, index, n, 0);
}

template <class T>
void fill_keep_mask(const RandomStream& stream, double rate, std::span<T> out, uint64_t first) {
  COHORT_CHECK_ARG(rate >= 0 && rate <= 1, "[fill_keep_mask] expected a rate in [0, 1], got ",
                   rate);
  if (rate == 0 || rate == 1) {
    std::fill(out.begin(), out.end(), static_cast<T>(1 - rate));
    return;
  }
  const auto threshold = static_cast<uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
  const T scale = static_cast<T>(1 / (1 - rate));
  for_words(stream, first, out.size(), 0, [&](const uint32_t* words, uint64_t n, uint64_t done) {
    T* to = out.data() + done;
    uint64_t i = 0;
    if constexpr (std::is_same_v<T, float>) i = keep_fours(words, n, threshold, scale, to);
    for (; i < n; ++i) to[i] = words[i] < threshold ? T{0} : scale;
  });
}

std::vector<int64_t> random_permutation(const RandomStream& stream, int64_t n) {
  std::vector<int64_t> order(static_cast<std::size_t>(std::max<int64_t>(n, 0)));
  std::iota(order.begin(), order.end(), 0);
  for_words(stream, 0, order.size() * 2, 0,
            [&](const uint32_t* words, uint64_t count, uint64_t done) {
              for (uint64_t w = 0; w < count; w += 2) {
                const uint64_t i = (done + w) / 2;
                uint64_t other = 0;  // Among the first i + 1.
                if (!below(joined(words[w], words[w + 1]), i + 1, other)) {
                  other = below_from(stream, i, i + 1, 1);
                }
                std::swap(order[i], order[other]);
              }
            });
  return order;
}

#define COHORT_INSTANTIATE(T)                                                                \
  template void fill_uniform<T>(const RandomStream&, T, T, std::span<T>, uint64_t);          \
  template void fill_normal<T>(const RandomStream&, T, T, std::span<T>, uint64_t);           \
  template void fill_truncated_normal<T>(const RandomStream&, T, T, std::span<T>, uint64_t); \
  template void fill_keep_mask<T>(const RandomStream&, double, std::span<T>, uint64_t);
COHORT_INSTANTIATE(float)
COHORT_INSTANTIATE(double)
#undef COHORT_INSTANTIATE

// ---- the process's seed ----

namespace {

// Draws without an operation of their own (random_normal) share one, and count their steps per
// replica: a replica's program is sequential, so its steps do not depend on the others.
constexpr uint64_t kUnnumbered = ~uint64_t{0};
constexpr int kMaxReplicas = 1024;

constinit std::atomic<bool> g_seed_set{false};
constinit std::atomic<uint64_t> g_seed{0};
constinit std::atomic<uint64_t> g_operations{0};
constinit std::atomic<uint64_t> g_seeds_set{0};  // calls of set_seed
constinit std::atomic<uint64_t> g_steps[kMaxReplicas + 1] = {};

uint64_t seed_of_process() {
  static const uint64_t seed = [] {
    std::random_device device;
    return joined(device(), device());
  }();
  return seed;
}

}  // namespace

// ---- draws of steps ----

namespace {

constinit std::atomic<NoteDraw> g_note_draw{nullptr};

// Of g_steps.
class ProcessDraws final : public DrawCounts {
 public:
  void take_back(int replica, uint64_t first, uint64_t draws) override {
    uint64_t now = first + draws;
    g_steps[replica + 1].compare_exchange_strong(now, first, std::memory_order_relaxed);
  }
};

// A handle that owns nothing: the process and strategies outlive their steps.
std::shared_ptr<DrawCounts> unowned(DrawCounts& counts) {
  return {std::shared_ptr<DrawCounts>(), &counts};
}

uint64_t next_step(int replica) {
  refuse_recording("it draws random numbers on the host");
  if (RandomSeeds* seeds = current_context().seeds) {
    const uint64_t step = seeds->next_step(replica);
    note_draw(unowned(*seeds), replica, step);
    return step;
  }
  COHORT_CHECK_ARG(replica < kMaxReplicas, "[random] expected at most ", kMaxReplicas,
                   " replicas, got replica ", replica);
  const uint64_t step = g_steps[replica + 1].fetch_add(1, std::memory_order_relaxed);
  static ProcessDraws draws;
  note_draw(unowned(draws), replica, step);
  return step;
}

RandomStream unnumbered_stream() {
  return RandomStream(kUnnumbered, next_step(current_replica()), current_global_replica());
}

template <class Fill>
Tensor filled(const char* operation, const Shape& shape, DType dtype, Fill fill) {
  COHORT_CHECK_ARG(c10::isFloatingType(dtype), "[", operation, "] expected a floating dtype, got ",
                   dtype_name(dtype));
  Tensor out = empty(shape, dtype == kFloat64 ? kFloat64 : kFloat32);
  const auto n = static_cast<std::size_t>(out.numel());
  if (dtype == kFloat64) {
    fill(std::span(static_cast<double*>(out.data_ptr()), n));
  } else {
    fill(std::span(static_cast<float*>(out.data_ptr()), n));
  }
  return out.scalar_type() == dtype ? out : out.to(dtype);
}

}  // namespace

void note_draws_by(NoteDraw note) { g_note_draw.store(note, std::memory_order_release); }

void note_draw(const std::shared_ptr<DrawCounts>& counts, int replica, uint64_t draw) {
  variables::StepUndo* const step = current_context().undo;
  if (step == nullptr) return;
  if (const NoteDraw note = g_note_draw.load(std::memory_order_acquire)) {
    note(*step, counts, replica, draw);
  }
}

bool has_process_seed() { return g_seed_set.load(std::memory_order_acquire); }

uint64_t current_seed() {
  if (!g_seed_set.load(std::memory_order_acquire)) return seed_of_process();
  return g_seed.load(std::memory_order_relaxed);
}

uint64_t next_operation_number() {
  if (RandomSeeds* seeds = current_context().seeds) return seeds->next_operation();
  return g_operations.fetch_add(1, std::memory_order_relaxed);
}

void RandomSeeds::begin_anew_after_set_seed() {
  const uint64_t set = g_seeds_set.load(std::memory_order_acquire);
  if (seen_ == set) return;
  seen_ = set;
  operations_ = 0;
  std::fill(steps_.begin(), steps_.end(), 0);
}

uint64_t RandomSeeds::next_operation() {
  const base::MutexLock lock(mutex_);
  begin_anew_after_set_seed();
  return operations_++;
}

uint64_t RandomSeeds::next_step(int replica) {
  const base::MutexLock lock(mutex_);
  begin_anew_after_set_seed();
  return steps_.at(static_cast<std::size_t>(replica) + 1)++;
}

void RandomSeeds::take_back(int replica, uint64_t first, uint64_t draws) {
  const base::MutexLock lock(mutex_);
  begin_anew_after_set_seed();
  uint64_t& next = steps_.at(static_cast<std::size_t>(replica) + 1);
  if (next == first + draws) next = first;
}

std::vector<uint64_t> RandomSeeds::numbers() {
  const base::MutexLock lock(mutex_);
  begin_anew_after_set_seed();
  std::vector<uint64_t> out = {operations_};
  out.insert(out.end(), steps_.begin(), steps_.end());
  return out;
}

void RandomSeeds::set_numbers(std::span<const uint64_t> numbers) {
  const base::MutexLock lock(mutex_);
  begin_anew_after_set_seed();
  if (numbers.size() != steps_.size() + 1) return;
  operations_ = numbers[0];
  std::copy(numbers.begin() + 1, numbers.end(), steps_.begin());
}

// Seed, operations, the number of steps, steps up to the last that was drawn in; then those of the
// strategy.
std::string save_random_numbers() {
  std::vector<uint64_t> steps;
  for (const auto& step : g_steps) steps.push_back(step.load(std::memory_order_relaxed));
  while (!steps.empty() && steps.back() == 0) steps.pop_back();
  std::vector<uint64_t> all = {current_seed(), g_operations.load(), steps.size()};
  all.insert(all.end(), steps.begin(), steps.end());
  if (RandomSeeds* seeds = current_context().seeds) {
    const std::vector<uint64_t> own = seeds->numbers();
    all.insert(all.end(), own.begin(), own.end());
  }
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(uint64_t)};
}

void restore_random_numbers(std::string_view state) {
  std::vector<uint64_t> all(state.size() / sizeof(uint64_t));
  std::memcpy(all.data(), state.data(), all.size() * sizeof(uint64_t));
  COHORT_CHECK_ARG(all.size() >= 3 && all[2] <= all.size() - 3 && all[2] <= std::size(g_steps),
                   "[random] expected a saved state of random numbers, got ", state.size(),
                   " bytes that are damaged or something else's");
  g_seed.store(all[0], std::memory_order_relaxed);
  g_seed_set.store(true, std::memory_order_release);
  g_operations.store(all[1], std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::size(g_steps); ++i) {
    g_steps[i].store(i < all[2] ? all[3 + i] : 0, std::memory_order_relaxed);
  }
  if (RandomSeeds* seeds = current_context().seeds) {
    seeds->set_numbers(std::span<const uint64_t>(all).subspan(3 + all[2]));
  }
}

}  // namespace internal::runtime

void set_seed(uint64_t seed) {
  internal::runtime::g_seed.store(seed, std::memory_order_relaxed);
  internal::runtime::g_seed_set.store(true, std::memory_order_release);
  internal::runtime::g_operations.store(0, std::memory_order_relaxed);
  for (auto& step : internal::runtime::g_steps) step.store(0, std::memory_order_relaxed);
  internal::runtime::g_seeds_set.fetch_add(1, std::memory_order_release);
}

Tensor random_normal(const Shape& shape, DType dtype) {
  return internal::runtime::filled("random_normal", shape, dtype, [](auto out) {
    using T = typename decltype(out)::element_type;
    internal::runtime::fill_normal<T>(internal::runtime::unnumbered_stream(), T{0}, T{1}, out);
  });
}

Tensor random_uniform(const Shape& shape, DType dtype) {
  return internal::runtime::filled("random_uniform", shape, dtype, [](auto out) {
    using T = typename decltype(out)::element_type;
    internal::runtime::fill_uniform<T>(internal::runtime::unnumbered_stream(), T{0}, T{1}, out);
  });
}

}  // namespace cohort
