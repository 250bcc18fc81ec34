// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/loss.h"

#include <array>

#include "cohort/base/check.h"
#include "cohort/base/handle.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/torch_errors.h"
#include "cohort/keras/losses/internal/masked_weight.h"
#include "cohort/keras/losses/internal/reduce.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

class FunctionLoss final : public LossBase {
 public:
  using Function = std::function<Tensor(const Tensor&, const Tensor&)>;
  FunctionLoss(Function per_example, Reduction reduction)
      : LossBase("loss", reduction), per_example_(std::move(per_example)) {}
  Config get_config() const override {
    throw Unimplemented(
        "[loss.get_config] expected a loss with a name or a class, got a function, which no config "
        "can hold: derive from keras::LossImpl and register the class");
  }
  Tensor call(const Tensor& y_true, const Tensor& y_pred) override {
    // [b] minus [b, 1] would be the differences of all pairs of rows.
    const auto [labels, scores] = internal::align_ranks(y_true, y_pred);
    try {
      return per_example_(labels, scores);
    } catch (const c10::Error& error) {
      internal::throw_for(
          error, str_cat("[loss] ", internal::torch_text(error),
                         " (when calling the loss function with y_true ", bracketed(labels.sizes()),
                         " and y_pred ", bracketed(scores.sizes()), ")"));
    }
  }

 private:
  const Function per_example_;
};

constexpr std::array<std::pair<const char*, Reduction>, 6> kReductions = {{
    {"sum_over_batch_size", Reduction::kSumOverBatchSize},
    {"sum", Reduction::kSum},
    {"mean", Reduction::kMean},
    {"mean_with_sample_weight", Reduction::kMeanWithSampleWeight},
    {"none", Reduction::kNone},
    {"None", Reduction::kNone},
}};

bool is_mean(Reduction reduction) {
  return reduction != Reduction::kNone && reduction != Reduction::kSum;
}

}  // namespace

Config ConfigValue<Reduction>::write(Reduction value) {
  return internal::name_of_value(kReductions, value);
}

Reduction ConfigValue<Reduction>::read(const Config& config) {
  if (config.is_null()) return Reduction::kNone;
  return internal::value_of_name(kReductions, config);
}

std::string LossBase::class_name() const { return internal::class_name_of(typeid(*this), kKind); }

Config Loss::serialize() const {
  if (loss_ == nullptr) return {};
  if (!given_name_.empty()) return given_name_;
  return internal::class_table<LossBase>().serialize(*loss_);
}

Loss Loss::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_text()) return config.text();
  // Keras's form of a function.
  if (config.is_object() && config.text("class_name") == "function") return config.text("config");
  return std::static_pointer_cast<LossBase>(internal::class_table<LossBase>().deserialize(config));
}

Tensor LossBase::reduced(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                         double scale) {
  const Tensor values = call(y_true, y_pred);
  if (!leaves_out()) return internal::reduce_values(values, sample_weight, reduction_, scale);
  return internal::reduce_masked(values, counted(y_true, y_pred, values), sample_weight, reduction_,
                                 scale);
}

std::shared_ptr<LossBase> Loss::from_function(Function per_example, Reduction reduction) {
  return std::make_shared<FunctionLoss>(std::move(per_example), reduction);
}

LossBase& Loss::base() const { return *cohort::internal::base::held(loss_, "Loss", ""); }

Tensor Loss::operator()(const Tensor& y_true, const Tensor& y_pred,
                        const Tensor& sample_weight) const {
  LossBase& loss = base();
  cohort::internal::runtime::check_defined("[loss] ", y_true);
  cohort::internal::runtime::check_defined("[loss] ", y_pred);
  const int replicas = cohort::internal::runtime::current_layout().total();
  COHORT_CHECK_ARG(replicas == 1 || !is_mean(loss.reduction()), "[", loss.name(),
                   "] expected reduction kNone or kSum in a custom loop over ", replicas,
                   " replicas, got a mean, which would be the local batch's: reduce with kNone or "
                   "kSum and divide by the global batch size (compute_average_loss does)");
  const Tensor mask = internal::mask_of(y_pred);
  if (!mask.defined()) return loss.reduced(y_true, y_pred, sample_weight, 1);
  return internal::counted_loss(loss, y_true, y_pred, mask, sample_weight).value;
}

}  // namespace cohort::keras
