// SPDX-License-Identifier: Apache-2.0
//
// The table that Model::summary prints, as Keras draws it; internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

struct SummaryRow {
  std::string layer;               ///< "dense (Dense)"
  std::string output_shape;        ///< "(None, 10)"; "?" where it is not known.
  std::string parameters;          ///< "1,290"
  std::string connected_to = "-";  ///< "dense[0][0], dense_1[0][0]"
  std::string trainable = "-";     ///< "Y", "N"
};

/// Columns that not every table has.
struct SummaryColumns {
  bool connected_to = false;
  bool trainable = false;
};

struct SummaryFoot {
  struct Count {
    int64_t parameters = 0;
    int64_t bytes = 0;
  };
  Count trainable = {};
  Count non_trainable = {};
  Count optimizer = {};
};

/// Texts that do not fit a column go on in the next line, words that do not end in "…".
/// `columns`: of the terminal; 0: 80.
std::string summary_table(const std::string& model, const std::vector<SummaryRow>& rows,
                          const SummaryFoot& foot, int64_t columns, SummaryColumns more = {});

/// "(None, 28, 28)", "(None,)": as Python prints a tuple.
std::string shape_text(const Shape& shape);
/// "(None)": as Keras's summary does.
std::string column_shape_text(const Shape& shape);
/// "1,234,567"
std::string grouped(int64_t number);
/// "4.50 KB": units of 1024.
std::string memory_text(int64_t bytes);

int64_t parameters_of(const Variable& v);

}  // namespace cohort::keras::internal
