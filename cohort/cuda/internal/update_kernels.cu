// SPDX-License-Identifier: Apache-2.0
//
// Compiled without contraction into fused multiply-adds: the bits are those of
// a CPU that has none. (A pass over device memory waits for the memory.)
#include "cohort/cuda/internal/update_kernels.h"

#include "cohort/cuda/internal/elements.cuh"

namespace cohort::internal::cuda {
namespace {

namespace formulas {
__device__ inline float root(float x) { return sqrtf(x); }
__device__ inline double root(double x) { return sqrt(x); }
__device__ inline float power(float x, float y) { return powf(x, y); }
__device__ inline double power(double x, double y) { return pow(x, y); }
#define COHORT_RULE_FUNCTION __device__
#include "cohort/update_rules/internal/rule_formulas.inc"
#undef COHORT_RULE_FUNCTION
}  // namespace formulas

using update_rules::internal::RuleKind;

// What is done to a gradient and a parameter around the rule.
template <class T>
struct Around {
  T scale, limit, decay;
  bool adjusts, decays;

  explicit Around(const UpdateLaunch& update)
      : scale(T(update.gradient_scale)),
        limit(T(update.clip_value)),
        decay(T(update.weight_decay)),
        adjusts(update.gradient_scale != 1 || update.clip_value != __builtin_huge_val()),
        decays(update.weight_decay != 0) {}

  template <class R>
  __device__ void apply(const R& rule, T& p, T& s0, T& s1, T& s2, T g) const {
    if (adjusts) g = formulas::clamp(g * scale, -limit, limit);
    if (decays) p -= p * decay;
    rule(p, s0, s1, s2, g);
  }
};

template <class T>
struct Arrays {
  T* to[4];
  const T* from[4];

  explicit Arrays(const UpdateLaunch& update) {
    for (int a = 0; a < 4; ++a) {
      to[a] = static_cast<T*>(update.to[a]);
      from[a] = static_cast<const T*>(update.from[a]);
    }
  }
};

template <class T>
struct Sources {
  const T* at[kMostSources];
  int count;

  template <class Launch>
  explicit Sources(const Launch& launch) : count(static_cast<int>(launch.source_count)) {
    for (int s = 0; s < count; ++s) at[s] = static_cast<const T*>(launch.sources[s]);
  }
};

// Array 0 is the parameters, the others are slots.
template <class R, unsigned kArray>
constexpr bool kHas = (R::kSlots << 1 & 1u << kArray) != 0;

// The element at `i` of the arrays with gradient g.
template <class T, class R>
__device__ void update_one(const R& rule, const Around<T>& around, const Arrays<T>& arrays,
                           std::size_t i, T g) {
  T p = arrays.from[0][i], a = {}, b = {}, c = {};
  if constexpr (kHas<R, 1>) a = arrays.from[1][i];
  if constexpr (kHas<R, 2>) b = arrays.from[2][i];
  if constexpr (kHas<R, 3>) c = arrays.from[3][i];
  around.apply(rule, p, a, b, c, g);
  arrays.to[0][i] = p;
  if constexpr (kHas<R, 1>) arrays.to[1][i] = a;
  if constexpr (kHas<R, 2>) arrays.to[2][i] = b;
  if constexpr (kHas<R, 3>) arrays.to[3][i] = c;
}

// The vector that begins at element `i`.
template <class T, class R>
__device__ void update_vector(const R& rule, const Around<T>& around, const Arrays<T>& arrays,
                              std::size_t i, const Vector<T>& g) {
  Vector<T> p = load(arrays.from[0] + i), a = {}, b = {}, c = {};
  if constexpr (kHas<R, 1>) a = load(arrays.from[1] + i);
  if constexpr (kHas<R, 2>) b = load(arrays.from[2] + i);
  if constexpr (kHas<R, 3>) c = load(arrays.from[3] + i);
#pragma unroll
  for (std::size_t k = 0; k < kLanes<T>; ++k) {
    around.apply(rule, p.lane[k], a.lane[k], b.lane[k], c.lane[k], g.lane[k]);
  }
  store(arrays.to[0] + i, p);
  if constexpr (kHas<R, 1>) store(arrays.to[1] + i, a);
  if constexpr (kHas<R, 2>) store(arrays.to[2] + i, b);
  if constexpr (kHas<R, 3>) store(arrays.to[3] + i, c);
}

template <class T>
__device__ T sum_at(const Sources<T>& sources, std::size_t i) {
  T g = sources.at[0][i];
  for (int s = 1; s < sources.count; ++s) g += sources.at[s][i];
  return g;
}

template <class T>
__device__ Vector<T> sum_of_vectors(const Sources<T>& sources, std::size_t i) {
  Vector<T> g = load(sources.at[0] + i);
  for (int s = 1; s < sources.count; ++s) {
    const Vector<T> more = load(sources.at[s] + i);
#pragma unroll
    for (std::size_t k = 0; k < kLanes<T>; ++k) g.lane[k] += more.lane[k];
  }
  return g;
}

template <class T, class R>
__device__ void update_cut(const R& rule, const Around<T>& around, const Arrays<T>& arrays,
                           const Sources<T>& sources, const Cut& cut) {
  const std::size_t stride = threads_of_grid();
  for (std::size_t v = thread_of_grid(); v < cut.vectors; v += stride) {
    const std::size_t i = cut.aligned + v * kLanes<T>;
    update_vector(rule, around, arrays, i, sum_of_vectors(sources, i));
  }
  for (std::size_t r = thread_of_grid(); r < cut.rest(); r += stride) {
    const std::size_t i = cut.outside(r);
    update_one(rule, around, arrays, i, sum_at(sources, i));
  }
}

template <class T, class R>
__global__ void __launch_bounds__(kThreads)
    update_elements(const __grid_constant__ R rule, const __grid_constant__ Around<T> around,
                    const __grid_constant__ Arrays<T> arrays,
                    const __grid_constant__ Sources<T> sources, const __grid_constant__ Cut cut) {
  update_cut(rule, around, arrays, sources, cut);
}

template <class T, class R>
struct WrittenRule {
  R rule;
  Around<T> around;
};

// The numbers of a step that is recorded are in memory: its launches are the
// same in every step.
template <class T, class R>
__global__ void __launch_bounds__(kThreads)
    update_elements_by(const WrittenRule<T, R>* written, const __grid_constant__ Arrays<T> arrays,
                       const __grid_constant__ Sources<T> sources,
                       const __grid_constant__ Cut cut) {
  const WrittenRule<T, R> now = *written;
  update_cut(now.rule, now.around, arrays, sources, cut);
}

// Which rows, and how threads share them: 1 << shift threads to a row.
struct RowsOfTable {
  const std::int64_t* numbers;
  std::int64_t few[kFewRows];
  std::size_t count;
  std::size_t width;
  unsigned shift;
  bool in_vectors;
};

template <class T, class R>
__global__ void __launch_bounds__(kThreads)
    update_table_rows(const __grid_constant__ R rule, const __grid_constant__ Around<T> around,
                      const __grid_constant__ Arrays<T> arrays, const T* gradients,
                      const __grid_constant__ RowsOfTable rows) {
  const std::size_t team = std::size_t{1} << rows.shift;
  const std::size_t me = thread_of_grid() & (team - 1);
  const std::size_t teams = threads_of_grid() >> rows.shift;
  for (std::size_t r = thread_of_grid() >> rows.shift; r < rows.count; r += teams) {
    const std::int64_t row = rows.numbers != nullptr ? rows.numbers[r] : rows.few[r];
    const T* const g = gradients + r * rows.width;
    const std::size_t begin = static_cast<std::size_t>(row) * rows.width;
    if (rows.in_vectors) {
      for (std::size_t j = me * kLanes<T>; j < rows.width; j += team * kLanes<T>) {
        update_vector(rule, around, arrays, begin + j, load(g + j));
      }
    } else {
      for (std::size_t j = me; j < rows.width; j += team) {
        update_one(rule, around, arrays, begin + j, g[j]);
      }
    }
  }
}

// Calls `start` with the rule that the call names.
template <class T, class Start>
void with_rule(const UpdateLaunch& update, Start start) {
  const double* const c = update.coefficients;
  switch (update.kind) {
    case RuleKind::kSgd:
      return start(formulas::Sgd<T>(c));
    case RuleKind::kMomentum:
      return start(formulas::Momentum<T, false>(c));
    case RuleKind::kNesterov:
      return start(formulas::Momentum<T, true>(c));
    case RuleKind::kAdam:
      return start(formulas::Adam<T, false>(c));
    case RuleKind::kAmsgrad:
      return start(formulas::Adam<T, true>(c));
    case RuleKind::kRmsprop:
      return start(formulas::Rmsprop<T, false, false>(c));
    case RuleKind::kRmspropMomentum:
      return start(formulas::Rmsprop<T, false, true>(c));
    case RuleKind::kRmspropCentered:
      return start(formulas::Rmsprop<T, true, false>(c));
    case RuleKind::kRmspropCenteredMomentum:
      return start(formulas::Rmsprop<T, true, true>(c));
    case RuleKind::kAdagrad:
      return start(formulas::Adagrad<T>(c));
    case RuleKind::kAdadelta:
      return start(formulas::Adadelta<T>(c));
    case RuleKind::kAdamax:
      return start(formulas::Adamax<T>(c));
    case RuleKind::kNadam:
      return start(formulas::Nadam<T>(c));
    case RuleKind::kFtrl:
      return start(formulas::Ftrl<T, true>(c));
    case RuleKind::kFtrlPower:
      return start(formulas::Ftrl<T, false>(c));
    case RuleKind::kLion:
      return start(formulas::Lion<T>(c));
  }
}

void add_arrays(const UpdateLaunch& update, Alignment& alignment) {
  for (int a = 0; a < 4; ++a) {
    if (update.to[a] == nullptr) continue;
    alignment.add(update.to[a]);
    alignment.add(update.from[a]);
  }
}

template <class T>
void start_update(const UpdateLaunch& update, cudaStream_t stream) {
  Alignment alignment(sizeof(T), update.begin);
  add_arrays(update, alignment);
  for (std::size_t s = 0; s < update.source_count; ++s) alignment.add(update.sources[s]);
  const Cut cut = alignment.cut(update.end);
  with_rule<T>(update, [&]<class R>(const R& rule) {
    if (update.rule_at != nullptr) {
      update_elements_by<T, R><<<blocks_for(cut), kThreads, 0, stream>>>(
          reinterpret_cast<const WrittenRule<T, R>*>(update.rule_at), Arrays<T>(update),
          Sources<T>(update), cut);
    } else {
      update_elements<T><<<blocks_for(cut), kThreads, 0, stream>>>(
          rule, Around<T>(update), Arrays<T>(update), Sources<T>(update), cut);
    }
  });
}

template <class T>
void write_rule_of(const UpdateLaunch& update, std::byte* out) {
  with_rule<T>(update, [&]<class R>(const R& rule) {
    static_assert(sizeof(WrittenRule<T, R>) <= kRuleBytes && alignof(WrittenRule<T, R>) <= 16);
    const WrittenRule<T, R> written{rule, Around<T>(update)};
    __builtin_memcpy(out, &written, sizeof written);
  });
}

template <class T>
void start_update_rows(const RowsLaunch& call, cudaStream_t stream) {
  const UpdateLaunch& update = call.table;
  Alignment alignment(sizeof(T), 0);
  add_arrays(update, alignment);
  alignment.add(update.sources[0]);
  const Cut first = alignment.cut(call.width);
  RowsOfTable rows{call.numbers, {}, call.count, call.width, 0, false};
  if (call.numbers == nullptr) {
    for (std::size_t i = 0; i < call.count; ++i) rows.few[i] = call.few[i];
  }
  rows.in_vectors = first.vectors > 0 && first.rest() == 0;  // whole vectors, the first at 0
  const std::size_t items = rows.in_vectors ? first.vectors : call.width;
  while ((std::size_t{1} << rows.shift) < items && (1u << rows.shift) < kThreads) ++rows.shift;
  with_rule<T>(update, [&](const auto& rule) {
    update_table_rows<T><<<blocks_for(call.count << rows.shift), kThreads, 0, stream>>>(
        rule, Around<T>(update), Arrays<T>(update), static_cast<const T*>(update.sources[0]), rows);
  });
}

constexpr std::size_t kBlock = 4096;  // update_rules::kSquareSumBlock
constexpr std::size_t kChunk = 1024;  // what the CPU's kernel sums at a time, of several sources
constexpr int kPartials = 8;

// One block of threads to a block of elements: they sum the sources into shared
// memory, and a few of them add squares in the CPU's order: eight partial sums
// of all of one source, or of each chunk of several.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const __grid_constant__ Sources<T> sources, std::size_t begin, std::size_t end,
                double* out) {
  __shared__ T values[kBlock];
  __shared__ double partials[kBlock / kChunk][kPartials];
  const std::size_t blocks = (end - begin + kBlock - 1) / kBlock;
  for (std::size_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::size_t first = begin + block * kBlock;
    const std::size_t n = end - first < kBlock ? end - first : kBlock;
#pragma unroll 4
    for (std::size_t i = threadIdx.x; i < kBlock; i += kThreads) {
      values[i] = i < n ? sum_at(sources, first + i) : T(0);
    }
    __syncthreads();
    const std::size_t chunk = sources.count == 1 ? kBlock : kChunk;
    const int sums = static_cast<int>(kBlock / chunk) * kPartials;
    if (static_cast<int>(threadIdx.x) < sums) {
      const std::size_t from = threadIdx.x / kPartials * chunk;
      double sum = 0;
#pragma unroll 8
      for (std::size_t i = threadIdx.x % kPartials; i < chunk; i += kPartials) {
        const double x = static_cast<double>(values[from + i]);
        sum += x * x;
      }
      partials[threadIdx.x / kPartials][threadIdx.x % kPartials] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double total = 0;
      for (int c = 0; c < sums / kPartials; ++c) {
        const double* const s = partials[c];
        const double of_chunk = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
        total = c == 0 ? of_chunk : total + of_chunk;
      }
      out[block] = total;
    }
    __syncthreads();  // before the next block of elements comes
  }
}

template <class T>
void start_squares(const SquaresLaunch& call, cudaStream_t stream) {
  const std::size_t blocks = (call.end - call.begin + kBlock - 1) / kBlock;
  sum_squares<T><<<blocks_for(blocks * kThreads), kThreads, 0, stream>>>(
      Sources<T>(call), call.begin, call.end, call.out);
}

}  // namespace

cudaError_t launch_update(const UpdateLaunch& update, cudaStream_t stream) {
  if (update.begin >= update.end) return cudaSuccess;
  update.is_double ? start_update<double>(update, stream) : start_update<float>(update, stream);
  return cudaGetLastError();
}

void write_rule(const UpdateLaunch& update, std::byte* out) {
  update.is_double ? write_rule_of<double>(update, out) : write_rule_of<float>(update, out);
}

cudaError_t launch_update_rows(const RowsLaunch& rows, cudaStream_t stream) {
  if (rows.count == 0 || rows.width == 0) return cudaSuccess;
  rows.table.is_double ? start_update_rows<double>(rows, stream)
                       : start_update_rows<float>(rows, stream);
  return cudaGetLastError();
}

cudaError_t launch_squares(const SquaresLaunch& squares, cudaStream_t stream) {
  if (squares.begin >= squares.end) return cudaSuccess;
  squares.is_double ? start_squares<double>(squares, stream)
                    : start_squares<float>(squares, stream);
  return cudaGetLastError();
}

}  // namespace cohort::internal::cuda
