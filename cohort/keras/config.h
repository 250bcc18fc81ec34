// SPDX-License-Identifier: Apache-2.0
//
// Config: the description of an object, a tree as in JSON. It is what get_config() returns and
// from_config() takes, and what a file of a model holds.
//
//   keras::Config config = keras::Dense(64, {.activation = "relu"}).get_config();
//   config.number("units");      // 64
//   config.set("units", 32);
//   config.to_json();            // {"name": "dense", "trainable": true, ... "units": 32, ...
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cohort::keras {

/// Null, a truth value, a number, a text, a list, or named values in their order. Threads: a value.
class Config {
 public:
  using List = std::vector<Config>;
  using Members = std::vector<std::pair<std::string, Config>>;

  Config();                  ///< Null.
  Config(std::nullptr_t) {}  // NOLINT: implicit by design, as all of them
  template <std::same_as<bool> B>
  Config(B value) : value_(value) {}  // NOLINT
  /// Errors: InvalidArgument for a number above 2^63.
  template <std::integral I>
  requires(!std::same_as<I, bool>) Config(I value) : value_(checked(value)) {}  // NOLINT
  Config(double value) : value_(value) {}                                       // NOLINT
  Config(const char* text) : value_(std::string(text)) {}                       // NOLINT
  Config(std::string text) : value_(std::move(text)) {}                         // NOLINT
  Config(List list) : value_(std::move(list)) {}                                // NOLINT
  Config(const Config& other);
  Config& operator=(const Config& other);
  Config(Config&& other) noexcept;
  Config& operator=(Config&& other) noexcept;
  ~Config();
  /// Config::object({{"seed", 3}}); without members "{}", which is not null.
  static Config object(Members members = {});

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const;
  bool is_text() const { return std::holds_alternative<std::string>(value_); }
  bool is_list() const { return std::holds_alternative<List>(value_); }
  bool is_object() const { return std::holds_alternative<Members>(value_); }

  /// Errors, of all: InvalidArgument that says what is there instead.
  bool boolean() const;
  double number() const;
  int64_t integer() const;  ///< 3.0 is one, 3.5 is none.
  const std::string& text() const;
  const List& list() const;
  const Members& members() const;

  /// Of an object. Errors: InvalidArgument for a member that is not there, and as above.
  const Config& at(std::string_view name) const;
  Config& at(std::string_view name);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Config* find(std::string_view name) const;  ///< nullptr: no object, or without it.
  bool boolean(std::string_view name) const { return at(name).boolean(); }
  double number(std::string_view name) const { return at(name).number(); }
  int64_t integer(std::string_view name) const { return at(name).integer(); }
  const std::string& text(std::string_view name) const { return at(name).text(); }
  /// Adds a member, or replaces it. Null becomes an object first.
  Config& set(std::string_view name, Config value);

  /// One line, as Python's json.dumps writes it. Errors: InvalidArgument for NaN and infinities.
  std::string to_json() const;
  /// Errors: InvalidArgument for what is no JSON, with the byte; for values nested more than 200
  ///         deep, and a name that an object has twice.
  static Config parse_json(std::string_view text);
  /// For a message: as to_json, NaN as well, and at most 60 characters of it.
  std::string brief() const;

  /// 2 equals 2.0; the order of members does not count.
  friend bool operator==(const Config& a, const Config& b);
  /// As to_json, NaN and infinities as well.
  friend std::ostream& operator<<(std::ostream& out, const Config& config);

 private:
  std::string json_text(std::string (*text_of_number)(double)) const;
  template <std::integral I>
  static int64_t checked(I value) {
    if (!std::in_range<int64_t>(value)) refuse_large();
    return static_cast<int64_t>(value);
  }
  [[noreturn]] static void refuse_large();
  [[noreturn]] void refuse(const char* expected) const;

  std::variant<std::monostate, bool, int64_t, double, std::string, List, Members> value_;
};

}  // namespace cohort::keras
