// SPDX-License-Identifier: Apache-2.0
//
// Layers, models, losses, metrics and optimizers as text, as short as in Python.
#include <ostream>

#include "cohort/keras/layer.h"
#include "cohort/keras/losses/loss.h"
#include "cohort/keras/metrics/metric.h"
#include "cohort/keras/optimizers/optimizer.h"

namespace cohort::keras {
namespace {

const char* python_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSumOverBatchSize:
      return "sum_over_batch_size";
    case Reduction::kSum:
      return "sum";
    case Reduction::kMean:
      return "mean";
    case Reduction::kMeanWithSampleWeight:
      return "mean_with_sample_weight";
    case Reduction::kNone:
      return "None";
  }
  return "?";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const LayerBase& layer) {
  if (layer.place_ == nullptr) return out << '<' << layer.class_name() << ", moved from>";
  return out << '<' << layer.class_name() << " name=" << layer.name()
             << ", built=" << (layer.built() ? "True" : "False") << '>';
}

std::ostream& operator<<(std::ostream& out, const Layer& layer) {
  if (layer.layer_ == nullptr) return out << "<Layer, empty handle>";
  return out << *layer.layer_;
}

std::ostream& operator<<(std::ostream& out, const Loss& loss) {
  if (!loss) return out << "<Loss, empty handle>";
  return out << "<Loss name=" << loss.name() << ", reduction=" << python_name(loss.reduction())
             << '>';
}

std::ostream& operator<<(std::ostream& out, const Metric& metric) {
  return out << "<Metric name=" << metric.name() << '>';
}

std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer) {
  if (!optimizer) return out << "<Optimizer, empty handle>";
  return out << "<Optimizer name=" << optimizer.base().name()
             << ", learning_rate=" << optimizer.learning_rate() << '>';
}

}  // namespace cohort::keras
