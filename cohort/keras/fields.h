// SPDX-License-Identifier: Apache-2.0
//
// Fields: the options of a class are listed once, in a plain struct with the names of its members;
// its config, equality and text follow from that.
//
//   struct ScaleOptions {
//     double scale = 1;
//     std::optional<double> limit = {};
//     static void fields(auto& c, auto&& f) {
//       f.required("scale", c.scale);     // from_config fails without it
//       f("limit", c.limit);              // keeps its default without it
//     }
//   };
//   auto config = keras::config_of(ScaleOptions{.scale = 2});   // {"scale": 2.0, "limit": null}
//
// Further forms, for what only Keras's configs have or only the struct has:
// - f.shape("target", c.target): sizes, of which -1 is null; what is no std::optional is required;
// - f.extra("gain", c.gain, 1.0): written only where it is not the default: Keras lacks it;
// - f.nullable("steps", c.steps, 1): null where it is 1;
// - f.constant("sparse", false): always written; nothing else can be read;
// - f.newer("renorm", false): as constant, but not written: not every Keras 3 knows it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/keras/config.h"

namespace cohort::keras {

namespace internal {
/// Errors: InvalidArgument for a number that the type cannot hold.
void check_range(bool fits, int64_t value);
}  // namespace internal

/// How values of a type stand in a config. Of a class: by its serialize() and deserialize();
/// specialise it for an enumeration.
template <class T>
struct ConfigValue {
  static_assert(
      requires(const T& value, const Config& config) {
        { value.serialize() } -> std::convertible_to<Config>;
        { T::deserialize(config) } -> std::convertible_to<T>;
      },
      "a field is a number, a text, a list or a class with serialize() and deserialize(): of other "
      "types specialise cohort::keras::ConfigValue");
  static Config write(const T& value) { return value.serialize(); }
  static T read(const Config& config) { return T::deserialize(config); }
};

template <>
struct ConfigValue<bool> {
  static Config write(bool value) { return value; }
  static bool read(const Config& config) { return config.boolean(); }
};

template <std::integral T>
requires(!std::same_as<T, bool>) struct ConfigValue<T> {
  static Config write(T value) { return value; }
  static T read(const Config& config) {
    const int64_t value = config.integer();
    internal::check_range(std::in_range<T>(value), value);
    return static_cast<T>(value);
  }
};

template <std::floating_point T>
struct ConfigValue<T> {
  static Config write(T value) { return static_cast<double>(value); }
  static T read(const Config& config) { return static_cast<T>(config.number()); }
};

template <>
struct ConfigValue<std::string> {
  static Config write(const std::string& value) { return value; }
  static std::string read(const Config& config) { return config.text(); }
};

/// Nothing is null.
template <class T>
struct ConfigValue<std::optional<T>> {
  static Config write(const std::optional<T>& value) {
    return value ? ConfigValue<T>::write(*value) : Config();
  }
  static std::optional<T> read(const Config& config) {
    if (config.is_null()) return std::nullopt;
    return ConfigValue<T>::read(config);
  }
};

template <class T>
struct ConfigValue<std::vector<T>> {
  static Config write(const std::vector<T>& values) {
    Config::List list;
    for (const T& value : values) list.push_back(ConfigValue<T>::write(value));
    return list;
  }
  static std::vector<T> read(const Config& config) {
    std::vector<T> values;
    for (const Config& part : config.list()) values.push_back(ConfigValue<T>::read(part));
    return values;
  }
};

/// A shape as Keras writes it: what is not known (-1) is null.
struct ShapeValue {
  static Config write(const std::vector<int64_t>& shape);
  static Config write(const std::optional<std::vector<int64_t>>& shape);
  static std::vector<int64_t> read(const Config& config);
};

namespace internal {
struct NoKind {
  static void base_fields(auto&, auto&&) {}
};

/// The kind of class that the options are for: what all of a kind have (name, dtype) are fields of
/// theirs, too. Layers, losses and optimizers know their options by these members; options of
/// others say `using Kind = MetricBase`.
template <class C>
struct KindOf {
  using type = NoKind;
};
template <class C>
requires requires { typename C::Kind; }
struct KindOf<C> {
  using type = typename C::Kind;
};

/// Every member: those that all of the kind have, and the class's own.
template <class C>
void all_fields(auto& c, auto&& f) {
  KindOf<C>::type::base_fields(c, f);
  C::fields(c, f);
}
}  // namespace internal

}  // namespace cohort::keras

namespace cohort::keras::internal {

/// Writes members into a config.
class FieldWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& member) {
    config_.set(name, ConfigValue<T>::write(member));
  }
  template <class T>
  void required(const char* name, const T& member) {
    (*this)(name, member);
  }
  void shape(const char* name, const auto& member) { config_.set(name, ShapeValue::write(member)); }
  template <class T>
  void extra(const char* name, const T& member, const std::type_identity_t<T>& standard) {
    if (!(member == standard)) (*this)(name, member);
  }
  template <class T>
  void nullable(const char* name, const T& member, const std::type_identity_t<T>& null) {
    config_.set(name, member == null ? Config() : ConfigValue<T>::write(member));
  }
  void constant(const char* name, Config value) { config_.set(name, std::move(value)); }
  void newer(const char*, const Config&) {}

  Config config() && { return std::move(config_); }

 private:
  Config config_ = Config::object();
};

/// Reads members out of a config.
class FieldReader {
 public:
  /// `who` is the class, for errors. Errors: InvalidArgument unless the config is an object.
  FieldReader(const Config& config, std::string who);

  template <class T>
  void operator()(const char* name, T& member) {
    read<ConfigValue<T>>(name, member);
  }
  template <class T>
  void required(const char* name, T& member) {
    if (!config_.contains(name)) missing_.emplace_back(name);
    (*this)(name, member);
  }
  void shape(const char* name, std::vector<int64_t>& member) {
    if (!config_.contains(name)) missing_.emplace_back(name);
    read<ShapeValue>(name, member);
  }
  void shape(const char* name, std::optional<std::vector<int64_t>>& member) {
    const Config* value = config_.find(name);
    if (value != nullptr && value->is_null()) {
      known_.emplace_back(name);
      member.reset();
    } else {
      read<ShapeValue>(name, member);
    }
  }
  template <class T>
  void extra(const char* name, T& member, const std::type_identity_t<T>&) {
    (*this)(name, member);
  }
  template <class T>
  void nullable(const char* name, T& member, const std::type_identity_t<T>& null) {
    std::optional<T> given = member;
    (*this)(name, given);
    member = given.value_or(null);
  }
  /// Errors: Unimplemented for another value.
  void constant(const char* name, const Config& value);
  void newer(const char* name, const Config& value) { constant(name, value); }

  /// Errors: InvalidArgument that names what was not taken, and what is missing.
  void finish() const;

 private:
  template <class Value>
  void read(const char* name, auto& member) {
    const Config* value = take(name);
    if (value == nullptr) return;
    try {
      member = Value::read(*value);
    } catch (...) {
      rethrow(name);
    }
  }
  const Config* take(const char* name);
  /// In a catch block: the error with the class and the name.
  [[noreturn]] void rethrow(const char* name) const;

  const Config& config_;
  const std::string who_;
  std::vector<std::string> known_, missing_;
};

/// Calls a function for each member.
template <class F>
class EachField {
 public:
  explicit EachField(F each) : each_(std::move(each)) {}
  void operator()(const char* name, const auto& member) { each_(name, member); }
  void required(const char* name, const auto& member) { each_(name, member); }
  void shape(const char* name, const auto& member) { each_(name, member); }
  template <class T>
  void extra(const char* name, const T& member, const std::type_identity_t<T>&) {
    each_(name, member);
  }
  template <class T>
  void nullable(const char* name, const T& member, const std::type_identity_t<T>&) {
    each_(name, member);
  }
  void constant(const char*, const Config&) {}
  void newer(const char*, const Config&) {}

 private:
  F each_;
};

struct NoField {
  void operator()(const char*, const auto&) const {}
};

template <class C>
concept HasFields = requires(C& c, EachField<NoField> f) {
  C::fields(c, f);
};

/// What the object with these fields is as a text: "(units=64, activation=\"relu\")", with what
/// cannot be written as "...".
template <class T>
std::string field_text(const T& value) {
  try {
    return ConfigValue<T>::write(value).to_json();
  } catch (const std::exception&) {
    return "...";
  }
}

/// Values of an enumeration by name, out of a table of pairs. The first name of a value is written.
Config name_of_value(const auto& table, auto value) {
  for (const auto& [name, known] : table) {
    if (known == value) return name;
  }
  return nullptr;
}
[[noreturn]] void refuse_name(const Config& got, const std::vector<std::string>& known);
auto value_of_name(const auto& table, const Config& config) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) {
    if (config.is_text() && config.text() == name) return value;
    names.emplace_back(name);
  }
  refuse_name(config, names);
}

template <class Kind, class C>
void read_fields(const Config& config, const std::string& who, C& options) {
  FieldReader reader(config, who);
  Kind::base_fields(options, reader);
  C::fields(options, reader);
  reader.finish();
}

}  // namespace cohort::keras::internal

namespace cohort::keras {

/// The members by name. Errors: Unimplemented for a member that is a function.
template <internal::HasFields C>
Config config_of(const C& options) {
  internal::FieldWriter writer;
  internal::all_fields<C>(options, writer);
  return std::move(writer).config();
}

/// The struct with the members that the config names, the others as by default.
/// Errors: InvalidArgument that names the members that the class has not, or that the config lacks,
///         or that have no such value; Unimplemented for a value that Keras has and Cohort not yet.
template <internal::HasFields C>
C options_of(const Config& config, const std::string& who = "config") {
  C options;
  internal::read_fields<typename internal::KindOf<C>::type>(config, who, options);
  return options;
}

/// Members are compared one by one; functions are equal to themselves alone.
template <internal::HasFields C>
bool operator==(const C& a, const C& b) {
  std::vector<const void*> members;
  const auto note = [&members](const char*, const auto& member) { members.push_back(&member); };
  internal::all_fields<C>(a, internal::EachField(note));
  bool equal = true;
  auto other = members.begin();
  const auto compare = [&]<class M>(const char*, const M& member) {
    equal = equal && *static_cast<const M*>(*other++) == member;
  };
  internal::all_fields<C>(b, internal::EachField(compare));
  return equal;
}

/// "(units=64, activation=\"relu\", use_bias=true)".
template <internal::HasFields C>
std::ostream& operator<<(std::ostream& out, const C& options) {
  const char* before = "(";
  const auto print = [&](const char* name, const auto& member) {
    out << std::exchange(before, ", ") << name << '=' << internal::field_text(member);
  };
  internal::all_fields<C>(options, internal::EachField(print));
  return out << (*before == '(' ? "()" : ")");
}

}  // namespace cohort::keras
