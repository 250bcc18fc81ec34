// SPDX-License-Identifier: Apache-2.0
//
// Compressed bytes, for tests of what reads them.
#pragma once

#include <zlib.h>

#include <string>

namespace cohort::testing {

/// `window_bits` as zlib's: 15 for a zlib stream, 31 for gzip.
inline std::string compressed(const std::string& text, int window_bits) {
  z_stream zlib{};
  deflateInit2(&zlib, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(text.size()) + 64, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  deflate(&zlib, Z_FINISH);
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}
inline std::string gzip(const std::string& text) { return compressed(text, 31); }

}  // namespace cohort::testing
