// SPDX-License-Identifier: Apache-2.0
//
// Which values options may have, against real Keras: golden/ranges.json, which
// golden/write_ranges.py writes. What Keras refuses is refused here, with an error of our own, when
// the object is made or used; what it takes is taken, and gives numbers where Keras has numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "cohort/base/error.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/test_golden_layers.h"

namespace cohort::keras {
namespace {

using data::Element;

// Options of which we refuse values that Keras takes, and why.
struct Stricter {
  const char* reason;
  std::vector<std::string> options;
};

const std::vector<Stricter>& where_stricter() {
  static const std::vector<Stricter> all = {
      {"steps go uphill, grow without end, or weights are pushed away from where they are to be",
       {"optimizers.learning_rate", "optimizers.initial_learning_rate", "optimizers.values",
        "optimizers.end_learning_rate", "optimizers.alpha", "optimizers.warmup_target",
        "optimizers.m_mul", "optimizers.decay_rate", "optimizers.weight_decay",
        "optimizers.adam_weight_decay", "optimizers.adam_lr_ratio", "optimizers.rms_rate",
        "optimizers.beta", "optimizers.beta_2_decay"}},
      {"averages with a share beyond [0, 1] are none, and their roots are no numbers",
       {"optimizers.beta_1", "optimizers.beta_2", "optimizers.adam_beta_1",
        "optimizers.adam_beta_2", "optimizers.rho", "optimizers.momentum",
        "optimizers.ema_momentum", "layers.momentum"}},
      {"gradients clipped to a negative size are turned around",
       {"optimizers.clipnorm", "optimizers.clipvalue", "optimizers.global_clipnorm",
        "optimizers.clip_threshold"}},
      {"added so that nothing is divided by zero: a negative one makes that happen",
       {"optimizers.epsilon", "optimizers.epsilon_2", "layers.epsilon"}},
      {"Keras takes a number of none or fewer for no option at all",
       {"optimizers.gradient_accumulation_steps", "optimizers.ema_overwrite_frequency",
        "optimizers.ns_steps", "optimizers.warmup_steps", "callbacks.save_freq",
        "callbacks.update_freq", "callbacks.histogram_freq", "callbacks.patience",
        "callbacks.cooldown", "metrics.top_k", "metrics.num_labels", "layers.num_chains",
        "layers.chain_depth", "layers.num_bins", "layers.bins", "layers.sequence_length"}},
      {"a share of what is dropped, or of labels that are smoothed, is in [0, 1]",
       {"layers.dropout", "layers.recurrent_dropout", "losses.label_smoothing",
        "metrics.label_smoothing"}},
      {"noise of infinite size: Keras's is left out, as if the rate were 0", {"layers.rate"}},
      {"the rate would change its sign with each reduction", {"callbacks.factor"}},
      {"another word is taken for the default, with a warning or without",
       {"callbacks.mode", "layers.mode", "layers.data_format"}},
      {"nothing is left between the ends", {"layers.value_range", "layers.max_freq"}},
      {"of an axis that is the batch's, or none at all", {"layers.axis", "layers.axes"}},
      {"of axes that are the batch's, the features', or one twice", {"layers.attention_axes"}},
      {"an image of no rows or columns", {"layers.height", "layers.width"}},
      {"no sound has it", {"layers.sampling_rate", "layers.min_freq"}},
      {"proportions are drawn from a distribution that there is not", {"layers.alpha"}},
      {"another shape than the equation gives, or none", {"layers.output_shape"}},
      {"no class has it", {"metrics.target_class_ids"}},
      {"of another type than the option",
       {"layers.activity_regularizer", "layers.shared_axes", "layers.reverse_dtype",
        "metrics.label_weights", "layers.factor", "layers.brightness_factor"}},
  };
  return all;
}

bool is_stricter(const std::string& module_and_option) {
  return std::ranges::any_of(where_stricter(), [&](const Stricter& one) {
    return std::ranges::count(one.options, module_and_option) > 0;
  });
}

// All else that differs, by "module.Class.option=value" or without a value.
const std::map<std::string, std::string>& other_differences() {
  static const std::map<std::string, std::string> known = {
      {"optimizers.Adam.gradient_accumulation_steps=1", "here it says that there is none"},
      {"optimizers.Muon.muon_c=0.0", "what a polynomial without it gives grows beyond float32"},
      {"layers.RandomShear.x_factor=[-1.0, -1.0]",
       "Keras writes the number 1 as [-1, 1] into configs, which it does not open again"},
      {"layers.RandomShear.y_factor=[-1.0, -1.0]", "the same"},
      {"layers.RMSNormalization.axis=[-1, 1]",
       "Keras lays its scale out in the order in which axes are named, so that it fits no input"},
      {"metrics.IoU.axis", "of class numbers nothing is read along it"},
      {"metrics.MeanIoU.axis", "the same"},
      {"metrics.OneHotIoU.axis=1", "the classes' axis of a matrix; Keras looks for it in labels"},
      {"metrics.OneHotMeanIoU.axis=1", "the same"},
  };
  return known;
}

const Config& golden_file(const std::string& name) {
  static std::map<std::string, Config> read;
  const auto at = read.find(name);
  if (at != read.end()) return at->second;
  return read[name] = testing::read_golden(std::string(COHORT_GOLDEN) + "/" + name);
}

// "layers/basic.json:dense", "losses.json:3".
const Config& base_case(const std::string& where) {
  const std::size_t colon = where.find(':');
  const std::string file = where.substr(0, colon), name = where.substr(colon + 1);
  const Config& all = golden_file(file);
  const Config& in = file == "optimizers.json" ? all.at(name.substr(0, name.find('/'))) : all;
  if (in.is_object()) return in.at(name);
  return in.list().at(std::stoul(name.substr(name.find('/') + 1)));
}

// As the files of losses and metrics write it.
Tensor tensor_of(const Config& golden) {
  Shape shape;
  for (const Config& size : golden.at("shape").list()) shape.push_back(size.integer());
  std::vector<double> numbers;
  for (const Config& x : golden.at("data").list()) numbers.push_back(x.number());
  return from_vector(numbers, shape).to(ConfigValue<DType>::read(golden.at("dtype")));
}

bool is_finite(const Element& nest) {
  if (!nest.has_value() || nest.is_string()) return true;
  if (nest.is_tensor()) {
    return !nest.tensor().is_floating_point() || nest.tensor().isfinite().all().item<bool>();
  }
  bool all = true;
  for (std::size_t i = 0; i < nest.size(); ++i) all = all && is_finite(nest[i]);
  return all;
}

Element use_layer(const Config& config, const Config& base) {
  const Layer layer = Layer::deserialize(config);
  return layer(testing::element_in(base.at("inputs")), {.training = base.at("training").boolean()});
}

Element use_loss(const Config& config, const Config& base) {
  const Loss loss = Loss::deserialize(config);
  return loss(tensor_of(base.at("y_true")), tensor_of(base.at("y_pred")));
}

Element use_metric(const Config& config, const Config& base) {
  const Metric metric = Metric::deserialize(config);
  const Config& update = base.at("updates").list().at(0);
  const Config& scores = update.at("y_pred");
  metric.update_state(tensor_of(update.at("y_true")),
                      scores.is_null() ? Tensor() : tensor_of(scores));
  return metric.result();
}

Element use_optimizer(const Config& config) {
  const Optimizer optimizer = Optimizer::deserialize(config);
  const std::vector<Variable> weights = {Variable(full({3, 4}, 0.5), {.name = "kernel"}),
                                         Variable(full({4}, 0.5), {.name = "bias"})};
  for (const double sign : {1.0, -1.0}) {
    std::vector<GradientAndVariable> gradients;
    for (const Variable& w : weights) {
      const auto count = w.impl().numel();
      const Tensor line = arange(count, kFloat32) * (0.9 / static_cast<double>(count - 1)) + 0.1;
      gradients.push_back({sign * line.view(w.shape()), w});
    }
    optimizer.apply_gradients(std::move(gradients));
  }
  return Element::tuple({weights[0].value(), weights[1].value()});
}

Element use_schedule(const Config& config) {
  const LearningRate schedule = LearningRate::deserialize(config);
  return tensor({schedule(0), schedule(1), schedule(20)});
}

Tensor some_weight() { return (arange(12, kFloat32) * (2.0 / 11) - 1).view({3, 4}); }

Element use(const Config& config, const Config& base) {
  const std::string& module = config.text("module");
  if (module == "keras.initializers") {
    return Initializer::deserialize(config)({4, 4}, kFloat32);
  }
  if (module == "keras.regularizers") return Regularizer::deserialize(config)(some_weight());
  if (module == "keras.constraints") return Constraint::deserialize(config)(some_weight());
  if (module == "keras.losses") return use_loss(config, base);
  if (module == "keras.metrics") return use_metric(config, base);
  if (module == "keras.optimizers") return use_optimizer(config);
  if (module == "keras.optimizers.schedules") return use_schedule(config);
  return use_layer(config, base);
}

// With another value of one option. `config` is of an object with its class.
Config changed(const Config& config, const std::string& option, const Config& value) {
  Config inner = config.at("config");
  inner.set(option, value);
  Config out = Config::object();
  for (const auto& [name, part] : config.members()) {
    if (name != "build_config") out.set(name, name == "config" ? inner : part);
  }
  return out;
}

struct Outcome {
  std::string what;  // as in the file, or "unclear", or "not there yet"
  std::string error;
};

Outcome outcome_of(const std::function<bool()>& finite) {
  try {
    return {finite() ? "taken" : "not finite", ""};
  } catch (const Unimplemented& error) {
    return {"not there yet", error.what()};
  } catch (const Error& error) {
    return {"refused", error.what()};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {"unclear", text.substr(0, text.find('\n'))};
  }
}

// `where`: {module, class, option}.
void compare(const std::vector<std::string>& where, const Config& value, const std::string& keras,
             const Outcome& ours) {
  const std::string option = str_cat(where[0], ".", where[1], ".", where[2]);
  const std::string what = str_cat(option, "=", value.to_json());
  EXPECT_NE(ours.what, "unclear") << what << ": " << ours.error;
  if (ours.what == keras || ours.what == "not there yet") return;
  if (ours.what == "refused" && keras == "not finite") return;
  if (ours.what == "refused" && keras == "taken" && is_stricter(str_cat(where[0], ".", where[2]))) {
    return;
  }
  const auto& known = other_differences();
  if (known.contains(what) || known.contains(option)) return;
  ADD_FAILURE() << what << ": Keras: " << keras << ", here: " << ours.what << " " << ours.error;
}

struct RangeCase {
  std::string name;
  Config config;
  friend std::ostream& operator<<(std::ostream& out, const RangeCase& c) { return out << c.name; }
};

std::vector<RangeCase> range_cases() {
  std::vector<RangeCase> all;
  for (const auto& [name, config] : golden_file("ranges.json").members()) {
    if (!name.starts_with("callbacks.")) all.push_back({name, config});
  }
  return all;
}

class GoldenRangesOf : public ::testing::TestWithParam<RangeCase> {};

TEST_P(GoldenRangesOf, AreThoseOfKeras) {
  const Config& base = base_case(GetParam().config.text("of"));
  const Config* found = base.find("layer");
  if (found == nullptr) found = base.find("config");
  const bool is_whole = found == nullptr || !found->contains("module");
  const Config& object = is_whole ? base : *found;
  for (const auto& [name, values] : GetParam().config.at("options").members()) {
    const auto& option = name;  // Clang 14's lambdas capture no structured bindings
    for (const Config& one : values.list()) {
      const Config& value = one.list().at(0);
      const Outcome ours =
          outcome_of([&] { return is_finite(use(changed(object, option, value), base)); });
      const std::size_t dot = GetParam().name.find('.');
      compare({GetParam().name.substr(0, dot), GetParam().name.substr(dot + 1), option}, value,
              one.list().at(1).text(), ours);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Keras, GoldenRangesOf, ::testing::ValuesIn(range_cases()),
                         [](const auto& one) {
                           std::string name = one.param.name;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

using MakeCallback = std::function<void(const std::string& option, const Config& value)>;

template <class Options>
void set(Options& options, const std::string& option, const Config& value) {
  if (option == "patience") options.patience = static_cast<int>(value.integer());
  if (option == "mode") options.mode = value.text();
  if (option == "min_delta") options.min_delta = value.number();
}

const std::map<std::string, MakeCallback>& callback_makers() {
  static const std::map<std::string, MakeCallback> makers = {
      {"EarlyStopping",
       [](const std::string& option, const Config& value) {
         EarlyStoppingOptions o;
         set(o, option, value);
         if (option == "start_from_epoch") o.start_from_epoch = static_cast<int>(value.integer());
         EarlyStopping{o};
       }},
      {"ReduceLROnPlateau",
       [](const std::string& option, const Config& value) {
         ReduceLROnPlateauOptions o;
         set(o, option, value);
         if (option == "factor") o.factor = value.number();
         if (option == "cooldown") o.cooldown = static_cast<int>(value.integer());
         if (option == "min_lr") o.min_lr = value.number();
         ReduceLROnPlateau{o};
       }},
      {"ModelCheckpoint",
       [](const std::string& option, const Config& value) {
         ModelCheckpointOptions o;
         if (option == "mode") o.mode = value.text();
         if (option == "save_freq") o.save_every_batches = value.integer();
         ModelCheckpoint("x.keras", o);
       }},
      {"BackupAndRestore",
       [](const std::string&, const Config& value) {
         BackupAndRestore("x", {.save_freq = value.integer()});
       }},
      {"TensorBoard",
       [](const std::string& option, const Config& value) {
         TensorBoardOptions o;
         if (option == "update_freq") o.update_freq = value.integer();
         if (option == "histogram_freq") o.histogram_freq = static_cast<int>(value.integer());
         TensorBoard("x", o);
       }},
  };
  return makers;
}

TEST(GoldenRanges, OfCallbacksAreThoseOfKeras) {
  for (const auto& [name, make] : callback_makers()) {
    const Config& golden = golden_file("ranges.json").at("callbacks." + name);
    for (const auto& [option, values] : golden.at("options").members()) {
      for (const Config& one : values.list()) {
        const Config& value = one.list().at(0);
        const Outcome ours = outcome_of([&, &make = make, &option = option] {
          make(option, value);
          return true;
        });
        compare({"callbacks", name, option}, value, one.list().at(1).text(), ours);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::keras
