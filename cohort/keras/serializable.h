// SPDX-License-Identifier: Apache-2.0
//
// Objects by class and config: how they are written into configs and files, and made again.
//
//   struct Scale : keras::LayerImpl<ScaleOptions> { ... };
//   COHORT_REGISTER_SERIALIZABLE("my_package", Scale);     // now files with a Scale can be opened
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cohort/keras/fields.h"

namespace cohort::keras {

/// Base of layers, losses, metrics, optimizers, initializers, ...
class Serializable {
 public:
  Serializable() = default;
  virtual ~Serializable() = default;

  /// The class's own name, without namespaces: of Cohort's classes Keras's.
  virtual std::string class_name() const;
  /// The arguments that would make the same object, by Keras's names.
  /// Errors: Unimplemented for a class that does not say it, and for parts that are functions.
  virtual Config get_config() const;

 protected:
  Serializable(const Serializable&) = default;
  Serializable& operator=(const Serializable&) = default;
};

}  // namespace cohort::keras

namespace cohort::keras::internal {

/// "Dense" of cohort::keras::DenseLayer, where `kind` is "Layer"; of other classes their names.
std::string class_name_of(const std::type_info& type, const char* kind = "");

/// The classes of one kind, by name. Threads: thread-safe.
class ClassTable {
 public:
  using Make = std::function<std::shared_ptr<Serializable>(const Config& config)>;

  /// Of `module` ("keras.layers") are the built-in ones; `kind` is the end of their names in C++.
  ClassTable(const char* kind, const char* module);
  ~ClassTable();

  /// A class of Cohort, by C::from_config or its Options. Of several names of a class files get
  /// the last one.
  template <class C>
  void add_builtin(const std::string& name = class_name_of(typeid(C), C::Kind::kKind));
  /// Does nothing the second time. Errors: InvalidArgument for a name that another class has, and
  ///         for a package that is empty or has a ">".
  void add(const std::type_info& type, const std::string& package, const std::string& name,
           Make make);

  /// The envelope that Keras writes: module, class_name, config, registered_name.
  /// Errors: as get_config().
  Config serialize(const Serializable& object) const;
  /// Errors: InvalidArgument that says how to register a class that nobody knows; Unimplemented for
  ///         one that Keras has and Cohort not yet; as the class.
  std::shared_ptr<Serializable> deserialize(const Config& envelope) const;
  /// Of a name alone, with defaults; nullptr: there is no such class.
  std::shared_ptr<Serializable> find(const std::string& name) const;
  const char* kind() const { return kind_; }
  /// Whether the object's class is Cohort's, not the program's.
  bool has_builtin(const Serializable& object) const;

 private:
  struct Classes;
  void add_entry(const std::type_info& type, const std::string& key, bool builtin, Make make);
  /// By the name that it is registered by, or, of Keras's classes, its own. Null: there is none.
  Make maker(const Config& envelope, bool is_keras) const;
  const char* const kind_;
  const char* const module_;
  const std::unique_ptr<Classes> classes_;
};

/// That of a kind, by its base class; each kind defines its own.
template <class Base>
ClassTable& class_table();

/// A base's from_config makes the base.
template <class C>
concept MadeByFromConfig = requires(const Config& config) {
  { C::from_config(config) } -> std::convertible_to<std::shared_ptr<C>>;
};
template <class C>
concept MadeOfOptions = requires(typename C::Options options) {
  std::make_shared<C>(std::move(options));
};

/// C by its own from_config, else by a constructor that takes its Options.
template <class C>
std::shared_ptr<Serializable> make_of_config(const Config& config) {
  static_assert(MadeByFromConfig<C> || MadeOfOptions<C>,
                "a class in files needs its own static std::shared_ptr<Class> from_config(const "
                "Config&), or a constructor that takes its Options");
  if constexpr (MadeByFromConfig<C>) {
    return C::from_config(config);
  } else {
    typename C::Options options;
    read_fields<typename C::Kind>(config, class_name_of(typeid(C), C::Kind::kKind), options);
    return std::make_shared<C>(std::move(options));
  }
}

/// Options with what the kind of class adds (name, dtype, ...), as a config.
template <class Kind, class Options>
Config full_config(const Options& options) {
  FieldWriter writer;
  Kind::base_fields(options, writer);
  Options::fields(options, writer);
  return std::move(writer).config();
}

template <class C>
void ClassTable::add_builtin(const std::string& name) {
  add_entry(typeid(C), name, true, make_of_config<C>);
}

/// Equal classes with equal configs. What has no config is equal to itself alone.
bool same_description(const Serializable& a, const Serializable& b);

/// A shared object that does not change, or none.
template <class Base>
class ObjectHandle {
 public:
  /// nullptr: none.
  const Base* object() const { return object_.get(); }
  /// "L2"; "" of none.
  std::string class_name() const { return object_ == nullptr ? "" : object_->class_name(); }
  /// Of the object alone. Errors: Unimplemented for a function.
  Config get_config() const { return object_ == nullptr ? Config() : object_->get_config(); }
  /// With its class, as in the config of a layer; null of none. Errors: as get_config().
  Config serialize() const {
    return object_ == nullptr ? Config() : class_table<Base>().serialize(*object_);
  }
  friend bool operator==(const ObjectHandle& a, const ObjectHandle& b) {
    if (a.object_ == b.object_) return true;
    return a.object_ != nullptr && b.object_ != nullptr && same_description(*a.object_, *b.object_);
  }

 protected:
  ObjectHandle() = default;
  explicit ObjectHandle(std::shared_ptr<const Base> object) : object_(std::move(object)) {}
  static std::shared_ptr<Base> made_of(const Config& config) {
    return std::static_pointer_cast<Base>(class_table<Base>().deserialize(config));
  }

  std::shared_ptr<const Base> object_;
};

/// Adds a class of the program when the program begins.
template <class C>
struct Registered {
  Registered(const char* package, const char* name) {
    class_table<typename C::Kind>().add(typeid(C), package, name, make_of_config<C>);
  }
};

}  // namespace cohort::keras::internal

/// At namespace scope: configs with this class can be read, by its `static std::shared_ptr<Class>
/// from_config(const Config&)`, else by a constructor that takes its Options, which have fields.
/// TF: keras.saving.register_keras_serializable.
#define COHORT_REGISTER_SERIALIZABLE(package, Class)                                             \
  static const ::cohort::keras::internal::Registered<Class> cohort_serializable_##Class(package, \
                                                                                        #Class)
