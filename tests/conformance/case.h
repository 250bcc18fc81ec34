// SPDX-License-Identifier: Apache-2.0
//
// The table of cases: what each one is about, what it gives under which strategies, or what it
// waits for. cases.cc types every expected value once; tests and docs/conformance.md read it there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::conformance {

/// Strategies, as bits: an expectation holds for a set of them.
using Strategies = uint32_t;
inline constexpr Strategies kDefault = 1;
inline constexpr Strategies kOneDevice = 2;
inline constexpr Strategies kMirrored1 = 4;
inline constexpr Strategies kMirrored2 = 8;
inline constexpr Strategies kOwnOps2 = 16;  ///< Two replicas, the cross-device ops a user's own.
inline constexpr Strategies kCentral2 = 32;
inline constexpr Strategies kMirrored3 = 64;
inline constexpr Strategies kMirrored4 = 128;
inline constexpr Strategies kEachStrategy[] = {kDefault, kOneDevice, kMirrored1, kMirrored2,
                                               kOwnOps2, kCentral2,  kMirrored3, kMirrored4};

/// One replica with a scope of its own, one replica, mirrored over two, two replicas.
inline constexpr Strategies kScoped1 = kOneDevice | kMirrored1;
inline constexpr Strategies kOne = kDefault | kScoped1;
inline constexpr Strategies kCopies2 = kMirrored2 | kOwnOps2;
inline constexpr Strategies kTwo = kCopies2 | kCentral2;
inline constexpr Strategies kScoped = kScoped1 | kTwo;
inline constexpr Strategies kAll = kDefault | kScoped;

/// "Mirrored(2)", for people; "Mirrored2", for names of tests.
std::string_view strategy_title(Strategies one);
std::string_view strategy_word(Strategies one);
int replicas_of(Strategies one);

/// What a case gives under some strategies, in the notation of show.h.
struct Expectation {
  Strategies on = 0;
  std::string_view value = {};
  /// Not empty: TensorFlow gives something else; what, and why we do not.
  std::string_view differs = {};
};

struct Case {
  std::string_view id;
  std::string_view area;
  std::string_view what;
  std::vector<Expectation> expected = {};
  std::string_view waits_for = {};  ///< Not empty: open, with the capability it waits for.
};

/// All cases, in the order of the document.
std::span<const Case> all_cases();
/// Null if there is none.
const Case* find_case(std::string_view id);
/// Null if the case says nothing about this strategy.
const Expectation* find_expectation(const Case& c, Strategies one);

}  // namespace cohort::conformance
