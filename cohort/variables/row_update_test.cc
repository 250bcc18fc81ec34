// SPDX-License-Identifier: Apache-2.0
//
// Updates with sparse gradients: which rows they touch, and with what numbers.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <vector>

#include "cohort/base/sanitizers.h"
#include "cohort/cross_device_ops/cross_device_ops.h"
#include "cohort/runtime/internal/test_backend.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/internal/test_replicas.h"
#include "cohort/variables/row_sum.h"
#include "cohort/variables/update_kernels.h"

namespace cohort::internal::variables {
namespace {

using update_rules::AdagradStep;
using update_rules::MomentumStep;
using update_rules::Rule;
using update_rules::SgdStep;
using Rows = std::vector<int64_t>;

/// Counts the elements that updates go over, on devices of one type.
class CountingKernels final : public UpdateKernels {
 public:
  explicit CountingKernels(c10::DeviceType type)
      : type_(type), before_(exchange_update_kernels(type, this)) {}
  ~CountingKernels() override { exchange_update_kernels(type_, before_); }
  void update(const RangeUpdate& range, const Rule& rule,
              const update_rules::UpdateOptions& how) override {
    ++calls;
    elements += range.end - range.begin;
    cpu_.update(range, rule, how);
  }
  void update_rows(const RowsUpdate& table, const Rule& rule,
                   const update_rules::UpdateOptions& how) override {
    elements += table.rows.size() * table.width;
    cpu_.update_rows(table, rule, how);
  }
  double sum_of_squares(DType dtype, std::span<const std::byte* const> sources, std::size_t begin,
                        std::size_t end) override {
    elements += end - begin;
    return cpu_.sum_of_squares(dtype, sources, begin, end);
  }
  void block_square_sums(DType dtype, std::span<const std::byte* const> sources, std::size_t size,
                         std::size_t first, std::span<double> out) override {
    elements += size;
    cpu_.block_square_sums(dtype, sources, size, first, out);
  }
  std::atomic<std::size_t> elements{0};
  std::atomic<int> calls{0};

 private:
  const c10::DeviceType type_;
  UpdateKernels& cpu_ = update_kernels(runtime::host_device());
  UpdateKernels* const before_;
};

IndexedSlices slices(const Rows& rows, const Tensor& values, const Shape& table) {
  return {values, from_vector(rows, {static_cast<int64_t>(rows.size())}), table};
}

/// Replica r's rows at a step: repeated ones, and some that others have, too.
Rows rows_of(int replica, int step) {
  return {(7 * step + 3 * replica) % 40, 5, (11 * step + replica) % 40, 5, 39 - replica};
}

struct Setting {
  int replicas = 1;
  UpdateSchedule schedule = UpdateSchedule::kSharded;
  ParameterPlacement placement = ParameterPlacement::kMirrored;
  std::shared_ptr<CrossDeviceOps> ops = {};
};

/// A table of 40 rows between two dense variables, trained on replicas.
class Trained {
 public:
  enum class Bring { kRows, kDense, kMixed };

  explicit Trained(const Setting& s) : setting_(s), group_({.replicas = s.replicas}) {
    LocalVariablesOptions options{.devices = {},
                                  .schedule = s.schedule,
                                  .cross_device_ops = s.ops,
                                  .placement = s.placement,
                                  .group = &group_};
    for (int r = 0; r < s.replicas; ++r) options.devices.emplace_back(str_cat("CPU:", r));
    creator_ = std::make_shared<LocalVariables>(options);
    const VariableCreatorScope scope(creator_);
    for (const Shape& shape : {Shape{9}, Shape{40, 5}, Shape{21}}) {
      const int64_t n = c10::multiply_integers(shape);
      variables_.emplace_back((arange(n, kFloat32) * 0.31 + 0.5).sin().reshape(shape));
    }
  }

  void train(const std::function<Rule(int step)>& rule, UpdaterOptions options, Bring bring,
             double weight_decay = 0, int steps = 4) {
    updater_ = creator_->make_updater(variables_, options);
    for (int step = 1; step <= steps; ++step) {
      group_.run(
          [&](int r) { updater_->apply(gradients(r, step, bring), rule(step), weight_decay); });
    }
  }

  /// Weights of all replicas, and slots.
  std::vector<float> numbers() const {
    std::vector<float> out;
    for (std::size_t v = 0; v < variables_.size(); ++v) {
      for (const Variable& part : variables_[v].components()) add(out, part.value());
      for (int s = 0; s < updater_->slot_count(); ++s) add(out, updater_->slot(v, s));
    }
    return out;
  }
  Updater& updater() { return *updater_; }
  const std::vector<Variable>& variables() const { return variables_; }
  runtime::ReplicaGroup& group() { return group_; }

 private:
  static void add(std::vector<float>& out, const Tensor& t) {
    const auto values = to_vector<float>(t);
    out.insert(out.end(), values.begin(), values.end());
  }
  Gradients gradients(int r, int step, Bring bring) const {
    const Rows rows = rows_of(r, step);
    const Tensor values =
        (arange(static_cast<int64_t>(rows.size()) * 5, kFloat32) * 0.7 + r + step).sin();
    const IndexedSlices sparse =
        slices(rows, values.reshape({static_cast<int64_t>(rows.size()), 5}), {40, 5});
    const bool dense = bring == Bring::kDense || (bring == Bring::kMixed && r == 1);
    return {{(arange(9, kFloat32) + r).cos(), variables_[0]},
            {dense ? Gradient(sparse.to_dense()) : Gradient(sparse), variables_[1]},
            {(arange(21, kFloat32) + step).cos(), variables_[2]}};
  }

  const Setting setting_;
  runtime::ReplicaGroup group_;
  std::shared_ptr<LocalVariables> creator_;
  std::vector<Variable> variables_;
  std::shared_ptr<Updater> updater_;
};

using Bring = Trained::Bring;

const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> made = {{.replicas = 1}};
    for (const int replicas : {2, 3}) {
      made.push_back({.replicas = replicas, .schedule = UpdateSchedule::kSharded});
      made.push_back({.replicas = replicas, .schedule = UpdateSchedule::kPull});
      made.push_back({.replicas = replicas, .placement = ParameterPlacement::kCentral});
    }
    made.push_back({.replicas = 2,
                    .schedule = UpdateSchedule::kPull,
                    .ops = std::make_shared<ReductionToOneDevice>()});
    return made;
  }();
  return all;
}

std::vector<float> trained(const Setting& setting, const std::function<Rule(int)>& rule,
                           UpdaterOptions options, Bring bring, double weight_decay = 0) {
  Trained one(setting);
  one.train(rule, std::move(options), bring, weight_decay);
  return one.numbers();
}

std::function<Rule(int)> always(const Rule& rule) {
  return [rule](int) { return rule; };
}
std::function<Rule(int)> adam() {
  return [](int step) { return update_rules::adam_step({.learning_rate = 0.01}, step); };
}

TEST(RowSum, HasTheBitsOfTheDenseSum) {
  std::vector<RowSum> parts;
  Tensor dense;
  for (int r = 0; r < 3; ++r) {
    const Rows rows = rows_of(r, r);
    const IndexedSlices one =
        slices(rows, at::randn({static_cast<int64_t>(rows.size()), 3}), {40, 3});
    parts.push_back(sum_rows(one, kFloat32));
    EXPECT_TRUE(parts.back().to_dense({40, 3}).equal(one.to_dense()));
    dense = dense.defined() ? dense + one.to_dense() : one.to_dense();
  }
  const RowSum* const all[] = {&parts[0], &parts[1], &parts[2]};
  EXPECT_TRUE(sum_rows(all, 0, 40).to_dense({40, 3}).equal(dense));
  const Tensor some = sum_rows(all, 5, 39).to_dense({40, 3});
  EXPECT_TRUE(some.narrow(0, 5, 34).equal(dense.narrow(0, 5, 34)));
  EXPECT_EQ(some[0].abs().sum().item<float>() + some[39].abs().sum().item<float>(), 0);
}

// Ids that ascend already are not sorted, and rows that stand alone not added to zeros.
TEST(RowSum, OfRowsInOrderHasTheBitsOfTheDenseSum) {
  const Rows rows = {0, 3, 3, 3, 7, 9};
  const std::vector<float> values = {-0.0F, 1.0F, 1e-8F, -1.0F, -0.0F, 2.5F};
  const IndexedSlices slices{from_vector(values, {6, 1}), from_vector(rows, {6}), Shape{12, 1}};
  const RowSum sum = sum_rows(slices, kFloat32);
  EXPECT_EQ(sum.rows, (Rows{0, 3, 7, 9}));
  const Tensor dense = slices.to_dense();
  EXPECT_TRUE(sum.to_dense({12, 1}).equal(dense));
  EXPECT_TRUE(sum.to_dense({12, 1}).signbit().equal(dense.signbit())) << "no -0";
}

TEST(RowSum, OfSixteenBitsIsRoundedOnce) {
  for (const DType dtype : {kBFloat16, kFloat16}) {
    const IndexedSlices slices{(ones({5000, 2}, kFloat32) * 1e-3).to(dtype), zeros({5000}, kInt64),
                               Shape{3, 2}};
    const RowSum once = sum_rows(slices, dtype);
    EXPECT_TRUE(once.to_dense({3, 2}).equal(slices.to_dense()));
    const RowSum* const twice[] = {&once, &once};
    EXPECT_NEAR(sum_rows(twice, 0, 3).to_dense({3, 2}).sum().item<double>(), 20, 0.2);
  }
}

TEST(RowSum, SortsLargeNumbersAndTakesNoRows) {
  const Rows rows = {int64_t{1} << 40, 3, (int64_t{1} << 40) - 1, 3, 0};
  const RowSum sum = sum_rows(
      {arange(5, kFloat64), from_vector(rows, {static_cast<int64_t>(rows.size())}), {}}, kFloat64);
  EXPECT_EQ(sum.rows, (Rows{0, 3, (int64_t{1} << 40) - 1, int64_t{1} << 40}));
  EXPECT_EQ(to_vector<double>(sum.values), (std::vector<double>{4, 4, 2, 0}));
  EXPECT_TRUE(sum_rows({zeros({0, 2}), zeros({0}, kInt64), {4, 2}}, kFloat32).rows.empty());
}

// What rows a gradient leaves out has no influence on bits where zero has none.
TEST(RowUpdate, HasTheBitsOfDenseGradients) {
  struct Case {
    std::function<Rule(int)> rule;
    std::vector<double> slots;
    UpdaterOptions options = {};
    double weight_decay = 0;
  };
  const std::vector<Case> cases = {
      {always(SgdStep{0.1}), {}},
      {always(AdagradStep{0.1, 1e-7}), {0.1}},
      {always(AdagradStep{0.1, 1e-7}), {0}},
      {always(SgdStep{0.1}), {}, {.clipvalue = 0.3}},
      // These go over the whole table.
      {always(SgdStep{0.1}), {}, {.clipnorm = 0.5}},
      {always(SgdStep{0.1}), {}, {.global_clipnorm = 0.5}},
      {always(SgdStep{0.1}), {}, {}, 0.01},
      {always(MomentumStep{0.1, 0.9, false}), {0}},
      {adam(), {0, 0}},
  };
  for (const Setting& setting : all_settings()) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(str_cat(setting.replicas, " replicas, case ", i));
      UpdaterOptions options = cases[i].options;
      options.slot_initial = cases[i].slots;
      const auto dense =
          trained(setting, cases[i].rule, options, Bring::kDense, cases[i].weight_decay);
      const auto rows =
          trained(setting, cases[i].rule, options, Bring::kRows, cases[i].weight_decay);
      if (setting.ops) {  // which joins all replicas' rows, and so adds in another order
        ASSERT_EQ(rows.size(), dense.size());
        for (std::size_t e = 0; e < rows.size(); ++e) EXPECT_NEAR(rows[e], dense[e], 2e-6) << e;
        continue;
      }
      EXPECT_EQ(rows, dense);
      if (setting.replicas == 1) continue;
      EXPECT_EQ(trained(setting, cases[i].rule, options, Bring::kMixed, cases[i].weight_decay),
                dense);
    }
  }
}

// The rule alone, on the rows that some replica has named, each summed over all replicas.
TEST(RowUpdate, LazyOnesLeaveOtherRowsAndTheirSlotsAlone) {
  for (const Setting& setting : all_settings()) {
    for (const double decay : {0.0, 0.01}) {
      SCOPED_TRACE(str_cat(setting.replicas, " replicas"));
      Trained lazy(setting);
      std::vector<double> w = to_vector<double>(lazy.variables()[1].value());
      std::vector<double> m(w.size()), v(w.size());
      for (int step = 1; step <= 4; ++step) {
        std::vector<double> g(w.size());
        std::vector<bool> named(40);
        for (int r = 0; r < setting.replicas; ++r) {
          const Rows rows = rows_of(r, step);
          for (std::size_t i = 0; i < rows.size(); ++i) {
            named[static_cast<std::size_t>(rows[i])] = true;
            for (std::size_t e = 0; e < 5; ++e) {
              const double x = static_cast<double>(5 * i + e) * 0.7 + r + step;
              g[static_cast<std::size_t>(rows[i]) * 5 + e] += std::sin(x);
            }
          }
        }
        for (std::size_t i = 0; i < w.size(); ++i) {
          if (!named[i / 5]) continue;
          w[i] -= w[i] * decay;
          m[i] += (g[i] - m[i]) * 0.1;
          v[i] += (g[i] * g[i] - v[i]) * 0.001;
          w[i] -= 0.01 * std::sqrt(1 - std::pow(0.999, step)) / (1 - std::pow(0.9, step)) * m[i] /
                  (std::sqrt(v[i]) + 1e-7);
        }
      }
      lazy.train(adam(), {.slot_initial = {0, 0}, .lazy_rows = true}, Bring::kRows, decay);
      for (const Variable& part : lazy.variables()[1].components()) {
        const auto got = to_vector<double>(part.value());
        for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(got[i], w[i], 2e-6) << i;
      }
      const auto momentum = to_vector<double>(lazy.updater().slot(1, 0));
      for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(momentum[i], m[i], 2e-6) << i;
    }
  }
}

TEST(RowUpdate, LazyOnesClipByTheNormOfTheNamedRows) {
  const auto lazily = [](UpdaterOptions options, Bring bring) {
    options.lazy_rows = bring == Bring::kRows;
    return trained({.replicas = 2}, always(SgdStep{0.1}), options, bring);
  };
  for (const UpdaterOptions& options :
       {UpdaterOptions{.clipnorm = 0.5}, UpdaterOptions{.global_clipnorm = 0.5}}) {
    const auto rows = lazily(options, Bring::kRows);
    const auto dense = lazily(options, Bring::kDense);
    ASSERT_EQ(rows.size(), dense.size());
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], dense[i], 1e-6) << i;
  }
}

// Two steps of TensorFlow 2.21's sparse kernels in float64 on a table of 1 to 8, with rows 3, 1, 3.
struct KernelCase {
  const char* kernel;
  Rule rule;
  std::vector<double> slots;
  std::vector<double> row_1;
  std::vector<double> row_3;
  std::vector<double> first_slot;  // of rows 1 and 3
};

const std::vector<KernelCase>& kernel_cases() {
  using namespace update_rules;
  static const std::vector<KernelCase> cases = {
      {"ResourceSparseApplyKerasMomentum",
       MomentumStep{.1, .9, false},
       {0},
       {2.61, 3.22},
       {6.7075, 7.805},
       {-.29, -.58, -.2175, -.145}},
      {"ResourceSparseApplyKerasMomentum, nesterov",
       MomentumStep{.1, .9, true},
       {0},
       {2.349, 2.698},
       {6.51175, 7.6745},
       {-.29, -.58, -.2175, -.145}},
      {"ResourceSparseApplyAdagradV2",
       AdagradStep{.1, 0},
       {.1},
       {2.816092252521431, 3.812007092985947},
       {6.81996192217855, 7.829418277944762},
       {5.1, 20.1, 2.9125, 1.35}},
      {"ResourceSparseApplyRMSProp",
       RmspropStep{.1, .9, .5, 1e-7, false},
       {0, 0, 0},
       {2.239944331585618, 3.2399441318417814},
       {6.239944538727158, 7.2399451305589135},
       {.49, 1.96, .275625, .1225}},
      {"ResourceSparseApplyFtrlV2",
       FtrlStep{.learning_rate = .1, .l1 = .01, .l2 = .02},
       {.1, 0},
       {1.9031657890000362, 3.180438791361674},
       {4.07886250975681, 3.5274137904832457},
       {5.1, 20.1, 2.9125, 1.35}},
      {"ResourceSparseApplyAdadelta",
       AdadeltaStep{.1, .95, 1e-7},
       {0, 0},
       {2.9996787922814074, 3.9996787920806813},
       {6.999678792489567, 7.999678793084307},
       {.2475, .99, .13921875, .061875}},
  };
  return cases;
}

TEST(RowUpdate, LazyOnesAreTensorFlowsSparseKernels) {
  for (const KernelCase& c : kernel_cases()) {
    SCOPED_TRACE(c.kernel);
    const Variable table((arange(8, kFloat64) + 1).reshape({4, 2}));
    FusedUpdate update({table}, {.slot_initial = c.slots, .lazy_rows = true});
    const Tensor values = tensor({.5, -.25, 1, 2, .25, .75}, kFloat64).reshape({3, 2});
    for (int step = 1; step <= 2; ++step) {
      update.apply({{slices({3, 1, 3}, values * step, {4, 2}), table}}, c.rule);
    }
    const auto got = to_vector<double>(table.value());
    const std::vector<double> want = {1, 2, c.row_1[0], c.row_1[1], 5, 6, c.row_3[0], c.row_3[1]};
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
    const auto slot = to_vector<double>(update.slot(0, 0));
    const std::vector<double> slots = {c.slots[0], c.slots[0], c.first_slot[0], c.first_slot[1],
                                       c.slots[0], c.slots[0], c.first_slot[2], c.first_slot[3]};
    for (std::size_t i = 0; i < slots.size(); ++i) EXPECT_NEAR(slot[i], slots[i], 1e-12) << i;
  }
}

std::size_t resident_bytes() {
  long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// A step on a table of a million rows: arithmetic on the rows that are named, and no memory for
// others, neither for slots nor for a gradient.
TEST(RowUpdate, TouchesNamedRowsOnly) {
  constexpr int64_t kRows = 1'000'000;
  constexpr int64_t kWidth = 32;
  constexpr int64_t kIds = 4096;
  const Variable table(zeros({kRows, kWidth}));
  const Tensor ids = (arange(kIds, kInt64) * 7919).remainder(kRows / 8);
  struct Case {
    Rule rule;
    UpdaterOptions options;
  };
  for (const Case& c :
       {Case{update_rules::adam_step({}, 1), {.slot_initial = {0, 0}, .lazy_rows = true}},
        Case{SgdStep{}, {}}, Case{AdagradStep{}, {.slot_initial = {0}}}}) {
    FusedUpdate update({table}, c.options);
    const CountingKernels count(c10::kCPU);
    const std::size_t before = resident_bytes();
    for (int step = 0; step < 2; ++step) {
      update.apply({{IndexedSlices{ones({kIds, kWidth}), ids, {kRows, kWidth}}, table}}, c.rule);
    }
    EXPECT_EQ(count.elements, std::size_t{2 * kIds * kWidth});
    // The rows' own pages of two slots, at most; the table has 122 MiB.
    if (COHORT_UNDER_SANITIZER == 0) {
      EXPECT_LT(resident_bytes(), before + (std::size_t{48} << 20));
    }
  }
}

// Two replicas with copies of their own: each row is updated once, and copied once for each replica
// that named it.
TEST(RowUpdate, CopiesBetweenReplicasTheNamedRowsOnly) {
  runtime::TestBackend backend;
  const CountingKernels count(c10::kCUDA);
  runtime::ReplicaGroup group({.replicas = 2});
  const auto creator = std::make_shared<LocalVariables>(
      LocalVariablesOptions{.devices = {Device("GPU:0"), Device("GPU:1")}, .group = &group});
  const VariableCreatorScope scope(creator);
  const Variable table(zeros({1000, 4}));
  const auto updater = creator->make_updater({table}, {.lazy_rows = true});
  backend.log().take();
  group.run([&](int r) {
    const Rows rows = r == 0 ? Rows{1, 2, 999, 2} : Rows{2, 500};
    updater->apply({{slices(rows, ones({static_cast<int64_t>(rows.size()), 4}), {1000, 4}), table}},
                   SgdStep{1});
  });
  EXPECT_EQ(count.elements, 4U * 4);
  EXPECT_LE(backend.log().count("copy GPU:0 to GPU:1") + backend.log().count("copy GPU:1 to GPU:0"),
            6);
  for (const Variable& part : table.components()) {
    const Tensor w = part.value();
    EXPECT_EQ(w[1][0].item<float>(), -1);
    EXPECT_EQ(w[2][3].item<float>(), -3);
    EXPECT_EQ(w[999][1].item<float>(), -1);
    EXPECT_EQ(w[500][0].item<float>(), -1);
    EXPECT_EQ(w.sum().item<float>(), -4 * 6);
  }
}

// Gradients of no tape lie side by side in a buffer, too: one pass goes over all of them.
TEST(RowUpdate, GradientsWithoutALeaseArePlacedTogether) {
  for (const int replicas : {1, 2}) {
    Trained one({.replicas = replicas, .schedule = UpdateSchedule::kPull});
    const CountingKernels count(c10::kCPU);
    one.train(always(SgdStep{0.1}), {}, Bring::kDense, 0, /*steps=*/3);
    if (COHORT_UNDER_SANITIZER == 0) {  // whose arenas are smaller, and so more
      EXPECT_EQ(count.calls, 3 * replicas) << replicas << " replicas";
    }
  }
}

TEST(RowUpdate, SaysWhatDoesNotFit) {
  const Variable table(zeros({4, 2}));
  FusedUpdate update({table}, {});
  const auto apply = [&](const IndexedSlices& rows) { update.apply({{rows, table}}, SgdStep{}); };
  testing::expect_error<InvalidArgument>({"[optimizer.apply_gradients]", "got 4"}, [&] {
    apply(slices({4}, zeros({1, 2}), {4, 2}));
  });
  testing::expect_error<InvalidArgument>({"[optimizer.apply_gradients]", "[1, 2]", "[1, 3]"}, [&] {
    apply(slices({1}, zeros({1, 3}), {4, 2}));
  });
  testing::expect_error<InvalidArgument>({"twice"}, [&] {
    const IndexedSlices rows = slices({1}, zeros({1, 2}), {4, 2});
    update.apply({{rows, table}, {rows, table}}, SgdStep{});
  });
}

}  // namespace
}  // namespace cohort::internal::variables
