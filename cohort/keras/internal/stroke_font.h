// SPDX-License-Identifier: Apache-2.0
//
// Letters as lines, for pictures without a font; internal.
#pragma once

#include <string>
#include <vector>

#include "cohort/keras/internal/canvas.h"

namespace cohort::keras::internal {

/// Of letters of this size: how far the next one begins.
double stroke_advance(double size);

/// The lines of an ASCII text that begins at `at`; what the font does not have is a box. A UTF-8
/// character is one box.
std::vector<std::vector<Point>> text_strokes(Point at, const std::string& text, double size);

/// In characters of UTF-8.
std::size_t character_count(const std::string& text);

}  // namespace cohort::keras::internal
