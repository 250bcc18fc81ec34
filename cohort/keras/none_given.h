// SPDX-License-Identifier: Apache-2.0
//
// What braces around a handle's options must not stand for.
// A class X with XOptions says `explicit X(internal::NoneGiven) : X() {}` beside its constructor of
// options; a ByName is the first member of XOptions if another one takes a list.
#pragma once

#include <initializer_list>

namespace cohort::keras::internal {

struct Nothing {
  Nothing() = delete;
};
/// No option: SGD({}) is SGD(). Without a constructor for it `{}` could as well stand for an SGD
/// that is to be copied, which compilers refuse, or for a number, which would be 0.
using NoneGiven = std::initializer_list<Nothing>;

/// Of options whose members take lists, the first: options have names. Without it GCC 12 also reads
/// {.thresholds = {0.5, 1}} as a Precision to be copied that {{0.5, 1}} is to make, and refuses the
/// two ways.
struct ByName {
  explicit ByName() = default;
  bool operator==(const ByName&) const = default;
};

}  // namespace cohort::keras::internal
