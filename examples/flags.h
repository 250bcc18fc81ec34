// SPDX-License-Identifier: Apache-2.0
//
// Flags of the example programs: `--name value`, nothing else.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace examples {

/// Where a flag's value goes.
using Target = std::variant<int*, int64_t*, uint64_t*, std::string*>;
using Flag = std::pair<std::string_view, Target>;

/// False unless all of `text` is a value of that kind.
inline bool set_value(Target target, std::string_view text) {
  return std::visit(
      [&](auto* out) {
        if constexpr (std::is_same_v<decltype(out), std::string*>) {
          *out = text;
          return true;
        } else {
          const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
          return error == std::errc() && rest == text.data() + text.size();
        }
      },
      target);
}

/// Errors: std::invalid_argument that lists the flags for anything else than flags with values.
inline void parse_flags(int argc, char** argv, std::initializer_list<Flag> flags) {
  std::string usage = std::string("usage: ") + argv[0];
  for (const Flag& flag : flags) usage += " [" + std::string(flag.first) + " VALUE]";
  for (int i = 1; i < argc; i += 2) {
    bool known = false;
    for (const Flag& flag : flags) {
      if (flag.first != argv[i]) continue;
      known = i + 1 < argc && set_value(flag.second, argv[i + 1]);
    }
    if (!known) throw std::invalid_argument(usage);
  }
}

}  // namespace examples
