// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/claims.h"
#include "cohort/testing/expect_error.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace cohort::internal::rpc {
namespace {

constexpr const char* kToken = "a token that nobody can guess";

struct Claims : ::testing::Test {
  const RpcClaims worker = {.job = "job", .task = "worker 1", .generation = 3};
  ClaimsSigner signer{Secret(kToken)};
  ClaimsVerifier verifier{"job", Secret(kToken)};
};

TEST_F(Claims, AreReadBack) {
  const RpcClaims read = verifier.verify(signer.header(worker, "m"), "m");
  EXPECT_EQ(read.job, "job");
  EXPECT_EQ(read.task, "worker 1");
  EXPECT_EQ(read.generation, 3U);
}

// F3: wrong token, wrong job, another task or method than was signed, and a call that is replayed.
TEST_F(Claims, F3_OfStrangersAreRefused) {
  ClaimsSigner stranger{Secret("another token of that length")};
  EXPECT_THROW(verifier.verify(stranger.header(worker, "m"), "m"), Unauthenticated);
  ClaimsSigner silent{Secret()};
  EXPECT_THROW(verifier.verify(silent.header(worker, "m"), "m"), Unauthenticated);
  RpcClaims other = worker;
  other.job = "another job";
  EXPECT_THROW(verifier.verify(signer.header(other, "m"), "m"), Unauthenticated);
  EXPECT_THROW(verifier.verify(signer.header(worker, "m"), "n"), Unauthenticated);
  std::string changed = signer.header(worker, "m");
  const std::size_t at = changed.find("worker 1");
  ASSERT_NE(at, std::string::npos);
  changed[at + 7] = '0';
  EXPECT_THROW(verifier.verify(changed, "m"), Unauthenticated);
}

TEST_F(Claims, F3_ThatWereUsedAreRefused) {
  std::vector<std::string> headers;
  for (int i = 0; i < 3000; ++i) headers.push_back(signer.header(worker, "m"));
  verifier.verify(headers[1], "m");
  verifier.verify(headers[0], "m");  // in any order
  EXPECT_THROW(verifier.verify(headers[1], "m"), Unauthenticated);
  verifier.verify(headers[2999], "m");
  EXPECT_THROW(verifier.verify(headers[2], "m"), Unauthenticated) << "too old to be remembered";
  EXPECT_THROW(verifier.verify(headers[2999], "m"), Unauthenticated);
  verifier.verify(headers[2998], "m");
}

TEST_F(Claims, GarbageIsRefused) {
  const std::string whole = signer.header(worker, "m");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(verifier.verify(whole.substr(0, size), "m"), Unauthenticated) << size;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    EXPECT_THROW(verifier.verify(flipped, "m"), Unauthenticated) << at;
  }
  verifier.verify(whole, "m");
}

TEST_F(Claims, ErrorsSayNothingOfTheToken) {
  ClaimsVerifier other{"job", Secret("another token of that length")};
  const std::string text =
      testing::error_text<Unauthenticated>([&] { other.verify(signer.header(worker, "m"), "m"); });
  testing::expect_words(text, {"expected a caller of this job"});
  EXPECT_EQ(text.find("another token"), std::string::npos) << text;
}

TEST(SecurityVariables, AreReadAndNamed) {
  ::setenv("COHORT_JOB_TOKEN", "short", 1);
  const std::string text =
      testing::error_text<InvalidArgument>([] { security_from_environment(); });
  EXPECT_NE(text.find("COHORT_JOB_TOKEN"), std::string::npos) << text;
  EXPECT_EQ(text.find("short"), std::string::npos) << "a token is not repeated: " << text;
  ::setenv("COHORT_JOB_TOKEN", "sixteen bytes or", 1);
  ::setenv("COHORT_TLS_KEY", "/nowhere", 1);
  EXPECT_THROW(security_from_environment(), InvalidArgument);
  ::unsetenv("COHORT_TLS_KEY");
  EXPECT_FALSE(security_from_environment().token.empty());
  ::unsetenv("COHORT_JOB_TOKEN");
  EXPECT_TRUE(security_from_environment().token.empty());
}

}  // namespace
}  // namespace cohort::internal::rpc
