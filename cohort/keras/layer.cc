// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layer.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/internal/initial_draws.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/structure_version.h"
#include "cohort/keras/internal/weights_to_come.h"

namespace cohort::keras {
namespace {

// Grows whenever a layer anywhere gets a weight or a sub-layer, is frozen or thawed: cached lists
// compare it, so a parent sees what happens below it without links upwards.
std::atomic<uint64_t> g_structure_version{1};

constinit cohort::internal::base::Mutex g_names_mutex;
[[maybe_unused]] const bool names_kept = cohort::internal::base::keep_free_over_fork(g_names_mutex);
std::map<std::string, int>& name_counts() COHORT_REQUIRES(g_names_mutex) {
  static auto* counts = new std::map<std::string, int>;  // outlives layers with static storage
  return *counts;
}

// "MaxPooling2D" -> "max_pooling2d", as Keras spells it.
std::string snake_case(const std::string& text) {
  const auto upper = [&](std::size_t i) {
    return std::isupper(static_cast<unsigned char>(text[i]));
  };
  const auto lower = [&](std::size_t i) {
    return i < text.size() && std::islower(static_cast<unsigned char>(text[i]));
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && upper(i) && (lower(i - 1) || lower(i + 1))) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i])));
  }
  return out;
}

// "dense" and "dense_3" of "dense".
bool is_numbered(const std::string& name, const std::string& by_class) {
  if (!name.starts_with(by_class)) return false;
  const std::string_view rest = std::string_view(name).substr(by_class.size());
  return rest.empty() || (rest.size() > 1 && rest[0] == '_' &&
                          rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

std::string unique_name(const std::string& class_name) {
  const std::string base = snake_case(class_name);
  const cohort::internal::base::MutexLock lock(g_names_mutex);
  const int count = name_counts()[base]++;
  return count == 0 ? base : str_cat(base, "_", count);
}

// What a program's own makes of numbers, zeros may not be fit for.
bool is_cohorts(const Initializer& initializer) {
  const InitializerBase* object = initializer.object();
  return object != nullptr && internal::class_table<InitializerBase>().has_builtin(*object);
}

}  // namespace

void LayerBase::structure_changed() { g_structure_version.fetch_add(1, std::memory_order_acq_rel); }

void clear_session() {
  const cohort::internal::base::MutexLock lock(g_names_mutex);
  name_counts().clear();
}

LayerBase::LayerBase(std::string name)
    : place_(std::make_shared<LayerBase*>(this)), name_(std::move(name)) {}
// What is moved may be in use, or be a part of this: an error.
// NOLINTNEXTLINE(performance-noexcept-move-constructor)
LayerBase::LayerBase(LayerBase&& other) { take(other); }
// NOLINTNEXTLINE(performance-noexcept-move-constructor)
LayerBase& LayerBase::operator=(LayerBase&& other) {
  if (this == &other) return *this;
  other.check_not_moved("move");
  const auto holds = [](const LayerBase& layer, const LayerBase& part) {
    Family family;
    layer.collect(family, true);
    return std::ranges::count(family, &part, &Family::value_type::first) > 0;
  };
  COHORT_CHECK_STATE(!holds(other, *this), "[move] expected \"", other.name(),
                     "\" to be moved to a layer or model that it does not hold, got its own \"",
                     name(), "\"");
  const bool was_part = holds(*this, other);
  std::vector<Layer> replaced = std::exchange(sub_layers_, {});
  places_.clear();
  end();
  take(other);
  // Who derives moves the rest out of `other` after this.
  replaced_ = was_part ? std::move(replaced) : std::vector<Layer>();
  return *this;
}
LayerBase::~LayerBase() { end(); }

// For those who refer to it. Nobody else has what ends or moves: replicas are at rest.
void LayerBase::end() {
  if (tracked_ != nullptr) tracked_->release();
  if (place_ != nullptr) *place_ = nullptr;
}

// Mutexes stay with the objects; the rest goes over, but for the name, by which errors call both.
// Nobody else has either layer: replicas are at rest.
void LayerBase::take(LayerBase& other) {
  other.check_not_moved("move");
  name_ = other.name();
  named_by_class_ = other.named_by_class_;
  name_fixed_.store(true);
  place_ = std::move(other.place_);
  *place_ = this;
  tracked_ = std::move(other.tracked_);
  trainable_ = other.trainable_;
  weights_state_ = std::exchange(other.weights_state_, Weights::kNone);
  weights_ = std::exchange(other.weights_, {});
  sub_layers_ = std::exchange(other.sub_layers_, {});
  places_ = std::exchange(other.places_, {});
  zeros_error_ = std::move(other.zeros_error_);
  input_spec_ = other.input_spec_;
  build_spec_ = other.build_spec_;
  policy_ = other.policy_;
  autocasts_ = other.autocasts_;
  cast_to_ = other.cast_to_;
  is_mixed_ = other.is_mixed_;
  activity_regularizer_ = other.activity_regularizer_;
  stage_.store(other.stage_.exchange(Stage::kNew));
  lists_ = std::exchange(other.lists_, {});  // spans of them stay valid
  lists_version_.store(0);
  structure_changed();
}

void LayerBase::check_not_moved(const char* operation) const {
  COHORT_CHECK_STATE(place_ != nullptr, "[", operation, "] expected a layer or model, got \"",
                     name(), "\", which was moved to another variable: use that one");
}

std::string LayerBase::class_name() const { return internal::class_name_of(typeid(*this), kKind); }

Config LayerBase::get_build_config() const {
  if (!built() || !has_build_config()) return {};
  return Config::object({{"input_shape", internal::shapes_config(build_spec_)}});
}

namespace {
// Keras's TimeDistributed asks the model within it for the shape of one tensor, and a model whose
// config has lists of one takes lists. Elsewhere they are kept: all versions of Keras 3 read them.
void name_one_tensor(Config& time_distributed) {
  Config& layer = time_distributed.at("config").at("layer");
  if (!layer.is_object() || layer.find("config") == nullptr) return;
  Config& model = layer.at("config");
  for (const char* const places : {"input_layers", "output_layers"}) {
    const Config* const all = model.is_object() ? model.find(places) : nullptr;
    const bool is_one = all != nullptr && all->is_list() && all->list().size() == 1;
    if (!is_one || !all->list()[0].is_list()) continue;
    Config::List one = all->list()[0].list();
    model.set(places, std::move(one));
  }
}
}  // namespace

Config LayerBase::serialize() const {
  Config config = internal::class_table<LayerBase>().serialize(*this);
  if (config.text("class_name") == "TimeDistributed") name_one_tensor(config);
  if (Config build = get_build_config(); !build.is_null()) {
    config.set("build_config", std::move(build));
  }
  return config;
}

Layer Layer::deserialize(const Config& config) {
  auto layer =
      std::static_pointer_cast<LayerBase>(internal::class_table<LayerBase>().deserialize(config));
  internal::build_as_told(*layer, config);
  return layer;
}

// What is fixed may be read without the mutex.
const std::string& LayerBase::name() const {
  if (!name_fixed_.load(std::memory_order_acquire)) {
    const cohort::internal::base::MutexLock lock(name_mutex_);
    if (name_.empty()) {
      name_ = unique_name(class_name());
      named_by_class_ = true;
    }
    name_fixed_.store(true, std::memory_order_release);
  }
  return name_;
}

void LayerBase::set_name(std::string name) {
  const cohort::internal::base::MutexLock lock(name_mutex_);
  name_ = std::move(name);
  named_by_class_ = false;
  name_fixed_.store(!name_.empty(), std::memory_order_release);
}

bool LayerBase::is_named_by_class() const {
  name();
  const cohort::internal::base::MutexLock lock(name_mutex_);
  return named_by_class_;
}

// Also of a model that was read from a config, which has the names of another process: there the
// number says nothing.
std::string LayerBase::tracked_name() const {
  const std::string by_class = stored_class();
  return is_named_by_class() || is_numbered(name(), by_class) ? by_class : name();
}

std::string LayerBase::stored_class() const { return snake_case(class_name()); }

std::string LayerBase::waiting_sub_layer() const {
  // Of one that was called, what has no weights is not used.
  if (stage_.load(std::memory_order_acquire) >= Stage::kCalled) return {};
  for (const Layer& handle : sub_layers_) {
    const LayerBase& layer = handle.base();
    const bool has_none = layer.weights_.empty() && layer.sub_layers_.empty();
    const bool waits = has_none && !layer.built() && layer.may_have_weights();
    if (waits) return layer.name();  // weights without a build are its constructor's
    const std::string below = layer.waiting_sub_layer();
    if (!below.empty()) return layer.name() + "/" + below;
  }
  return {};
}

std::string LayerBase::zeros_error() const {
  if (!zeros_error_.empty() && !waiting_sub_layer().empty()) return zeros_error_;
  for (const Layer& layer : sub_layers_) {
    const std::string below = layer.base().zeros_error();
    if (!below.empty()) return below;
  }
  return {};
}

Variable LayerBase::add_weight(const WeightOptions& options) {
  check_not_moved("add_weight");
  for (const int64_t n : options.shape) {
    COHORT_CHECK_ARG(n >= 0, "[", name(), "] expected known sizes for the weight ", options.name,
                     ", got ", bracketed(options.shape));
  }
  VariableOptions made;
  made.name = str_cat(name(), "/", options.name.empty() ? "weight" : options.name);
  made.trainable = options.trainable;
  made.synchronization = options.synchronization;
  made.aggregation = options.aggregation;
  made.shape = options.shape;
  made.constraint = options.constraint.function();
  made.dtype = options.dtype == DType::Undefined ? policy_.variable_dtype() : options.dtype;
  const Initializer initializer = options.initializer;
  internal::WeightsToCome* const to_come =
      is_cohorts(initializer) ? internal::WeightsToCome::here() : nullptr;
  std::optional<internal::InitialDraws> none;
  if (to_come != nullptr) {
    to_come->expect(made.name, options.shape, *made.dtype);
    none.emplace();
  }
  // Of a part, what it is in the whole: an initializer looks at the number of inputs and outputs.
  const Variable variable(
      [initializer](const Shape& shape, DType dtype, const PartitionInfo& of) {
        if (shape == of.shape) return initializer(shape, dtype);
        return InitialValue(initializer(of.shape, dtype)).make_part(shape, of, dtype);
      },
      made);
  if (to_come != nullptr) {
    const auto version = variable.value()._version();
    to_come->add(variable, [=, number = none->number()] {
      if (variable.value()._version() != version) return;  // the layer has written it
      const internal::InitialDraws again(number);
      variable.assign(initializer(variable.shape(), variable.dtype()));
    });
  }
  weights_.push_back({options.name.empty() ? "weight" : options.name, variable, options.regularizer,
                      options.trainable});
  structure_changed();
  return variable;
}

void LayerBase::track(Layer layer, std::string place) {
  check_not_moved("add");
  sub_layers_.push_back(std::move(layer));
  places_.push_back(std::move(place));
  structure_changed();
}

void LayerBase::set_trainable(bool on) {
  check_not_moved("set_trainable");
  trainable_ = on;
  for (const Layer& layer : sub_layers_) layer.base().set_trainable(on);
  structure_changed();
}

void LayerBase::collect(Family& family, bool parent_trainable) const {
  const bool trainable = parent_trainable && trainable_;
  const auto known = std::find_if(family.begin(), family.end(),
                                  [this](const auto& member) { return member.first == this; });
  if (known == family.end()) {
    family.emplace_back(this, trainable);
  } else if (known->second || !trainable) {
    return;
  } else {
    known->second = true;  // frozen by way of another parent only
  }
  for (const Layer& layer : sub_layers_) layer.base().collect(family, trainable);
}

LayerBase::Lists LayerBase::make_lists() const {
  Family family;
  collect(family, true);
  Lists lists;
  for (const auto& [layer, trainable] : family) {
    bool penalized = false;
    for (const OwnWeight& weight : layer->weights_) {
      const bool trains = trainable && weight.trainable;
      lists.all.push_back(weight.variable);
      (trains ? lists.trainable : lists.frozen).push_back(weight.variable);
      penalized = penalized || (trains && weight.regularizer);
    }
    if (penalized) lists.penalized.push_back(layer);
  }
  return lists;
}

// Those of the version may be read without the mutex: whoever changes layers has replicas at rest.
const LayerBase::Lists& LayerBase::lists() const {
  const uint64_t version = g_structure_version.load(std::memory_order_acquire);
  if (lists_version_.load(std::memory_order_acquire) != version) renew_lists(version);
  return lists_;
}

void LayerBase::renew_lists(uint64_t version) const {
  check_not_moved("variables");
  const cohort::internal::base::MutexLock lock(lists_mutex_);
  Lists fresh = make_lists();
  // Another layer's change, or a move, leaves this one's spans valid.
  const auto update = [](auto& list, auto& now) {
    if (list != now) list = std::move(now);
  };
  update(lists_.all, fresh.all);
  update(lists_.trainable, fresh.trainable);
  update(lists_.frozen, fresh.frozen);
  update(lists_.penalized, fresh.penalized);
  lists_version_.store(version, std::memory_order_release);
}

uint64_t internal::structure_version() {
  return g_structure_version.load(std::memory_order_acquire);
}

std::span<const Variable> LayerBase::variables() const { return lists().all; }
std::span<const Variable> LayerBase::trainable_variables() const { return lists().trainable; }
std::span<const Variable> LayerBase::non_trainable_variables() const { return lists().frozen; }

Tensor LayerBase::regularization_loss() const {
  Tensor sum;
  const auto add = [&sum](const Tensor& loss) { sum = sum.defined() ? sum + loss : loss; };
  for (const LayerBase* layer : lists().penalized) {
    for (const OwnWeight& weight : layer->weights_) {
      if (weight.trainable && weight.regularizer) add(weight.regularizer(weight.variable.value()));
    }
  }
  return sum;
}

}  // namespace cohort::keras
