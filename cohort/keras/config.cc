// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

constexpr std::size_t kDeepest = 200;

// As Python writes it: 0.001, 1e-07, 2.0, NaN.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(digits.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string finite_text(double value) {
  COHORT_CHECK_ARG(std::isfinite(value), "[config] expected finite numbers, got ", value,
                   ", which JSON cannot hold");
  return number_text(value);
}

std::string quoted(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

/// Builds a tree of the parts of a text, one by one, so that a hostile text costs no more than it
/// is long.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Config result;

  bool null() override { return put(Config()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!std::in_range<int64_t>(value)) return put(static_cast<double>(value));
    return put(value);
  }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const bool is_new = open_.back().names.insert(name).second;
    COHORT_CHECK_ARG(is_new, "[config] expected each name once, got \"", name, "\" twice");
    open_.back().members.emplace_back(std::move(name), Config());
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception& e) override {
    throw InvalidArgument(str_cat("[config] expected JSON, got at byte ", byte, ": ", e.what()));
  }

 private:
  struct Open {
    bool is_list;
    Config::List items = {};
    Config::Members members = {};
    std::set<std::string> names = {};
  };

  bool open(bool is_list) {
    COHORT_CHECK_ARG(open_.size() < kDeepest, "[config] expected values nested at most ", kDeepest,
                     " deep");
    open_.push_back({is_list});
    return true;
  }
  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.is_list) return put(std::move(done.items));
    return put(Config::object(std::move(done.members)));
  }
  bool put(Config value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().is_list) {
      open_.back().items.push_back(std::move(value));
    } else {
      open_.back().members.back().second = std::move(value);
    }
    return true;
  }

  std::vector<Open> open_;
};

}  // namespace

// Here, not where they are used: in line compilers see values in them that nobody set.
Config::Config() = default;
Config::Config(const Config& other) = default;
Config& Config::operator=(const Config& other) = default;
Config::Config(Config&& other) noexcept = default;
Config& Config::operator=(Config&& other) noexcept = default;
Config::~Config() = default;

Config Config::object(Members members) {
  Config config;
  config.value_ = std::move(members);
  return config;
}

bool Config::is_number() const {
  return std::holds_alternative<int64_t>(value_) || std::holds_alternative<double>(value_);
}

void Config::refuse_large() {
  throw InvalidArgument("[config] expected numbers below 2^63, got a greater one");
}

void Config::refuse(const char* expected) const {
  throw InvalidArgument(str_cat("[config] expected ", expected, ", got ", brief()));
}

std::string Config::brief() const {
  constexpr std::size_t kShown = 60;
  const std::string text = json_text(number_text);
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

bool Config::boolean() const {
  if (!is_bool()) refuse("true or false");
  return std::get<bool>(value_);
}

double Config::number() const {
  if (const auto* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  if (!is_number()) refuse("a number");
  return std::get<double>(value_);
}

int64_t Config::integer() const {
  if (const auto* whole = std::get_if<int64_t>(&value_)) return *whole;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const auto* real = std::get_if<double>(&value_);
  if (real == nullptr || *real != std::floor(*real) || std::abs(*real) > kExact) {
    refuse("a whole number");
  }
  return static_cast<int64_t>(*real);
}

const std::string& Config::text() const {
  if (!is_text()) refuse("a text");
  return std::get<std::string>(value_);
}

const Config::List& Config::list() const {
  if (!is_list()) refuse("a list");
  return std::get<List>(value_);
}

const Config::Members& Config::members() const {
  if (!is_object()) refuse("named values");
  return std::get<Members>(value_);
}

const Config* Config::find(std::string_view name) const {
  const auto* members = std::get_if<Members>(&value_);
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::find(*members, name, &Members::value_type::first);
  return found == members->end() ? nullptr : &found->second;
}

const Config& Config::at(std::string_view name) const {
  const Config* found = find(name);
  if (found != nullptr) return *found;
  std::vector<std::string> names;
  for (const auto& member : members()) names.push_back(member.first);
  constexpr std::size_t kShown = 200;
  const std::string got = join(names, ", ");
  throw InvalidArgument(str_cat("[config] expected a value of \"", name, "\", got ",
                                got.substr(0, kShown), got.size() > kShown ? "..." : ""));
}

Config& Config::at(std::string_view name) {
  return const_cast<Config&>(std::as_const(*this).at(name));
}

Config& Config::set(std::string_view name, Config value) {
  if (is_null()) value_ = Members();
  if (!is_object()) refuse("named values");
  auto& all = std::get<Members>(value_);
  const auto found = std::ranges::find(all, name, &Members::value_type::first);
  if (found == all.end()) {
    all.emplace_back(name, std::move(value));
  } else {
    found->second = std::move(value);
  }
  return *this;
}

std::string Config::to_json() const { return json_text(finite_text); }

std::string Config::json_text(std::string (*text_of_number)(double)) const {
  if (is_null()) return "null";
  if (is_bool()) return boolean() ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value_)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value_)) return text_of_number(*real);
  if (is_text()) return quoted(text());
  std::vector<std::string> parts;
  if (is_list()) {
    for (const Config& part : list()) parts.push_back(part.json_text(text_of_number));
    return "[" + join(parts, ", ") + "]";
  }
  for (const auto& [name, value] : members()) {
    parts.push_back(quoted(name) + ": " + value.json_text(text_of_number));
  }
  return "{" + join(parts, ", ") + "}";
}

Config Config::parse_json(std::string_view text) {
  Builder builder;
  nlohmann::json::sax_parse(text, &builder);
  return std::move(builder.result);
}

bool operator==(const Config& a, const Config& b) {
  const bool whole =
      std::holds_alternative<int64_t>(a.value_) && std::holds_alternative<int64_t>(b.value_);
  if (a.is_number() && b.is_number() && !whole) return a.number() == b.number();
  if (!a.is_object() || !b.is_object()) return a.value_ == b.value_;
  const auto has = [&b](const auto& member) {
    const Config* other = b.find(member.first);
    return other != nullptr && *other == member.second;
  };
  return a.members().size() == b.members().size() && std::ranges::all_of(a.members(), has);
}

std::ostream& operator<<(std::ostream& out, const Config& config) {
  return out << config.json_text(number_text);
}

}  // namespace cohort::keras
