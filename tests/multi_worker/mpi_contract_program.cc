// SPDX-License-Identifier: Apache-2.0
//
// What every transport promises, played over MPI by the processes that mpirun starts:
//
//   mpirun -np 3 mpi_contract_program contract 127.0.0.1:4001,127.0.0.1:4002,127.0.0.1:4003
//
// Each rank writes what it has not seen as it expected. Instead: `die`, rank 1 is killed; `stop`,
// it is stopped; `end`, the program ends MPI while its communicator lives; `over`, it has ended it,
// and wants more. Without mpirun the rank is the last argument.
#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/transports/mpi/mpi_lanes.h"
#include "cohort/collectives/transports/tcp/tcp_transport.h"
#include "cohort/reductions/local_reduce.h"
#include "tests/test_program.h"

using namespace cohort;

namespace {

using namespace cohort::internal::collectives;
using namespace cohort::internal::reductions;

int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("not so: %s\n", what.c_str());
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const FailedPrecondition& e) {
    return str_cat("FailedPrecondition ", e.what());
  } catch (const DeadlineExceeded& e) {
    return str_cat("DeadlineExceeded ", e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

Tensor numbers_of(int rank, int64_t count, DType dtype) {
  return ((arange(count, kFloat64) * 0.37 + 1.7 * rank).sin() * 100).to(dtype);
}
Bytes bytes_in(const Tensor& t) {
  return {static_cast<std::byte*>(t.data_ptr()), static_cast<std::size_t>(t.nbytes())};
}

// The bits of every other transport.
void add_up(Communicator& c) {
  for (const int64_t count : {0, 1, 3, 1001, 40'007, 900'000}) {
    for (const DType dtype : {kFloat64, kFloat32, kBFloat16, kInt64}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        std::vector<Tensor> all;
        for (int r = 0; r < c.size(); ++r) all.push_back(numbers_of(r, count, dtype));
        const Tensor mine = all[static_cast<std::size_t>(c.rank())].clone();
        c.all_reduce(bytes_in(mine), dtype, op);
        expect(mine.equal(reduce_in_order(op, all)), str_cat("all_reduce of ", count));
      }
    }
  }
}

void move_pieces(Communicator& c) {
  for (int root = 0; root < c.size(); ++root) {
    std::vector<int> values(200'000, c.rank());
    c.broadcast(bytes_of(values), root);
    expect(values == std::vector<int>(values.size(), root), "broadcast");
  }
  std::vector<std::vector<int>> rows;
  std::vector<Bytes> pieces;
  for (int r = 0; r < c.size(); ++r) {
    rows.emplace_back(static_cast<std::size_t>(150'000 * r + 7), r == c.rank() ? r + 7 : -1);
  }
  for (auto& row : rows) pieces.push_back(bytes_of(row));
  c.all_gather(pieces);
  for (int r = 0; r < c.size(); ++r) {
    const auto& row = rows[static_cast<std::size_t>(r)];
    expect(row == std::vector<int>(row.size(), r + 7), str_cat("all_gather from ", r));
  }
  // More than is under way at a time, both ways at once.
  std::vector<int> out(4 << 20, c.rank());
  std::vector<int> in(out.size());
  auto sent = c.start_send(bytes_of(out), (c.rank() + 1) % c.size());
  const int before = (c.rank() + c.size() - 1) % c.size();
  c.receive(bytes_of(in), before);
  sent.wait();
  expect(in == std::vector<int>(in.size(), before), "a ring of messages");
}

void overlap(Communicator& c) {
  std::vector<std::vector<float>> sums(40, std::vector<float>(9000, 1.0F));
  std::vector<Communicator::Pending> pending;
  for (auto& each : sums) pending.push_back(c.start_all_reduce(bytes_of(each), kFloat32));
  if (c.rank() % 2 == 0) pending.back().wait();
  for (auto& each : pending) each.wait();
  for (auto& each : sums) expect(each.back() == static_cast<float>(c.size()), "started sums");
  for (int i = 0; i < 20; ++i) i % 2 == 0 ? c.barrier() : c.commit();
}

// Failures are those of TCP, and the next generation works.
void fail(Communicator& c) {
  std::vector<int> numbers(10, c.rank());
  const std::string differs = error_of([&] {
    if (c.rank() == 0) {
      c.barrier();
    } else {
      c.broadcast(bytes_of(numbers), 0);
    }
  });
  expect(has(differs, "FailedPrecondition") && has(differs, "barrier") && has(differs, "broadcast"),
         differs);
  c.renew();
  const std::string late = error_of([&] {
    if (c.rank() == 1) {
      while (!c.failed()) std::this_thread::yield();
      c.check();
    }
    c.barrier({.timeout = std::chrono::milliseconds(200)});
  });
  expect(has(late, "DeadlineExceeded") && has(late, "rank 1 ("), late);
  c.renew();
  const std::string thrown = error_of([&] {
    if (c.rank() == c.size() - 1) {
      c.abort(std::make_exception_ptr(InvalidArgument("the data are bad")), "program");
    }
    c.barrier();
  });
  expect(has(thrown, "the data are bad"), thrown);
  c.renew();
  std::vector<float> ones(1000, 1.0F);
  c.all_reduce(bytes_of(ones), kFloat32);
  expect(ones.back() == static_cast<float>(c.size()), "a sum of the next generation");
}

// The program's own call.
int end_mpi() { return reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "MPI_Finalize"))(); }

// MPI itself would end the process.
int go_on_without_mpi() {
  const MpiPlace place = mpi_place();
  std::vector<int> ranks(static_cast<std::size_t>(place.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  MpiLanes lanes(ranks);
  while (!lanes.are_ready()) std::this_thread::yield();
  expect(end_mpi() == 0, "MPI_Finalize");
  const auto is_refused = [](const char* what, const std::function<void()>& body) {
    const std::string error = error_of(body);
    expect(has(error, "FailedPrecondition") && has(error, "MPI_Finalize"), str_cat(what, error));
  };
  is_refused("mpi_place: ", [] { mpi_place(); });
  is_refused("MpiLanes: ", [&] { const MpiLanes more(ranks); });
  is_refused("are_ready: ", [&] { lanes.are_ready(); });
  is_refused("lane_to: ", [&] { lanes.lane_to((place.rank + 1) % place.size); });
  std::printf("rank %d has seen %d failures\n", place.rank, failures);
  return failures == 0 ? 0 : 1;
}

int play(const std::string& what, Communicator& c) {
  if (what == "die") {
    c.barrier();
    if (c.rank() == 1) raise(SIGKILL);
    c.barrier();
    return 0;
  }
  if (what == "stop") {
    c.barrier();
    if (c.rank() == 1) raise(SIGSTOP);
    c.barrier({.timeout = std::chrono::milliseconds(500)});
    return 0;
  }
  if (what == "end") {
    c.barrier();
    return end_mpi();
  }
  add_up(c);
  move_pieces(c);
  overlap(c);
  fail(c);
  c.barrier();
  std::printf("rank %d of %d has seen %d failures\n", c.rank(), c.size(), failures);
  return failures == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<std::string> addresses;
  std::istringstream list(argv[2]);
  for (std::string each; std::getline(list, each, ',');) addresses.push_back(each);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr && argc < 4) return 2;
  try {
    if (std::string(argv[1]) == "over") return go_on_without_mpi();
    Communicator c(connect_over_tcp({.rank = std::atoi(rank != nullptr ? rank : argv[3]),
                                     .addresses = addresses,
                                     .timeout = std::chrono::seconds(60),
                                     .mpi = true}),
                   {.timeout = std::chrono::seconds(60)});
    return play(argv[1], c);
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}
const cohort::testing::TestProgram kProgram("mpi_contract_program", run);

}  // namespace
