// SPDX-License-Identifier: Apache-2.0
//
// What is written to predict only says nothing of how it was trained. Internal.
#pragma once

namespace cohort::keras::internal {

/// While one lives, models on its thread, and those inside them, are serialized as if they were
/// never compiled. Threads: bound to one.
class [[nodiscard]] ExportScope {
 public:
  ExportScope();
  ExportScope(const ExportScope&) = delete;
  ExportScope& operator=(const ExportScope&) = delete;
  ~ExportScope();
  static bool is_open();
};

}  // namespace cohort::keras::internal
