// SPDX-License-Identifier: Apache-2.0
//
// Uses one layer of an installed Cohort, without LibTorch's headers.
#include <cohort/base/error.h>

#include <cstdio>

int main() {
  try {
    throw cohort::InvalidArgument("[consumer] expected this");
  } catch (const cohort::Error& error) {
    std::puts(error.what());
    return 0;
  }
}
