// SPDX-License-Identifier: Apache-2.0
//
// The layers that a config may name.
#include <typeinfo>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/classes.h"
#include "cohort/keras/layers/layers.h"

namespace cohort::keras::internal {
namespace {

// What Keras has and Cohort cannot have.
void add_refused(ClassTable& table) {
  const auto refuse = [&table](const std::string& name, const std::string& reason) {
    table.add(typeid(void), "", name, [=](const Config&) -> std::shared_ptr<Serializable> {
      throw Unimplemented(str_cat("[from_config] ", name, " cannot be made here: ", reason));
    });
  };
  refuse("Layer", "it is what layers derive of, and computes nothing");
  refuse("Wrapper", "it is what wrappers derive of, and computes nothing");
  const std::string python =
      ", which needs Python; write the layer as a class that derives of "
      "LayerBase, and give it the weights";
  refuse("JaxLayer", "it calls a function of JAX" + python);
  refuse("FlaxLayer", "it calls a module of Flax" + python);
  refuse("TFSMLayer", "it runs a SavedModel of TensorFlow; load the .keras file of that model");
  refuse("TorchModuleWrapper",
         "it keeps a PyTorch module as a pickle of Python; write the module with torch::nn and "
         "wrap it by TorchModule");
}

}  // namespace

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
    add_refused(*all);
    return all;
  }();
  return *table;
}

}  // namespace cohort::keras::internal
