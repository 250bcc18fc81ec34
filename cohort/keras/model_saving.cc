// SPDX-License-Identifier: Apache-2.0
//
// Whole models in .keras files, and back.
#include <filesystem>

#include "cohort/base/check.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/keras/internal/export_scope.h"
#include "cohort/keras/internal/unknown_fields.h"
#include "cohort/keras/internal/weights_to_come.h"
#include "cohort/keras/model.h"
#include "cohort/keras/model_assets.h"
#include "cohort/keras/model_file.h"
#include "cohort/keras/onnx/exporter.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::keras {

using cohort::internal::checkpoint::SavingGroup;
using internal::ModelFile;
using internal::StoredValues;
using internal::WeightsReader;

namespace {

// What the chief says of its file, on all.
constexpr const char* kConfig = "config";
constexpr const char* kOptimizerValues = "optimizer_values";
constexpr const char* kIsScaled = "is_scaled";
using Facts = std::map<std::string, std::string>;

std::unique_ptr<WeightsReader> reader_of(const std::string& path) {
  if (path.ends_with(".keras")) return std::make_unique<WeightsReader>("load_model", path);
  std::error_code ignored;
  COHORT_CHECK_ARG(std::filesystem::is_directory(path, ignored),
                   "[load_model] expected a path that ends with .keras, or the folder of a model, "
                   "got ",
                   path, ": load_weights is for .weights.h5 and .safetensors");
  return WeightsReader::of_folder("load_model", path);
}

Facts facts_of(SavingGroup* workers, const std::string& path,
               std::unique_ptr<WeightsReader>& file) {
  Facts facts;
  cohort::internal::checkpoint::together(workers, "load_model", [&] {
    if (cohort::internal::checkpoint::is_chief(workers)) {
      file = reader_of(path);
      facts[kConfig] = file->config();
      facts[kOptimizerValues] = std::to_string(file->optimizer_values());
      facts.insert(file->assets().begin(), file->assets().end());
      facts[kIsScaled] = std::to_string(static_cast<int>(file->has_scaled_optimizer()));
    }
    facts = cohort::internal::checkpoint::from_chief(workers, facts);
  });
  return facts;
}

// Keras's config names the optimizer that compile() was given. Whether it was put into another one,
// by the policy of that program, is seen by its state.
void scale_as_in_file(Config& model, bool is_scaled) {
  const Config* compiled = model.find("compile_config");
  const Config* given = compiled == nullptr ? nullptr : compiled->find("optimizer");
  if (given == nullptr || given->is_null()) return;
  Config& compile = model.at("compile_config");
  if (is_scaled) {
    const Optimizer optimizer = Optimizer::deserialize(*given);
    if (optimizer.base().wrapped() == nullptr) {
      compile.set("optimizer", LossScaleOptimizer(optimizer).serialize());
    }
  } else if (dtype_policy().name() == "mixed_float16") {
    compile.set("auto_scale_loss", false);
  }
}

// What is wrong with a config is told without a file's name.
template <class F>
auto of_config(const std::string& path, const F& read) {
  const auto told = [&](const char* what) {
    return str_cat("[load_model] ", path, ": its config.json: ", what);
  };
  try {
    return read();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(told(error.what()));
  } catch (const FailedPrecondition& error) {
    throw FailedPrecondition(told(error.what()));
  } catch (const Unimplemented& error) {
    throw Unimplemented(told(error.what()));
  } catch (const std::bad_alloc& error) {
    throw Error(ErrorCode::kResourceExhausted,
                told(str_cat("no memory for what it asks for: ", error.what()).c_str()));
  }
}

std::shared_ptr<Model> model_of_file(const std::string& path, const Facts& facts,
                                     const LoadModelOptions& options) {
  const std::string& text = facts.at(kConfig);
  Config config;
  try {
    config = Config::parse_json(text);
  } catch (const InvalidArgument& error) {
    throw DataLoss(str_cat("[load_model] ", path, ": config.json is damaged: ", error.what()));
  }
  if (!options.compile && config.is_object()) config.set("compile_config", Config::object());
  const bool is_scaled = facts.at(kIsScaled) == "1";
  const bool has_state = is_scaled || std::stoul(facts.at(kOptimizerValues)) > 0;
  const internal::UnknownFieldsWarn lenient;
  return of_config(path, [&] {
    if (has_state) scale_as_in_file(config, is_scaled);
    return model_from_config(config);
  });
}

// A config without what models were compiled with, those inside, too.
Config to_predict(const Config& config) {
  if (config.is_list()) {
    Config::List list;
    for (const Config& part : config.list()) list.push_back(to_predict(part));
    return list;
  }
  if (!config.is_object()) return config;
  Config out = Config::object();
  for (const auto& [name, part] : config.members()) {
    if (name != "compile_config") out.set(name, to_predict(part));
  }
  return out;
}

// All workers read the values together.
void write_on_chief(SavingGroup* workers, const Model& model, const std::string& path,
                    const std::string& config, const std::vector<WeightGroup>& groups) {
  const StoredValues values = internal::read_values(groups);
  cohort::internal::checkpoint::on_chief(workers, [&] {
    const StoredValues named = internal::named_values_of(model);
    internal::write_model_file(path, config, internal::hdf5_of(groups, values, named),
                               internal::assets_of(model));
  });
}

}  // namespace

void Model::save(const std::string& path) const {
  COHORT_CHECK_ARG(path.ends_with(".keras"), "[save] expected a path that ends with .keras, got ",
                   path, ": save_weights is for .weights.h5 and .safetensors");
  const Scope scope = enter("save");
  internal::check_has_weights("save", *this);
  // As who loads it does: the state of an optimizer that has not begun is there, too.
  if (compiled() && optimizer() && !trainable_variables().empty()) {
    optimizer().build(trainable_variables());
  }
  const std::string config = serialize().to_json();
  const auto workers = strategy_.extended().parameter_store()->saving_group();
  cohort::internal::checkpoint::together(workers.get(), "save", [&] {
    write_on_chief(workers.get(), *this, path, config, internal::stored_groups(*this));
  });
}

void Model::export_to(const std::string& path) const {
  const bool is_onnx = path.ends_with(".onnx");
  COHORT_CHECK_ARG(is_onnx || path.ends_with(".keras"),
                   "[export_to] expected a path that ends with .keras or .onnx, got ", path);
  const Scope scope = enter("export_to");
  internal::check_has_weights("export_to", *this);
  const auto workers = strategy_.extended().parameter_store()->saving_group();
  if (is_onnx) {  // all workers read the values together
    cohort::internal::checkpoint::together(workers.get(), "export_to", [&] {
      const std::string bytes = internal::onnx::file_of(*this);
      cohort::internal::checkpoint::on_chief(
          workers.get(), [&] { internal::write_bytes_file("export_to", path, bytes); });
    });
    return;
  }
  const std::string config = [&] {
    const internal::ExportScope untrained;  // which nothing is to be said of
    return to_predict(serialize()).to_json();
  }();
  cohort::internal::checkpoint::together(workers.get(), "export_to", [&] {
    write_on_chief(workers.get(), *this, path, config, weight_groups());
  });
}

std::shared_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options) {
  const auto store = get_strategy().extended().parameter_store();
  const auto workers = store->saving_group();
  std::unique_ptr<WeightsReader> file;  // the chief's
  const Facts facts = facts_of(workers.get(), path, file);
  // Elsewhere initial values are sent before those of the file are.
  const bool is_here = !store->is_remote() && store->layout().workers() == 1;
  const internal::WeightsToCome to_come(is_here, file ? file->bytes() : 0);
  std::shared_ptr<Model> model = model_of_file(path, facts, options);
  internal::check_has_weights("load_model", *model);
  const std::size_t optimizer_values = std::stoul(facts.at(kOptimizerValues));
  const bool has_state = model->compiled() && model->optimizer() && optimizer_values > 0 &&
                         !model->trainable_variables().empty();
  if (has_state) model->optimizer().build(model->trainable_variables());
  const auto groups = internal::stored_groups(*model);
  StoredValues values;
  cohort::internal::checkpoint::together(workers.get(), "load_model", [&] {
    if (cohort::internal::checkpoint::is_chief(workers.get())) {
      const auto differences = file->differences(groups);
      COHORT_CHECK_ARG(differences.empty(), "[load_model] expected the values of \"", model->name(),
                       "\" in ", path, ", got ", join(differences, "; "),
                       ": without the optimizer it is loaded by load_model(path, {.compile = "
                       "false})");
      if (is_here) {
        file->fill(groups);  // whose model is new
      } else {
        values = file->read(groups);
      }
      values.merge(file->named_values());
    }
    values = cohort::internal::checkpoint::from_chief(workers.get(), std::move(values));
  });
  internal::assign_values(groups, values);
  std::vector<Variable> filled;
  for (const WeightGroup& group : groups) {
    filled.insert(filled.end(), group.weights.begin(), group.weights.end());
  }
  to_come.draw_all_but(filled);
  internal::set_named_values(*model, values);
  internal::set_assets(*model, facts);
  return model;
}

}  // namespace cohort::keras
