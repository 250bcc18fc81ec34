// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/serializable.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <typeindex>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"

namespace cohort::keras {

std::string Serializable::class_name() const { return internal::class_name_of(typeid(*this)); }

Config Serializable::get_config() const {
  const std::string name = class_name();
  throw Unimplemented(str_cat("[", name,
                              ".get_config] expected a class that says what it is made "
                              "with, got ",
                              name,
                              ": override get_config(), or derive of the Impl "
                              "class with options that have fields"));
}

}  // namespace cohort::keras

namespace cohort::keras::internal {

std::string class_name_of(const std::type_info& type, const char* kind) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  const std::string full = status == 0 ? text.get() : type.name();
  const std::size_t colon = full.rfind(':');
  std::string name = colon == std::string::npos ? full : full.substr(colon + 1);
  const std::string_view ending = kind;
  const bool ours = full.starts_with("cohort::keras::");
  if (ours && name.size() > ending.size() && name.ends_with(ending)) {
    name = name.substr(0, name.size() - ending.size());
  }
  return name;
}

struct ClassTable::Classes {
  struct Entry {
    std::string registered_name;  // "package>Name"; empty: built in
    Make make;
  };
  mutable cohort::internal::Mutex mutex;
  std::map<std::string, Entry> by_name COHORT_GUARDED_BY(mutex);  // registered, or built in
  std::map<std::type_index, std::string> names COHORT_GUARDED_BY(mutex);
};

ClassTable::ClassTable(const char* kind, const char* module)
    : kind_(kind), module_(module), classes_(std::make_unique<Classes>()) {}
ClassTable::~ClassTable() = default;

void ClassTable::add(const std::type_info& type, const std::string& package,
                     const std::string& name, Make make) {
  const std::string registered = package.empty() ? "" : package + ">" + name;
  const std::string key = package.empty() ? name : registered;
  const cohort::internal::MutexLock lock(classes_->mutex);
  const bool added = classes_->by_name.insert({key, {registered, std::move(make)}}).second;
  COHORT_CHECK_ARG(added, "[register] expected a new name, got ", key,
                   ", which another class has already");
  classes_->names[type] = key;
}

Config ClassTable::serialize(const Serializable& object) const {
  std::string key;
  {
    const cohort::internal::MutexLock lock(classes_->mutex);
    const auto found = classes_->names.find(typeid(object));
    if (found != classes_->names.end()) key = found->second;
  }
  const std::size_t package = key.find('>');
  const bool builtin = !key.empty() && package == std::string::npos;
  Config out = Config::object();
  out.set("module", builtin ? Config(module_) : Config());
  out.set("class_name", builtin                        ? key
                        : package == std::string::npos ? object.class_name()
                                                       : key.substr(package + 1));
  out.set("config", object.get_config());
  out.set("registered_name", builtin       ? Config()
                             : key.empty() ? Config(object.class_name())
                                           : Config(key));
  return out;
}

std::shared_ptr<Serializable> ClassTable::deserialize(const Config& envelope) const {
  const std::string& name = envelope.text("class_name");
  const Config* registered = envelope.find("registered_name");
  const Config* module = envelope.find("module");
  const bool has_registered = registered != nullptr && registered->is_text();
  // A program's own Dense is not Keras's.
  const bool is_keras =
      module != nullptr && module->is_text() && module->text().starts_with("keras");
  Make make;
  {
    const cohort::internal::MutexLock lock(classes_->mutex);
    auto found =
        has_registered ? classes_->by_name.find(registered->text()) : classes_->by_name.end();
    if (has_registered && !is_keras && registered->text().find('>') == std::string::npos)
      found = classes_->by_name.end();
    if (found == classes_->by_name.end() && (is_keras || !has_registered)) {
      found = classes_->by_name.find(name);
    }
    if (found != classes_->by_name.end()) make = found->second.make;
  }
  COHORT_CHECK_ARG(make != nullptr,
                   "[from_config] expected a class that this program knows, got \"",
                   has_registered ? registered->text() : name,
                   "\": a class of a program is made known by "
                   "COHORT_REGISTER_SERIALIZABLE(package, Class)");
  const Config* config = envelope.find("config");
  return make(config == nullptr || config->is_null() ? Config::object() : *config);
}

std::shared_ptr<Serializable> ClassTable::find(const std::string& name) const {
  Make make;
  {
    const cohort::internal::MutexLock lock(classes_->mutex);
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
  } catch (const Unimplemented&) {
    return false;
  }
}

}  // namespace cohort::keras::internal
