// SPDX-License-Identifier: Apache-2.0
//
// Records of a journal as they stand in its file: length, its CRC, bytes, their CRC, as in TFRecord
// files. Each says up to where somebody had been told what stands there when it was written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/checkpoint/internal/file.h"

namespace cohort::internal::coordinator {

struct JournalFrame {
  uint64_t bytes = 0;  ///< In the file, with all around it.
  uint64_t told = 0;   ///< Up to where.
  std::string record = {};
};
/// Of a frame, ahead of its record.
inline constexpr uint64_t kFrameHead = 2 * sizeof(uint64_t) + sizeof(uint32_t);

std::string framed(uint64_t told, const std::string& record);
/// The one that stands there; nothing: none that is whole. Errors: as InputFile.
std::optional<JournalFrame> frame_at(const checkpoint::InputFile& file, uint64_t at);
/// The place of a whole frame behind this one that says that somebody was told what stood here;
/// nothing: nobody was. What is on its way to the disk for one wait may be lost in a power cut in
/// any part of it. Errors: as InputFile.
std::optional<uint64_t> told_behind(const checkpoint::InputFile& file, uint64_t at);

}  // namespace cohort::internal::coordinator
