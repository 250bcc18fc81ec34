// SPDX-License-Identifier: Apache-2.0
//
// The hash functions that TensorFlow puts texts into bins with: numbers that never change.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort::keras::internal {

/// FarmHash's Fingerprint64. TF: tf.fingerprint(method="farmhash64").
uint64_t farm_fingerprint64(std::string_view text);

/// SipHash-2-4. TF: what tf.strings.to_hash_bucket_strong counts modulo the bins.
uint64_t sip_hash(const std::array<uint64_t, 2>& key, std::string_view text);

/// One fingerprint of two, the order of which counts. TF: what tf.sparse.cross_hashed joins by.
uint64_t joined_fingerprint(uint64_t first, uint64_t second);

/// Which of `bins` a text, or a number by its digits, is in: by FarmHash, or with a key by SipHash.
class TextBins {
 public:
  TextBins(int64_t bins, const std::optional<std::array<int64_t, 2>>& key)
      : bins_(static_cast<uint64_t>(bins)) {
    if (key) key_ = {static_cast<uint64_t>((*key)[0]), static_cast<uint64_t>((*key)[1])};
  }
  int64_t operator()(std::string_view text) const;
  int64_t operator()(int64_t number) const;

 private:
  uint64_t bins_;
  std::optional<std::array<uint64_t, 2>> key_;
};

}  // namespace cohort::keras::internal
