// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/mpi/mpi_lanes.h"

#include "cohort/base/error.h"
#include "cohort/base/strings.h"

#ifdef COHORT_HAS_MPI

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace cohort::internal::collectives {
namespace {

constexpr std::size_t kChunk = std::size_t{256} << 10;
constexpr std::size_t kChunks = 4;  // under way in each direction
constexpr int kLaneTag = 0;

// MPI is called by one thread at a time, also where a process has several communicators.
using MpiTurn = std::unique_lock<std::mutex>;
MpiTurn mpi_turn() {
  static std::mutex instance;  // orders calls of MPI, guards no member
  return MpiTurn(instance);
}

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int size = 0;
  MPI_Error_string(result, text.data(), &size);
  throw Unavailable(str_cat("[communicator] MPI: ", call, ": ", text.data()), "MPI");
}

// Lanes that miss a rank. MPI's end waits for all ranks, and would keep this process for good.
std::atomic<int> incomplete_lanes = 0;

// What was begun here ends with the process; its children have no MPI. Where it is not ended,
// mpirun ends what is left of the job.
void begin_mpi() {
  static pid_t process = 0;
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  process = ::getpid();
  std::atexit([] {
    if (::getpid() == process && !is_mpi_over() && incomplete_lanes == 0) MPI_Finalize();
  });
}

// A call would end the process.
void check_not_over() {
  if (!is_mpi_over()) return;
  throw FailedPrecondition(
      "[communicator] expected an MPI that has not ended, got MPI_Finalize called by this program: "
      "make what uses kMpi, and end with it, before");
}

void check_threads() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided >= MPI_THREAD_SERIALIZED) return;
  throw Unimplemented(
      "[communicator] expected an MPI that several threads can call by turns "
      "(MPI_THREAD_SERIALIZED), got one for a single thread: this program has begun it so");
}

}  // namespace

bool has_mpi() { return true; }

bool has_mpi_launcher() {
  constexpr std::array kNames = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

bool is_mpi_over() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  return is_over != 0;
}

MpiPlace mpi_place() {
  const MpiTurn turn = mpi_turn();
  check_not_over();
  int has_begun = 0;
  MPI_Initialized(&has_begun);
  MpiPlace place;
  // Alone it would begin all the same, with a daemon of its own.
  if (has_begun == 0 && !has_mpi_launcher()) return place;
  if (has_begun == 0) begin_mpi();
  check_threads();
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &place.size), "MPI_Comm_size");
  const char* job = std::getenv("PMIX_NAMESPACE");
  if (job != nullptr) place.job = std::hash<std::string>()(job);
  return place;
}

struct MpiLanes::Impl {
  // A communicator of its own, so that nobody else's messages meet these. It stays for good: what
  // ends it is for all ranks together, and one may have failed.
  explicit Impl(std::vector<int> all) : ranks(std::move(all)) {
    check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &communicator, &request), "MPI_Comm_idup");
  }
  const std::vector<int> ranks;
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  std::atomic<bool> is_incomplete = false;
};

namespace {

struct MpiChunk {
  std::vector<std::byte> bytes = std::vector<std::byte>(kChunk);
  std::size_t begin = 0;  // what was read of it
  std::size_t end = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  bool is_under_way = false;

  // Whether MPI is done with it.
  bool is_done(MPI_Status* status) {
    if (!is_under_way) return true;
    int done = 0;
    check_mpi(MPI_Test(&request, &done, status), "MPI_Test");
    is_under_way = done == 0;
    return done != 0;
  }
  // MPI may still read or write it: for good then.
  void leave() {
    int done = 1;
    if (is_under_way && !is_mpi_over()) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (is_under_way && done == 0) new std::vector<std::byte>(std::move(bytes));
  }
};

// Chunks are used in turn, so messages are read in the order in which they were sent: MPI keeps
// that of two ranks. A program may have ended MPI before its lanes, which then are still: a call
// would end the job.
class MpiLane final : public StreamCarrier {
 public:
  MpiLane(MPI_Comm communicator, int peer) : communicator_(communicator), peer_(peer) {
    for (MpiChunk& chunk : in_) receive_into(chunk);
  }
  // One that is gone does not end what it has begun: nothing is waited for.
  ~MpiLane() override {
    const MpiTurn turn = mpi_turn();
    for (MpiChunk& chunk : in_) {
      if (chunk.is_under_way && !is_mpi_over()) MPI_Cancel(&chunk.request);
      chunk.leave();
    }
    for (MpiChunk& chunk : out_) chunk.leave();
  }

  std::size_t write(std::span<const std::byte> bytes) override {
    const MpiTurn turn = mpi_turn();
    if (is_mpi_over()) return 0;
    std::size_t taken = 0;
    while (taken < bytes.size()) {
      MpiChunk& chunk = out_[writes_];
      if (!chunk.is_done(MPI_STATUS_IGNORE)) break;
      const std::size_t now = std::min(bytes.size() - taken, kChunk - chunk.end);
      std::memcpy(chunk.bytes.data() + chunk.end, bytes.data() + taken, now);
      chunk.end += now;
      taken += now;
      if (chunk.end == kChunk) send_chunk();
    }
    return taken;
  }
  void publish() override {
    const MpiTurn turn = mpi_turn();
    if (!is_mpi_over()) send_chunk();
  }
  bool has_sent_all() override {
    const MpiTurn turn = mpi_turn();
    if (is_mpi_over()) return true;
    return std::all_of(out_.begin(), out_.end(),
                       [](MpiChunk& chunk) { return chunk.is_done(MPI_STATUS_IGNORE); });
  }
  std::size_t read(std::span<std::byte> bytes) override {
    const MpiTurn turn = mpi_turn();
    if (is_mpi_over()) return 0;
    std::size_t got = 0;
    while (got < bytes.size()) {
      MpiChunk& chunk = in_[reads_];
      if (chunk.is_under_way && !has_come(chunk)) break;
      const std::size_t now = std::min(bytes.size() - got, chunk.end - chunk.begin);
      std::memcpy(bytes.data() + got, chunk.bytes.data() + chunk.begin, now);
      chunk.begin += now;
      got += now;
      if (chunk.begin < chunk.end) continue;
      receive_into(chunk);
      reads_ = (reads_ + 1) % kChunks;
    }
    return got;
  }

 private:
  void send_chunk() {
    MpiChunk& chunk = out_[writes_];
    if (chunk.is_under_way || chunk.end == 0) return;
    check_mpi(MPI_Isend(chunk.bytes.data(), static_cast<int>(chunk.end), MPI_BYTE, peer_, kLaneTag,
                        communicator_, &chunk.request),
              "MPI_Isend");
    chunk.is_under_way = true;
    chunk.end = 0;
    writes_ = (writes_ + 1) % kChunks;
  }
  void receive_into(MpiChunk& chunk) {
    check_mpi(MPI_Irecv(chunk.bytes.data(), static_cast<int>(kChunk), MPI_BYTE, peer_, kLaneTag,
                        communicator_, &chunk.request),
              "MPI_Irecv");
    chunk.is_under_way = true;
  }
  static bool has_come(MpiChunk& chunk) {
    MPI_Status status;
    if (!chunk.is_done(&status)) return false;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    chunk.begin = 0;
    chunk.end = static_cast<std::size_t>(count);
    return true;
  }

  const MPI_Comm communicator_;
  const int peer_;
  std::array<MpiChunk, kChunks> in_;
  std::array<MpiChunk, kChunks> out_;
  std::size_t reads_ = 0;
  std::size_t writes_ = 0;
};

}  // namespace

MpiLanes::MpiLanes(std::vector<int> ranks) {
  const MpiTurn turn = mpi_turn();
  check_not_over();
  impl_ = std::make_unique<Impl>(std::move(ranks));
}
MpiLanes::~MpiLanes() {
  if (impl_->request == MPI_REQUEST_NULL) return;
  // A rank has not come, and MPI may write the communicator yet: it stays in memory for good.
  set_incomplete(true);
  [[maybe_unused]] const Impl* stays = impl_.release();
}

void MpiLanes::set_incomplete(bool is_incomplete) noexcept {
  if (impl_->is_incomplete.exchange(is_incomplete) == is_incomplete) return;
  incomplete_lanes += is_incomplete ? 1 : -1;
}

bool MpiLanes::are_ready() {
  const MpiTurn turn = mpi_turn();
  check_not_over();
  int done = 0;
  check_mpi(MPI_Test(&impl_->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done != 0) MPI_Comm_set_errhandler(impl_->communicator, MPI_ERRORS_RETURN);
  return done != 0;
}

std::unique_ptr<StreamCarrier> MpiLanes::lane_to(int peer) {
  const MpiTurn turn = mpi_turn();
  check_not_over();
  return std::make_unique<MpiLane>(impl_->communicator,
                                   impl_->ranks[static_cast<std::size_t>(peer)]);
}

}  // namespace cohort::internal::collectives

#else

namespace cohort::internal::collectives {

struct MpiLanes::Impl {};

bool has_mpi() { return false; }
bool has_mpi_launcher() { return false; }
bool is_mpi_over() { return true; }

MpiPlace mpi_place() {
  throw Unimplemented(
      "[communicator] expected a build of Cohort with MPI, got one without: none was found when it "
      "was configured (Debian: libopenmpi-dev), or COHORT_USE_MPI was off");
}

MpiLanes::MpiLanes(std::vector<int> /*ranks*/) { mpi_place(); }
MpiLanes::~MpiLanes() = default;
void MpiLanes::set_incomplete(bool /*is_incomplete*/) noexcept {}
bool MpiLanes::are_ready() { return false; }
std::unique_ptr<StreamCarrier> MpiLanes::lane_to(int /*peer*/) { return nullptr; }

}  // namespace cohort::internal::collectives

#endif
