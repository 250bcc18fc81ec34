// SPDX-License-Identifier: Apache-2.0
//
// Updates on a GPU beside those of the CPU's baseline kernels, which have no fused multiply-adds.
#include <array>
#include <span>
#include <tuple>

#include "cohort/base/cpu.h"
#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/update_kernels.h"
#include "tests/gpu/kernels_test.h"

namespace cohort {
namespace {

using internal::base::Isa;
using internal::variables::RangeUpdate;
using internal::variables::RowsUpdate;
using internal::variables::UpdateKernels;
using update_rules::Rule;
using update_rules::UpdateOptions;

struct NamedRule {
  const char* name;
  Rule rule;
  double tolerance = 0;
};

const std::vector<NamedRule>& every_rule() {
  using namespace update_rules;
  static const std::vector<NamedRule> rules = {
      {"Sgd", SgdStep{}},
      {"Momentum", MomentumStep{}},
      {"Nesterov", MomentumStep{.nesterov = true}},
      {"Adam", AdamStep{}},
      {"Amsgrad", AdamStep{.amsgrad = true}},
      {"Rmsprop", RmspropStep{}},
      {"RmspropMomentum", RmspropStep{.momentum = 0.9}},
      {"RmspropCentered", RmspropStep{.epsilon = 20, .centered = true}},
      {"RmspropCenteredMomentum", RmspropStep{.momentum = 0.5, .epsilon = 20, .centered = true}},
      {"Adagrad", AdagradStep{}},
      {"Adadelta", AdadeltaStep{}},
      {"Adamax", AdamaxStep{}},
      {"Nadam", NadamStep{.momentum_scale = 0.01, .gradient_scale = 0.02}},
      {"Ftrl", FtrlStep{}},
      // The mathematical libraries' powers differ in their last bits.
      {"FtrlPower", FtrlStep{.learning_rate_power = -0.7, .l1 = 0.1}, 1e-3},
      {"Lion", LionStep{}}};
  return rules;
}

// Parameters and three slots.
using Arenas = std::array<Tensor, 4>;

Arenas arenas(int64_t n, DType dtype) {
  return {normal_numbers(n, dtype, 1), normal_numbers(n, dtype, 2, true),
          normal_numbers(n, dtype, 3, true), normal_numbers(n, dtype, 4, true)};
}

Arenas copies(const Arenas& of) {
  return {of[0].clone(), of[1].clone(), of[2].clone(), of[3].clone()};
}

template <class T>
update_rules::Target<T> target_of(const Arenas& arenas) {
  return {.param = arenas[0].mutable_data_ptr<T>(),
          .slots = {arenas[1].mutable_data_ptr<T>(), arenas[2].mutable_data_ptr<T>(),
                    arenas[3].mutable_data_ptr<T>()}};
}

std::byte* bytes_of(const Tensor& x) { return static_cast<std::byte*>(x.mutable_data_ptr()); }

template <class Update>
void set_arenas(const Arenas& arenas, Update& update) {
  update.dtype = arenas[0].scalar_type();
  update.parameters = bytes_of(arenas[0]);
  for (std::size_t s = 0; s < 3; ++s) update.slots[s] = bytes_of(arenas[s + 1]);
}

// How one comparison differs from the plain one.
struct Variation {
  const char* name;
  std::size_t begin = 0;
  std::size_t end = 10007;
  int sources = 1;
  UpdateOptions how = {};
  int64_t arena_shift = 0;   // elements that the GPU's arenas lie off 16 bytes
  int64_t source_shift = 0;  // and the gradients
};

constexpr int64_t kSize = 10007;

const std::vector<Variation>& variations() {
  static const std::vector<Variation> all = {
      {.name = "one source"},
      {.name = "two sources", .begin = 3, .end = 5001, .sources = 2},
      {.name = "three sources, scaled, clipped, decayed",
       .begin = 16,
       .sources = 3,
       .how = {.gradient_scale = 0.3, .clip_value = 0.5, .weight_decay = 1e-2}},
      {.name = "one element", .begin = 5, .end = 6},
      {.name = "arenas off 16 bytes", .begin = 1, .arena_shift = 1, .source_shift = 1},
      {.name = "gradients off the arenas", .end = 9999, .sources = 2, .source_shift = 1}};
  return all;
}

class UpdateKernelsTest : public GpuKernels,
                          public ::testing::WithParamInterface<std::tuple<int, DType>> {
 protected:
  void SetUp() override {
    GpuKernels::SetUp();
    internal::base::use_isa(Isa::kBase);
  }
  void TearDown() override {
    internal::base::use_isa(internal::base::best_isa());
    GpuKernels::TearDown();
  }
  const NamedRule& named() const {
    return every_rule()[static_cast<std::size_t>(std::get<0>(GetParam()))];
  }
  DType dtype() const { return std::get<1>(GetParam()); }
  UpdateKernels& kernels() const { return internal::variables::update_kernels(device_); }

  Arenas gpu_arenas(const Arenas& of, int64_t shift = 0) const {
    return {on_gpu_shifted(of[0], shift), on_gpu_shifted(of[1], shift),
            on_gpu_shifted(of[2], shift), on_gpu_shifted(of[3], shift)};
  }
  void expect_same_arenas(const Arenas& gpu, const Arenas& cpu, const std::string& what) const {
    static constexpr const char* kNames[] = {" parameters", " slot 0", " slot 1", " slot 2"};
    for (std::size_t a = 0; a < 4; ++a) {
      expect_same(gpu[a], cpu[a], named().tolerance, str_cat(named().name, ", ", what, kNames[a]));
    }
  }
  // The same call for float or double.
  template <class F>
  void typed(F&& f) const {
    dtype() == kFloat32 ? f.template operator()<float>() : f.template operator()<double>();
  }
};

TEST_P(UpdateKernelsTest, HasTheCpusNumbers) {
  for (const Variation& v : variations()) {
    const Arenas before = arenas(kSize, dtype());
    const Arenas gpu = gpu_arenas(before, v.arena_shift), cpu = copies(before);
    std::vector<Tensor> gradients, gpu_gradients;
    std::vector<const std::byte*> sources;
    for (int s = 0; s < v.sources; ++s) {
      gradients.push_back(normal_numbers(kSize, dtype(), 10 + static_cast<unsigned>(s)));
      gpu_gradients.push_back(on_gpu_shifted(gradients.back(), v.source_shift));
      sources.push_back(bytes_of(gpu_gradients.back()));
    }
    RangeUpdate range;
    set_arenas(gpu, range);
    range.sources = sources;
    range.begin = v.begin;
    range.end = v.end;
    kernels().update(range, named().rule, v.how);
    typed([&]<class T>() {
      std::vector<const T*> from;
      for (const Tensor& g : gradients) from.push_back(g.const_data_ptr<T>());
      update_rules::fused_update<T>(named().rule, target_of<T>(cpu), from, v.begin, v.end, v.how);
    });
    expect_same_arenas(gpu, cpu, v.name);
  }
}

TEST_P(UpdateKernelsTest, WritesElsewhere) {
  const Arenas before = arenas(kSize, dtype()), cpu = copies(before);
  const Arenas from = gpu_arenas(before), to = gpu_arenas(before);
  const Tensor gradient = normal_numbers(kSize, dtype(), 10), on_device = on_gpu(gradient);
  to[0].fill_(-7);
  const std::byte* const sources[] = {bytes_of(on_device)};
  RangeUpdate range;
  set_arenas(to, range);
  range.from_parameters = bytes_of(from[0]);
  for (std::size_t s = 0; s < 3; ++s) range.from_slots[s] = bytes_of(from[s + 1]);
  range.sources = sources;
  range.end = kSize;
  kernels().update(range, named().rule, {.weight_decay = 1e-3});
  typed([&]<class T>() {
    const T* const g[] = {gradient.const_data_ptr<T>()};
    update_rules::fused_update<T>(named().rule, target_of<T>(cpu), g, 0, kSize,
                                  {.weight_decay = 1e-3});
  });
  expect_same_arenas(to, cpu, "written elsewhere");
  expect_same_arenas(from, before, "read only");
}

TEST_P(UpdateKernelsTest, UpdatesRowsAlone) {
  constexpr int64_t kRows = 400;
  const UpdateOptions how{.gradient_scale = 0.5, .clip_value = 1, .weight_decay = 0.01};
  for (const int64_t width : {1, 7, 16, 1100}) {
    for (const int64_t count : {5, 150}) {
      std::vector<int64_t> rows;
      for (int64_t i = 0; i < count; ++i) rows.push_back(i * 2 + (i > 3 ? 90 : 0));
      const Arenas before = arenas(kRows * width, dtype()), cpu = copies(before);
      const Arenas gpu = gpu_arenas(before);
      const Tensor gradients = normal_numbers(count * width, dtype(), 6);
      const Tensor on_device = on_gpu(gradients);
      RowsUpdate table;
      set_arenas(gpu, table);
      table.gradients = bytes_of(on_device);
      table.rows = rows;
      table.width = static_cast<std::size_t>(width);
      kernels().update_rows(table, named().rule, how);
      const std::vector<int64_t> named_rows = rows;
      std::fill(rows.begin(), rows.end(), 0);  // the span is free on return
      typed([&]<class T>() {
        update_rules::fused_update_rows<T>(named().rule, target_of<T>(cpu),
                                           gradients.const_data_ptr<T>(), named_rows,
                                           static_cast<std::size_t>(width), how);
      });
      expect_same_arenas(gpu, cpu, str_cat(count, " rows of ", width));
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<int, DType>>& info) {
  const auto rule = static_cast<std::size_t>(std::get<0>(info.param));
  return std::string(every_rule()[rule].name) +
         (std::get<1>(info.param) == kFloat32 ? "Float" : "Double");
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateKernelsTest,
                         ::testing::Combine(::testing::Range(0, 16),
                                            ::testing::Values(kFloat32, kFloat64)),
                         case_name);

using SquareSums = GpuKernels;

TEST_F(SquareSums, HaveTheCpusBits) {
  internal::base::use_isa(Isa::kBase);
  UpdateKernels& kernels = internal::variables::update_kernels(device_);
  for (const DType dtype : {kFloat32, kFloat64}) {
    for (const std::size_t count : {1, 2, 3}) {
      std::vector<Tensor> cpu, gpu;
      std::vector<const std::byte*> on_cpu, on_device;
      for (std::size_t s = 0; s < count; ++s) {
        cpu.push_back(normal_numbers(30011, dtype, static_cast<unsigned>(s) + 1));
        gpu.push_back(on_gpu(cpu.back()));
        on_cpu.push_back(bytes_of(cpu.back()));
        on_device.push_back(bytes_of(gpu.back()));
      }
      UpdateKernels& on_host =
          internal::variables::update_kernels(internal::runtime::host_device());
      const std::string what = str_cat(dtype_name(dtype), ", sources: ", count);
      EXPECT_EQ(kernels.sum_of_squares(dtype, on_device, 5, 29000),
                on_host.sum_of_squares(dtype, on_cpu, 5, 29000))
          << what;
      EXPECT_EQ(kernels.sum_of_squares(dtype, on_device, 7, 7), 0) << what;
      std::vector<double> blocks(7), expected(7);
      kernels.block_square_sums(dtype, on_device, 30011, 1, blocks);
      on_host.block_square_sums(dtype, on_cpu, 30011, 1, expected);
      EXPECT_EQ(blocks, expected) << what;
    }
  }
  internal::base::use_isa(internal::base::best_isa());
}

TEST_F(SquareSums, RefuseWhatCannotBe) {
  UpdateKernels& kernels = internal::variables::update_kernels(device_);
  EXPECT_THROW(kernels.sum_of_squares(kFloat32, {}, 0, 4), InvalidArgument);
  const Tensor x = on_gpu(zeros({16}));
  const std::byte* const sources[] = {bytes_of(x)};
  RangeUpdate range{.parameters = bytes_of(x), .sources = sources, .end = 16};
  EXPECT_THROW(kernels.update(range, update_rules::AdamStep{}, {}), InvalidArgument);
  const std::vector<const std::byte*> many(65, bytes_of(x));
  range.sources = many;
  EXPECT_THROW(kernels.update(range, update_rules::SgdStep{}, {}), Unimplemented);
}

}  // namespace
}  // namespace cohort
