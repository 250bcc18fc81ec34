// SPDX-License-Identifier: Apache-2.0
//
// What becomes of functions that count once where a coordinator dies, its disk is full or servers
// are away, over connections to servers that are threads of this process.
#include "cohort/coordinator/internal/closure_effects.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using testing::expect_error;

EncodedValues encoded_number(double x) {
  ValueWriter out;
  write_value(out, x);
  return std::move(out).finish();
}

class ClosureEffectsTest : public ::testing::Test {
 protected:
  ClosureEffectsTest() { std::filesystem::remove_all(folder_); }
  ~ClosureEffectsTest() override {
    base::g_failpoint_hook = nullptr;
    base::g_fault_hook = nullptr;
    std::filesystem::remove_all(folder_);
  }
  std::shared_ptr<Journal> open_journal() const {
    return std::make_shared<Journal>(Journal::Options{.folder = folder_});
  }
  /// Adds one, when it counts. What servers have acknowledged.
  static std::vector<uint64_t> prepare(ParameterServers& servers, const ParameterHandle& h,
                                       uint64_t closure, uint64_t attempt) {
    const Transaction once(closure, attempt);
    servers.write(h, {}, variables::Write::kAdd, full({1}, 1.0));
    return once.counts();
  }
  ParameterHandle make_zero() const {
    return servers_->make_or_bind({.name = "w", .shape = {1}}, [](int64_t rows, int64_t /*first*/) {
      return full({rows}, 0.0);
    });
  }
  float value() const { return servers_->pull(h_).item<float>(); }

  const std::string folder_ = str_cat(::testing::TempDir(), "cohort_effects_", ::getpid());
  const TestServers test_{2};
  const std::shared_ptr<ParameterServers> servers_ = test_.connect();
  const ParameterHandle h_ = make_zero();
};

// Each within the range that the one before it would have had by what was decided.
TEST_F(ClosureEffectsTest, AProcessThatDecidesNothingHasItsOwnNumbersAllTheSame) {
  {
    const auto journal = open_journal();
    journal->begin(11, false);
    const uint64_t id = servers_->next_closure();
    journal->decide({}, {.closure = id, .attempt = 1}, {});
    journal->end(id, nullptr);
  }
  std::vector<uint64_t> ids;
  for (const uint64_t session : {12, 13, 14}) {
    const auto journal = open_journal();
    journal->begin(session, true);
    const auto servers = test_.connect();
    settle_decided(*journal, *servers);
    for (const uint64_t id : ids) {
      expect_error<FailedPrecondition>({"taken for lost"}, [&] { prepare(*servers, h_, id, 2); });
    }
    const uint64_t id = servers->next_closure();
    EXPECT_GT(id, ids.empty() ? 0 : ids.back() + 1000);
    prepare(*servers, h_, id, 1);  // which is left there
    ids.push_back(id);
  }
}

}  // namespace
}  // namespace cohort::internal::coordinator
