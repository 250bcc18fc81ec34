// SPDX-License-Identifier: Apache-2.0
//
// Uses an installed Cohort with tensors.
#include <cohort/runtime/device.h>
#include <cohort/runtime/tensor.h>

#include <cstdio>

int main() {
  cohort::Tensor x = cohort::from_vector<float>({1, 2, 3, 4}, {2, 2});
  double sum = cohort::to_vector<double>(x.matmul(x).sum())[0];
  std::printf("sum %g\n", sum);
  return sum == 54 ? 0 : 1;
}
