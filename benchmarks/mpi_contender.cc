// SPDX-License-Identifier: Apache-2.0
//
// Open MPI's side of worker_bench, under mpirun: rank 0 is on the pipe.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "pipe.h"
#include "worker_contender.h"

namespace {

// Sleeps meanwhile: MPI's own wait would take a core from whoever is measured.
void receive_order(long (&order)[2]) {
  MPI_Request request;
  MPI_Ibcast(order, 2, MPI_LONG, 0, MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) usleep(200);
}

long obey(long (&order)[2], std::vector<float>& numbers) {
  receive_order(order);
  if (order[1] == 0) return 0;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto count = static_cast<std::size_t>(order[0]) / sizeof(float);
  numbers.assign(count, static_cast<float>(rank + 1));
  const auto add = [&] {
    MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  };
  add();
  if (numbers.back() != cohort::bench::expected_sum(ranks)) throw std::runtime_error("wrong sum");
  std::fill(numbers.begin(), numbers.end(), 0.0F);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < order[1]; ++i) add();
  MPI_Barrier(MPI_COMM_WORLD);
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> numbers;
  long order[2] = {0, 0};
  if (rank == 0) {
    cohort::bench::serve_lines("openmpi", [&](const std::string& line) {
      std::istringstream in(line);
      std::string run;
      in >> run >> order[0] >> order[1];
      return std::to_string(obey(order, numbers));
    });
    order[1] = 0;
    receive_order(order);
  } else {
    do {
      obey(order, numbers);
    } while (order[1] != 0);
  }
  MPI_Finalize();
  return 0;
}
