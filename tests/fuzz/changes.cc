// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/changes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace cohort::fuzz {
namespace {

using keras::Config;

constexpr std::size_t kFewBytes = 16;
constexpr std::size_t kBlock = 512;

struct Part {
  std::size_t begin, end;
};

Part part_of(const std::string& bytes, Random& random) {
  const std::size_t a = random.below(bytes.size()), b = random.below(bytes.size());
  return {std::min(a, b), std::max(a, b)};
}

void put_number(std::string& bytes, Random& random) {
  const auto size = static_cast<uint64_t>(bytes.size());
  const uint64_t numbers[] = {0,
                              1,
                              size - 1,
                              size,
                              random.below(size),
                              uint64_t{1} << 31,
                              uint64_t{1} << 40,
                              uint64_t{1} << 63,
                              ~uint64_t{0},
                              ~uint64_t{0} - 7};
  const uint64_t number = numbers[random.below(std::size(numbers))];
  const std::size_t width = std::size_t{1} << random.below(4);
  if (bytes.size() < width) return;
  // What is aligned is where formats have their fields.
  const std::size_t place = random.below(bytes.size() / width) * width;
  std::memcpy(bytes.data() + place, &number, width);
}

Config any_value(Random& random) {
  switch (random.below(24)) {
    case 0:
      return {};
    case 1:
      return -1;
    case 2:
      return 0;
    case 3:
      return int64_t{1} << 31;
    case 4:
      return INT64_MAX;
    case 5:
      return INT64_MIN;
    case 6:
      return 1e30;
    case 7:
      return -1e308;
    case 8:
      return 0.5;
    case 9:
      return "";
    case 10:
      return "Dense";
    case 11:
      return Config::List();
    case 12:
      return Config::object();
    case 13:
      return Config::List{Config()};
    case 14:
      return Config::List{-1};
    case 15:
      return Config::List{int64_t{1} << 40, int64_t{1} << 40};
    case 16:
      return true;
    case 17:
      return Config::object({{"class_name", "Dense"}, {"config", Config::object()}});
    case 18:
      return std::string(5000, 'x');
    case 19:
      return Config::List(1000, 1);
    case 20:
      return std::string("\0\xc3\xa9", 3);
    case 21:
      return "float16";
    case 22:
      return static_cast<int64_t>(random.below(8));
    default: {
      Config deep;
      for (int i = 0; i < 150; ++i) deep = Config::List{std::move(deep)};
      return deep;
    }
  }
}

// Calls `each` with the values of a tree, those above first, until it returns false.
template <class F>
bool visit(const Config& node, const F& each) {
  if (!each(node)) return false;
  if (node.is_list()) {
    return std::ranges::all_of(node.list(), [&](const Config& p) { return visit(p, each); });
  }
  if (!node.is_object()) return true;
  return std::ranges::all_of(node.members(), [&](const auto& m) { return visit(m.second, each); });
}

std::size_t count_of(const Config& node) {
  std::size_t count = 0;
  visit(node, [&](const Config&) { return ++count > 0; });
  return count;
}

Config some_part(const Config& root, Random& random) {
  std::size_t left = random.below(count_of(root));
  Config found;
  visit(root, [&](const Config& part) {
    if (left-- > 0) return true;
    found = part;
    return false;
  });
  return found;
}

// Some of these keep it as it is.
template <class Parts>
void change_parts(Parts& parts, Random& random) {
  if (parts.empty()) return;
  const auto at = [&] {
    return parts.begin() + static_cast<std::ptrdiff_t>(random.below(parts.size()));
  };
  switch (random.below(3)) {
    case 0:
      parts.erase(at());
      break;
    case 1:
      std::iter_swap(at(), at());
      break;
    default: {
      auto again = *at();
      parts.insert(at(), std::move(again));
    }
  }
}

Config changed(const Config& node, const Config& root, Random& random) {
  const std::size_t how = random.below(6);
  if (how == 0) return some_part(root, random);
  if (how == 1) return any_value(random);
  if (node.is_list()) {
    Config::List parts = node.list();
    change_parts(parts, random);
    return parts;
  }
  if (node.is_object() && !node.members().empty()) {
    Config::Members parts = node.members();
    if (how == 2) {
      parts[random.below(parts.size())].first += "_";
    } else if (how == 3) {
      std::swap(parts[random.below(parts.size())].second, parts[random.below(parts.size())].second);
    } else {
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(random.below(parts.size())));
    }
    return Config::object(std::move(parts));
  }
  if (node.is_number() && how < 5) {
    const double value = node.number(), nudged[] = {value + 1, value - 1, -value, value / 3};
    return nudged[random.below(std::size(nudged))];
  }
  return any_value(random);
}

// The tree with the value that `left` is counted down to replaced.
Config with_changed(const Config& node, const Config& root, std::size_t& left, Random& random) {
  if (left-- == 0) return changed(node, root, random);
  if (node.is_list()) {
    Config::List parts;
    for (const Config& part : node.list()) parts.push_back(with_changed(part, root, left, random));
    return parts;
  }
  if (!node.is_object()) return node;
  Config::Members parts;
  for (const auto& [name, part] : node.members()) {
    parts.emplace_back(name, with_changed(part, root, left, random));
  }
  return Config::object(std::move(parts));
}

}  // namespace

std::string damaged(std::string bytes, Random& random) {
  if (bytes.empty()) return bytes;
  const Part part = part_of(bytes, random);
  switch (random.below(7)) {
    case 0:
    case 1:
      bytes[part.begin] = static_cast<char>(bytes[part.begin] ^ (1 << random.below(8)));
      break;
    case 2:
      for (std::size_t i = part.begin; i < std::min(part.begin + kFewBytes, part.end); ++i) {
        bytes[i] = static_cast<char>(random.bits());
      }
      break;
    case 3:
      bytes.resize(part.begin);
      break;
    case 4:
      bytes.erase(part.begin, part.end - part.begin);
      break;
    case 5:
      bytes.insert(part.begin, bytes.substr(part.begin, part.end - part.begin));
      break;
    default: {
      const std::size_t begin = part.begin / kBlock * kBlock;
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                  std::min(kBlock, bytes.size() - begin), '\0');
    }
  }
  return bytes;
}

std::string changed_bytes(std::string bytes, Random& random) {
  for (std::size_t times = 1 + random.below(3); times > 0 && !bytes.empty(); --times) {
    if (random.once_in(2)) {
      put_number(bytes, random);
    } else {
      bytes = damaged(std::move(bytes), random);
    }
  }
  return bytes;
}

Config changed_config(const Config& config, Random& random) {
  Config out = config;
  for (std::size_t times = random.once_in(3) ? 1 + random.below(4) : 1; times > 0; --times) {
    std::size_t left = random.below(count_of(out));
    out = with_changed(out, out, left, random);
  }
  return out;
}

}  // namespace cohort::fuzz
