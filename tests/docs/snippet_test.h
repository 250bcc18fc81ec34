// SPDX-License-Identifier: Apache-2.0
//
// What the tests that snippets.py makes call.
#pragma once

#include <gtest/gtest.h>

#include "cohort/cohort.h"

// So that contexts/inner.inc can open all of them, whatever an example includes.
namespace cohort::internal {
namespace archive {}
namespace autograd {}
namespace base {}
namespace checkpoint {}
namespace cluster {}
namespace collectives {}
namespace coordinator {}
namespace data {}
namespace reductions {}
namespace replication {}
namespace rpc {}
namespace runtime {}
namespace strategy {}
namespace summary {}
namespace values {}
namespace variables {}
}  // namespace cohort::internal

namespace cohort::docs {

struct Expected {
  const char* where;   ///< "README.md:44".
  const char* output;  ///< Null: anything. `...` stands for any text.
  const char* error;   ///< The class of the exception, without namespaces; empty: none.
  int steps;           ///< Most steps of an epoch of fit; 0: all.
  int workers;         ///< Of a job whose chief it is; with `servers`, threads of this process.
  int servers;         ///< 0: no job.
};

/// Runs the snippet in an empty folder, and compares what it prints (or its error's text).
void run(const Expected& expected, void (*snippet)());

/// For programs: a test that fails.
void exit_status(int status);

}  // namespace cohort::docs
