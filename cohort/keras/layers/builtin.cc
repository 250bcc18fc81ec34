// SPDX-License-Identifier: Apache-2.0
//
// The layers that a config may name.
#include "cohort/keras/layers/internal/classes.h"
#include "cohort/keras/layers/layers.h"

namespace cohort::keras::internal {

template <>
ClassTable& class_table<LayerBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(LayerBase::kKind, "keras.layers");
    all->add_builtin<ActivationLayer>();
    all->add_builtin<AveragePooling2DLayer>();
    all->add_builtin<BatchNormalizationLayer>();
    all->add_builtin<Conv2DLayer>();
    all->add_builtin<DenseLayer>();
    all->add_builtin<DropoutLayer>();
    all->add_builtin<FlattenLayer>();
    all->add_builtin<GlobalAveragePooling2DLayer>();
    all->add_builtin<DeclaredInput>("InputLayer");
    all->add_builtin<MaxPooling2DLayer>();
    all->add_builtin<ReLULayer>();
    all->add_builtin<RescalingLayer>();
    all->add_builtin<ReshapeLayer>();
    all->add_builtin<SoftmaxLayer>();
    add_models(*all);
    return all;
  }();
  return *table;
}

}  // namespace cohort::keras::internal
