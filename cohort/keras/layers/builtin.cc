// SPDX-License-Identifier: Apache-2.0
//
// The layers that a config may name.
#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/classes.h"
#include "cohort/keras/layers/layers.h"

namespace cohort::keras::internal {
namespace {

// What Keras has and Cohort cannot have.
template <class Reason>
struct RefusedLayer : LayerBase {
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  static std::shared_ptr<RefusedLayer> from_config(const Config&) {
    throw Unimplemented(str_cat("[from_config] this layer cannot be made here: ", Reason::kText));
  }
};

struct ForDerivedClasses {
  static constexpr auto kText = "it is what others derive of, and computes nothing";
};
struct NeedsPython {
  static constexpr auto kText =
      "it calls a function or module of Python (JAX, Flax, PyTorch); write it as a class that "
      "derives of LayerBase, or with torch::nn and TorchModule, and give it the weights";
};
struct NeedsTensorFlow {
  static constexpr auto kText =
      "it runs a SavedModel of TensorFlow; load the .keras file of that model";
};

void add_refused(ClassTable& table) {
  for (const char* name : {"Layer", "Wrapper"}) {
    table.add_builtin<RefusedLayer<ForDerivedClasses>>(name);
  }
  for (const char* name : {"FlaxLayer", "JaxLayer", "TorchModuleWrapper"}) {
    table.add_builtin<RefusedLayer<NeedsPython>>(name);
  }
  table.add_builtin<RefusedLayer<NeedsTensorFlow>>("TFSMLayer");
}

}  // namespace

template <>
ClassTable& class_table<LayerBase>() {
  static auto* table = [] {
    auto* all = new ClassTable(LayerBase::kKind, "keras.layers");
    all->add_builtin<ActivationLayer>();
    all->add_builtin<AveragePooling2DLayer>();
    all->add_builtin<BatchNormalizationLayer>();
    all->add_builtin<BidirectionalLayer>();
    all->add_builtin<Conv2DLayer>();
    all->add_builtin<ConvLSTM1DLayer>();
    all->add_builtin<ConvLSTM2DLayer>();
    all->add_builtin<ConvLSTM3DLayer>();
    all->add_builtin<DenseLayer>();
    all->add_builtin<DropoutLayer>();
    all->add_builtin<EmbeddingLayer>();
    all->add_builtin<FlattenLayer>();
    all->add_builtin<GRUCellLayer>();
    all->add_builtin<GRULayer>();
    all->add_builtin<GlobalAveragePooling2DLayer>();
    all->add_builtin<DeclaredInput>("InputLayer");
    all->add_builtin<LSTMCellLayer>();
    all->add_builtin<LSTMLayer>();
    all->add_builtin<MaskingLayer>();
    all->add_builtin<MaxPooling2DLayer>();
    all->add_builtin<RNNLayer>();
    all->add_builtin<ReLULayer>();
    all->add_builtin<RescalingLayer>();
    all->add_builtin<ReshapeLayer>();
    all->add_builtin<SimpleRNNCellLayer>();
    all->add_builtin<SimpleRNNLayer>();
    all->add_builtin<SoftmaxLayer>();
    all->add_builtin<StackedRNNCellsLayer>();
    all->add_builtin<TimeDistributedLayer>();
    add_models(*all);
    add_refused(*all);
    return all;
  }();
  return *table;
}

}  // namespace cohort::keras::internal
