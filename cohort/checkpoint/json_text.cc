// SPDX-License-Identifier: Apache-2.0
#include "cohort/checkpoint/internal/json_text.h"

#include <set>
#include <vector>

#include "cohort/base/strings.h"

namespace cohort::internal::checkpoint {
namespace {

using nlohmann::json;

constexpr std::size_t kLevelsOfKeys = 2;

/// Looks at the parts of a text one by one, before memory is spent on values.
class Check : public json::json_sax_t {
 public:
  explicit Check(std::size_t deepest) : deepest_(deepest) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (keys_.size() > kLevelsOfKeys || keys_.back().insert(name).second) return true;
    throw BadJson{0, str_cat("expected each name once, got \"", name, "\" twice")};
  }

  bool parse_error(std::size_t byte, const std::string&, const json::exception& e) override {
    throw BadJson{byte, str_cat("expected JSON: ", e.what())};
  }

 private:
  bool open() {
    if (keys_.size() == deepest_) {
      throw BadJson{0, str_cat("expected values nested ", deepest_, " deep at most")};
    }
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::size_t deepest_;
  std::vector<std::set<std::string>> keys_;  // of the objects and arrays that are open
};

}  // namespace

json parse_json(std::string_view text, std::size_t deepest) {
  Check check(deepest);
  json::sax_parse(text, &check);
  return json::parse(text);
}

}  // namespace cohort::internal::checkpoint
