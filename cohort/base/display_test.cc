// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/display.h"

#include <gtest/gtest.h>

namespace cohort::internal::base {
namespace {

TEST(Display, EscapesWhatMeansSomethingInMarkup) {
  EXPECT_EQ(markup_escaped(""), "");
  EXPECT_EQ(markup_escaped("dense_1 ü"), "dense_1 ü");
  EXPECT_EQ(markup_escaped(R"(<i a="b">&'</i>)"), "&lt;i a=&quot;b&quot;&gt;&amp;&#39;&lt;/i&gt;");
}

TEST(Display, ShowsNumbers) {
  EXPECT_EQ(fixed_text(2.5, 2), "2.50");
  EXPECT_EQ(fixed_text(-0.25, 0), "-0");
  EXPECT_EQ(duration_text(59.94), "59.9 s");
  EXPECT_EQ(duration_text(60), "1.0 min");
  EXPECT_EQ(duration_text(3600 * 2.5), "2.5 h");
  EXPECT_EQ(rate_text(99.94), "99.9");
  EXPECT_EQ(rate_text(1234.6), "1235");
}

}  // namespace
}  // namespace cohort::internal::base
