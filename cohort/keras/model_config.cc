// SPDX-License-Identifier: Apache-2.0
//
// Models as configs, and back.
#include "cohort/base/check.h"
#include "cohort/base/logging.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/internal/classes.h"
#include "cohort/keras/sequential.h"

namespace cohort::keras {
namespace {

Config metric_list(const std::vector<Metric>& metrics) {
  if (metrics.empty()) return {};
  Config::List list;
  for (const Metric& metric : metrics) list.push_back(metric.serialize());
  return list;
}

std::vector<Metric> metrics_of(const Config& config, const char* name) {
  std::vector<Metric> metrics;
  const Config* list = config.find(name);
  if (list == nullptr || list->is_null()) return metrics;
  if (!list->is_list()) {
    throw Unimplemented(str_cat("[compile_from_config] expected a list of ", name, ", got ", *list,
                                ": metrics by output are not there yet"));
  }
  for (const Config& metric : list->list()) {
    if (metric.is_list()) {
      throw Unimplemented(str_cat("[compile_from_config] expected a list of ", name, ", got ",
                                  *list, ": metrics by output are not there yet"));
    }
    metrics.push_back(Metric::deserialize(metric));
  }
  return metrics;
}

Loss loss_of(const Config& config) {
  const Config* weights = config.find("loss_weights");
  if (weights != nullptr && !weights->is_null()) {
    throw Unimplemented(str_cat("[compile_from_config] expected no loss_weights, got ", *weights,
                                ": they are not there yet"));
  }
  const Config* loss = config.find("loss");
  if (loss == nullptr) return {};
  if (loss->is_list() || (loss->is_object() && !loss->contains("class_name"))) {
    throw Unimplemented(str_cat("[compile_from_config] expected one loss, got ", *loss,
                                ": losses by output are not there yet"));
  }
  return Loss::deserialize(*loss);
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

Config input_layer(const Shape& shape) {
  Config config = DeclaredInput({.batch_shape = shape, .name = "input_layer"}).get_config();
  return Config::object({{"module", "keras.layers"},
                         {"class_name", "InputLayer"},
                         {"config", std::move(config)},
                         {"registered_name", nullptr}});
}

}  // namespace

Config Model::get_compile_config() const {
  const auto& compiled = checked("get_compile_config");
  const CompileOptions& options = compiled.options;
  Config config = Config::object();
  config.set("optimizer", options.optimizer.serialize());
  config.set("loss", options.loss.serialize());
  config.set("loss_weights", nullptr);
  config.set("metrics", metric_list(compiled.given_metrics));
  config.set("weighted_metrics", metric_list(compiled.given_weighted_metrics));
  config.set("run_eagerly", false);
  config.set("steps_per_execution", options.steps_per_execution);
  config.set("jit_compile", false);
  return config;
}

void Model::compile_from_config(const Config& config) {
  CompileOptions options;
  if (const Config* optimizer = config.find("optimizer"); optimizer != nullptr) {
    if (!optimizer->is_null()) options.optimizer = Optimizer::deserialize(*optimizer);
  }
  options.loss = loss_of(config);
  options.metrics = metrics_of(config, "metrics");
  options.weighted_metrics = metrics_of(config, "weighted_metrics");
  if (const Config* steps = config.find("steps_per_execution"); steps != nullptr) {
    options.steps_per_execution = ConfigValue<int>::read(*steps);
  }
  const Scope scope = enter("compile_from_config");
  compile(std::move(options));
}

Config Model::serialize() const {
  Config config = LayerBase::serialize();
  Config compile = Config::object();
  if (compiled()) {
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
  Config::List list;
  if (input_shape_ && !declared_input_shape()) list.push_back(input_layer(*input_shape_));
  for (const Layer& layer : layers()) list.push_back(layer.serialize());
  Config config = Config::object();
  config.set("name", name());
  config.set("trainable", trainable());
  config.set("dtype", DTypePolicy().serialize());
  config.set("layers", std::move(list));
  if (input_shape_) config.set("build_input_shape", ShapeValue::write(*input_shape_));
  return config;
}

std::shared_ptr<Sequential> Sequential::from_config(const Config& config) {
  const SequentialFields fields = options_of<SequentialFields>(config, "Sequential");
  auto model = std::make_shared<Sequential>(fields.layers, fields.name);
  if (!fields.trainable) model->set_trainable(false);
  return model;
}

void internal::add_models(ClassTable& table) { table.add_builtin<Sequential>(); }

std::shared_ptr<Model> model_from_config(const Config& config) {
  const auto model =
      std::dynamic_pointer_cast<Model>(internal::class_table<LayerBase>().deserialize(config));
  COHORT_CHECK_ARG(model != nullptr, "[model_from_config] expected a model, got ",
                   config.text("class_name"));
  const Config* build = config.find("build_config");
  const Config* shape = build == nullptr ? nullptr : build->find("input_shape");
  if (!model->built() && shape != nullptr && !shape->is_null()) {
    model->ensure_built(ShapeValue::read(*shape));
  }
  const Config* compile = config.find("compile_config");
  if (compile != nullptr && compile->contains("optimizer")) model->compile_from_config(*compile);
  return model;
}

std::shared_ptr<Model> model_from_json(std::string_view text) {
  return model_from_config(Config::parse_json(text));
}

}  // namespace cohort::keras
