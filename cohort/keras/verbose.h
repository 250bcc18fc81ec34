// SPDX-License-Identifier: Apache-2.0
//
// How much fit, evaluate and predict print on standard output.
#pragma once

namespace cohort::keras {

/// kAuto: the bar on a terminal, else one line an epoch. TF: verbose="auto", 0, 1, 2.
enum class Verbose { kAuto = -1, kSilent = 0, kBar = 1, kLine = 2 };

}  // namespace cohort::keras
