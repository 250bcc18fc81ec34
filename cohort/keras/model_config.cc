// SPDX-License-Identifier: Apache-2.0
//
// Models as configs, and back.
#include <map>

#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/internal/export_scope.h"
#include "cohort/keras/internal/graph.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/unknown_fields.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/internal/classes.h"
#include "cohort/keras/layers/text_vectorization.h"
#include "cohort/keras/sequential.h"

namespace cohort::keras {
namespace {

thread_local int open_exports = 0;

std::map<std::string, double> weights_of(const Config& config,
                                         const std::vector<std::string>& outputs) {
  std::map<std::string, double> weights;
  if (config.is_null()) return weights;
  if (config.is_object()) {
    for (const auto& [name, weight] : config.members()) weights[name] = weight.number();
    return weights;
  }
  const Config::List& list = config.list();
  if (outputs.empty() && list.size() == 1) return {{"output_1", list[0].number()}};
  COHORT_CHECK_ARG(list.size() == outputs.size(),
                   "[compile_from_config] expected loss_weights for ", outputs.size(),
                   " outputs, got ", config);
  for (std::size_t i = 0; i < list.size(); ++i) weights[outputs[i]] = list[i].number();
  return weights;
}

// What compile() of Keras may be told. Its files have for jit_compile what a machine could do.
void read_compile_option(const std::string& name, const Config& value, CompileOptions& options,
                         const std::vector<std::string>& outputs) {
  if (name == "optimizer") {
    if (!value.is_null()) options.optimizer = Optimizer::deserialize(value);
  } else if (name == "loss") {
    options.loss = OutputLosses::deserialize(value);
  } else if (name == "loss_weights") {
    options.loss_weights = weights_of(value, outputs);
  } else if (name == "metrics") {
    options.metrics = OutputMetrics::deserialize(value);
  } else if (name == "weighted_metrics") {
    options.weighted_metrics = OutputMetrics::deserialize(value);
  } else if (name == "steps_per_execution") {
    options.steps_per_execution = ConfigValue<int>::read(value);
  } else if (name == "auto_scale_loss") {
    options.auto_scale_loss = value.boolean();
  } else if (name == "exact_uneven_batches") {
    options.exact_uneven_batches = value.boolean();
  } else if (name == "run_eagerly") {
    options.run_eagerly = !value.is_null() && value.boolean();
  } else {
    COHORT_CHECK_ARG(name == "jit_compile",
                     "[compile_from_config] expected optimizer, loss, loss_weights, metrics, "
                     "weighted_metrics, steps_per_execution, run_eagerly, jit_compile, "
                     "auto_scale_loss, got \"",
                     name, "\"");
  }
}

// A layer that stands twice would be two when it is read, and Keras reads no two of one name.
void check_each_once(const std::vector<Layer>& layers, const std::string& model) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (&layers[i].base() != &layers[j].base()) continue;
      throw Unimplemented(str_cat("[get_config] expected each layer of \"", model,
                                  "\" once, got \"", layers[i].name(),
                                  "\" twice: a functional model's config can say that"));
    }
  }
}

struct SequentialFields {
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  std::vector<Layer> layers = {};
  std::optional<Shape> build_input_shape = {};
  static void fields(auto& c, auto&& f) {
    f.required("layers", c.layers);
    f.shape("build_input_shape", c.build_input_shape);
  }
};

bool takes_strings(const LayerBase& layer) {
  return dynamic_cast<const TextVectorizationLayer*>(&layer) != nullptr ||
         dynamic_cast<const StringLookupLayer*>(&layer) != nullptr;
}

Config input_layer(const Shape& shape, const LayerBase& first) {
  Config config = DeclaredInput({.batch_shape = shape, .name = "input_layer"}).get_config();
  if (takes_strings(first)) config.set("dtype", "string");
  return Config::object({{"module", "keras.layers"},
                         {"class_name", "InputLayer"},
                         {"config", std::move(config)},
                         {"registered_name", nullptr}});
}

}  // namespace

internal::ExportScope::ExportScope() { ++open_exports; }
internal::ExportScope::~ExportScope() { --open_exports; }
bool internal::ExportScope::is_open() { return open_exports > 0; }

Config Model::get_compile_config() const {
  const auto& compiled = checked("get_compile_config");
  const CompileOptions& options = compiled.options;
  Config config = Config::object();
  // As Keras: the one that was given, around which compile() puts the same again.
  const Optimizer& given =
      compiled.scaled_optimizer ? compiled.scaled_optimizer : options.optimizer;
  config.set("optimizer", given.serialize());
  config.set("loss", options.loss.serialize());
  Config weights;
  for (const auto& [name, weight] : options.loss_weights) weights.set(name, weight);
  config.set("loss_weights", std::move(weights));
  config.set("metrics", options.metrics.serialize());
  config.set("weighted_metrics", options.weighted_metrics.serialize());
  config.set("run_eagerly", options.run_eagerly);
  config.set("steps_per_execution", options.steps_per_execution);
  config.set("jit_compile", options.jit_compile.value_or(false));
  if (!options.auto_scale_loss) config.set("auto_scale_loss", false);
  if (!options.exact_uneven_batches) config.set("exact_uneven_batches", false);
  return config;
}

void Model::compile_from_config(const Config& config) {
  const Scope scope = enter("compile_from_config");  // metrics are made in it
  CompileOptions options;
  for (const auto& [name, value] : config.members()) {
    read_compile_option(name, value, options, output_names());
  }
  compile(std::move(options));
}

Config Model::serialize() const {
  Config config = LayerBase::serialize();
  if (is_functional() && typeid(*this) == typeid(Model)) {
    config.set("module", "keras.src.models.functional");
    config.set("registered_name", "Functional");
  }
  Config compile = Config::object();
  if (compiled() && !internal::ExportScope::is_open()) {
    try {
      compile = get_compile_config();
    } catch (const Unimplemented& error) {
      COHORT_LOG(kWarning, "[to_json] model \"", name(),
                 "\" is written without what compile() was told: ", error.what());
    }
  }
  config.set("compile_config", std::move(compile));
  return config;
}

Config Sequential::serialize() const {
  Config config = Model::serialize();
  if (typeid(*this) == typeid(Sequential)) config.set("module", "keras");
  return config;
}

Config Sequential::get_config() const {
  check_each_once(layers(), name());
  Config::List list;
  if (input_shape_ && !declared_input_shape()) {
    list.push_back(input_layer(*input_shape_, layers().front().base()));
  }
  for (const Layer& layer : layers()) list.push_back(layer.serialize());
  Config config = Config::object();
  config.set("name", name());
  config.set("trainable", trainable());
  config.set("dtype", dtype_policy().serialize());
  config.set("layers", std::move(list));
  if (input_shape_) config.set("build_input_shape", ShapeValue::write(*input_shape_));
  return config;
}

std::shared_ptr<Sequential> Sequential::from_config(const Config& config) {
  const SequentialFields fields = options_of<SequentialFields>(config, "Sequential");
  auto model = std::make_shared<Sequential>(std::vector<Layer>(), fields.name);
  model->set_trainable(fields.trainable);  // the layers say themselves what they are
  for (const Layer& layer : fields.layers) model->add(layer);
  if (fields.build_input_shape && !model->built() && !fields.layers.empty()) {
    model->ensure_built(*fields.build_input_shape);
  }
  return model;
}

void internal::add_models(ClassTable& table) {
  table.add_builtin<Sequential>();
  table.add_builtin<Model>("Functional");
}

std::shared_ptr<Model> model_from_config(const Config& config) {
  const auto layer =
      std::static_pointer_cast<LayerBase>(internal::class_table<LayerBase>().deserialize(config));
  internal::build_as_told(*layer, config);
  const auto model = std::dynamic_pointer_cast<Model>(layer);
  COHORT_CHECK_ARG(model != nullptr, "[model_from_config] expected a model, got ",
                   config.text("class_name"));
  const Config* compile = config.find("compile_config");
  if (compile != nullptr && compile->contains("optimizer")) model->compile_from_config(*compile);
  return model;
}

std::shared_ptr<Model> model_from_json(std::string_view text) {
  const internal::UnknownFieldsWarn lenient;
  return model_from_config(Config::parse_json(text));
}

}  // namespace cohort::keras
