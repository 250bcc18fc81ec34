// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/serializable.h"

#include <map>
#include <typeindex>

#include "cohort/base/check.h"
#include "cohort/base/demangle.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"

namespace cohort::keras {

std::string Serializable::class_name() const { return internal::class_name_of(typeid(*this)); }

Config Serializable::get_config() const {
  const std::string name = class_name();
  throw Unimplemented(str_cat("[", name,
                              ".get_config] expected a class that says what it is made "
                              "with, got ",
                              name,
                              ": override get_config(), or derive from the Impl "
                              "class with options that have fields"));
}

}  // namespace cohort::keras

namespace cohort::keras::internal {

std::string class_name_of(const std::type_info& type, const char* kind) {
  const std::string full = cohort::internal::base::demangled(type.name());
  const std::string whole = full.substr(0, full.find('<'));  // without a template's arguments
  const std::size_t colon = whole.rfind(':');
  std::string name = colon == std::string::npos ? whole : whole.substr(colon + 1);
  const std::string_view ending = kind;
  const bool ours = full.starts_with("cohort::keras::");
  if (ours && name.size() > ending.size() && name.ends_with(ending)) {
    name = name.substr(0, name.size() - ending.size());
  }
  return name;
}

struct ClassTable::Classes {
  struct Entry {
    std::type_index type;
    bool builtin = false;
    Make make;
  };
  mutable cohort::internal::base::Mutex mutex;
  // "package>Name", or the name of a built-in one.
  std::map<std::string, Entry> by_name COHORT_GUARDED_BY(mutex);
  std::map<std::type_index, std::string> names COHORT_GUARDED_BY(mutex);
};

// Tables live as long as the process, and everything that is saved passes them.
ClassTable::ClassTable(const char* kind, const char* module)
    : kind_(kind), module_(module), classes_(std::make_unique<Classes>()) {
  cohort::internal::base::keep_free_over_fork(classes_->mutex);
}
ClassTable::~ClassTable() = default;

void ClassTable::add(const std::type_info& type, const std::string& package,
                     const std::string& name, Make make) {
  COHORT_CHECK_ARG(!package.empty() && package.find('>') == std::string::npos,
                   "[register] expected a package's name without \">\" for ", name, ", got \"",
                   package, '"');
  add_entry(type, package + ">" + name, false, std::move(make));
}

void ClassTable::add_entry(const std::type_info& type, const std::string& key, bool builtin,
                           Make make) {
  const cohort::internal::base::MutexLock lock(classes_->mutex);
  const auto [entry, added] = classes_->by_name.insert({key, {type, builtin, std::move(make)}});
  // A header that registers is included by several sources.
  COHORT_CHECK_ARG(added || entry->second.type == type, "[register] expected a new name, got ", key,
                   ", which another class has already");
  classes_->names[type] = key;
}

bool ClassTable::has_builtin(const Serializable& object) const {
  const cohort::internal::base::MutexLock lock(classes_->mutex);
  const auto found = classes_->names.find(typeid(object));
  return found != classes_->names.end() && classes_->by_name.at(found->second).builtin;
}

Config ClassTable::serialize(const Serializable& object) const {
  std::string key;
  bool builtin = false;
  {
    const cohort::internal::base::MutexLock lock(classes_->mutex);
    const auto found = classes_->names.find(typeid(object));
    if (found != classes_->names.end()) {
      key = found->second;
      builtin = classes_->by_name.at(key).builtin;
    }
  }
  const std::string own_name = object.class_name();
  Config config = object.get_config();
  if (key.empty()) {
    COHORT_LOG(kWarning, "[get_config] ", own_name,
               " is written by its name, which no program can read unless "
               "COHORT_REGISTER_SERIALIZABLE(package, ",
               own_name, ") makes the class known");
  }
  Config out = Config::object();
  out.set("module", builtin ? Config(module_) : Config());
  out.set("class_name", builtin ? key : key.empty() ? own_name : key.substr(key.find('>') + 1));
  out.set("config", std::move(config));
  out.set("registered_name", builtin ? Config() : Config(key.empty() ? own_name : key));
  return out;
}

ClassTable::Make ClassTable::maker(const Config& envelope, bool is_keras) const {
  const Config* registered = envelope.find("registered_name");
  const bool has_registered = registered != nullptr && registered->is_text();
  const cohort::internal::base::MutexLock lock(classes_->mutex);
  auto found =
      has_registered ? classes_->by_name.find(registered->text()) : classes_->by_name.end();
  // A program's own Dense is not Keras's.
  if (found != classes_->by_name.end() && found->second.builtin && !is_keras)
    found = classes_->by_name.end();
  if (found == classes_->by_name.end() && (is_keras || !has_registered)) {
    found = classes_->by_name.find(envelope.text("class_name"));
  }
  return found == classes_->by_name.end() ? nullptr : found->second.make;
}

std::shared_ptr<Serializable> ClassTable::deserialize(const Config& envelope) const {
  const std::string& name = envelope.text("class_name");
  const Config* module = envelope.find("module");
  const bool has_module = module != nullptr && module->is_text();
  const bool is_keras =
      has_module && (module->text() == "keras" || module->text().starts_with("keras."));
  const Make make = maker(envelope, is_keras);
  if (make == nullptr && is_keras) {
    throw Unimplemented(str_cat("[from_config] expected a class that Cohort has, got Keras's ",
                                module->text(), ".", name, ", which is not there yet"));
  }
  const Config* registered = envelope.find("registered_name");
  COHORT_CHECK_ARG(make != nullptr,
                   "[from_config] expected a class that this program knows, got \"",
                   registered != nullptr && registered->is_text() ? registered->text() : name,
                   "\": a class of a program is made known by "
                   "COHORT_REGISTER_SERIALIZABLE(package, Class)");
  const Config* config = envelope.find("config");
  return make(config == nullptr || config->is_null() ? Config::object() : *config);
}

std::shared_ptr<Serializable> ClassTable::find(const std::string& name) const {
  Make make;
  {
    const cohort::internal::base::MutexLock lock(classes_->mutex);
    const auto found = classes_->by_name.find(name);
    if (found != classes_->by_name.end()) make = found->second.make;
  }
  return make == nullptr ? nullptr : make(Config::object());
}

bool same_description(const Serializable& a, const Serializable& b) {
  if (&a == &b) return true;
  if (typeid(a) != typeid(b)) return false;
  try {
    return a.get_config() == b.get_config();
  } catch (const Error&) {  // of what cannot be written
    return false;
  }
}

}  // namespace cohort::keras::internal
