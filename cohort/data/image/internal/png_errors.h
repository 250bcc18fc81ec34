// SPDX-License-Identifier: Apache-2.0
//
// How libpng gives up: by longjmp to who called it. Between `setjmp` and libpng's functions nothing
// with a destructor is made.
#pragma once

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstring>

namespace cohort::internal::data {

/// What png_create_read_struct and png_create_write_struct take: the address of one, give_up and
/// ignore.
struct PngErrors {
  std::jmp_buf jump{};
  std::array<char, 200> text{"libpng has no memory"};  ///< Of libpng's error.

  [[noreturn]] static void give_up(png_structp png, png_const_charp text) {
    PngErrors& errors = *static_cast<PngErrors*>(png_get_error_ptr(png));
    std::strncpy(errors.text.data(), text, errors.text.size() - 1);
    std::longjmp(errors.jump, 1);  // NOLINT(cert-err52-cpp): through C.
  }
  static void ignore(png_structp, png_const_charp) {}
};

}  // namespace cohort::internal::data
