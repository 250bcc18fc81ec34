// SPDX-License-Identifier: Apache-2.0
//
// map and interleave on background threads: in order and out of order, with errors, positions and
// ends in the middle.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <latch>
#include <random>
#include <thread>

#include "cohort/data/dataset.h"

namespace cohort {
namespace {

using Numbers = std::vector<int64_t>;
using Make = std::function<Dataset()>;

/// What is left of a pass: numbers as text, errors as their text.
std::vector<std::string> rest_of(Iterator& it) {
  std::vector<std::string> out;
  for (bool more = true; more && out.size() < 500;) {
    try {
      const std::optional<Element> e = it.next();
      more = e.has_value();
      if (more) out.push_back(std::to_string(e->as<int64_t>()));
    } catch (const DataLoss& e) {
      out.emplace_back(e.what());
    }
  }
  return out;
}
std::vector<std::string> rest_of(const Dataset& dataset) {
  auto it = dataset.make_iterator();
  return rest_of(it);
}
std::vector<std::string> sorted(std::vector<std::string> values) {
  std::sort(values.begin(), values.end());
  return values;
}

/// Whatever the position, what was delivered before it and what follows are together everything,
/// each once.
void expect_nothing_lost(const Make& make) {
  const std::vector<std::string> all = sorted(rest_of(make()));
  ASSERT_FALSE(all.empty());
  for (std::size_t position = 0; position <= all.size(); ++position) {
    auto it = make().make_iterator();
    std::vector<std::string> before;
    while (before.size() < position) {
      try {
        const std::optional<Element> e = it.next();
        ASSERT_TRUE(e.has_value()) << position;
        before.push_back(std::to_string(e.value().as<int64_t>()));
      } catch (const DataLoss& e) {
        before.emplace_back(e.what());
      }
    }
    const std::string state = it.save();
    auto resumed = make().make_iterator(state);
    for (Iterator* next : {&resumed, &it}) {
      std::vector<std::string> together = rest_of(*next);
      together.insert(together.end(), before.begin(), before.end());
      EXPECT_EQ(sorted(together), all) << "position " << position;
    }
  }
}

Dataset plain(int64_t n) {
  return Dataset::range(n).map([](const Tensor& x) { return x; });
}
/// 0 to 3 elements for every argument, errors among them.
Dataset part(int64_t x) {
  if (x % 7 == 3) throw DataLoss("cannot open");
  return Dataset::range(10 * x, 10 * x + x % 4).map([](int64_t y) {
    if (y % 10 == 1 && y % 3 == 0) throw DataLoss("bad record");
    return y;
  });
}

int64_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

/// A thread that was joined is still listed for a moment.
void expect_threads(int64_t count) {
  for (int i = 0; i < 10000 && threads_of_process() != count; ++i) std::this_thread::yield();
  EXPECT_EQ(threads_of_process(), count);
}

TEST(OutOfOrder, MapDeliversWhatIsReady) {
  std::latch delivered(1);
  auto ds = Dataset::range(20).map(
      [&](int64_t x) {
        if (x == 0) delivered.wait();  // In order, nothing would be delivered before this.
        return x;
      },
      {.parallel_calls = 2, .deterministic = false});
  auto it = ds.make_iterator();
  EXPECT_NE(it.next()->as<int64_t>(), 0);
  delivered.count_down();
  EXPECT_EQ(rest_of(it).size(), 19U);
}

TEST(OutOfOrder, InterleaveSkipsWhoHasNothingReady) {
  std::latch delivered(1);
  auto open = [&](int64_t x) {
    return Dataset::range(10 * x, 10 * x + 3).map([&](int64_t y) {
      if (y == 0) delivered.wait();
      return y;
    });
  };
  auto ds = Dataset::range(2).interleave(
      open, {.cycle_length = 2, .parallel_calls = 2, .deterministic = false});
  auto it = ds.make_iterator();
  Numbers first;
  for (int i = 0; i < 3; ++i) first.push_back(it.next()->as<int64_t>());
  EXPECT_EQ(first, (Numbers{10, 11, 12}));
  delivered.count_down();
  EXPECT_EQ(rest_of(it), (std::vector<std::string>{"0", "1", "2"}));
}

TEST(OutOfOrder, IsAnOptionOfThePipelineThatNodesMayOverrule) {
  auto blocked = [](std::latch& latch, std::optional<bool> deterministic) {
    return Dataset::range(8)
        .map(
            [&latch](int64_t x) {
              if (x == 0) latch.wait();
              return x;
            },
            {.parallel_calls = 2, .deterministic = deterministic})
        .with_options({.deterministic = false})
        .prefetch(1);
  };
  {
    std::latch latch(1);
    auto it = blocked(latch, {}).make_iterator();
    EXPECT_NE(it.next()->as<int64_t>(), 0);
    latch.count_down();
    EXPECT_EQ(rest_of(it).size(), 7U);
  }
  std::latch latch(0);
  EXPECT_EQ(rest_of(blocked(latch, true)),
            (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7"}));
}

TEST(OutOfOrder, ErrorsNameTheirElement) {
  auto ds = Dataset::range(30).map(
      [](int64_t x) {
        if (x % 10 == 7) throw DataLoss("seven");
        return x;
      },
      {.parallel_calls = 3, .deterministic = false});
  std::vector<std::string> expected;
  for (int64_t x = 0; x < 30; ++x) {
    const std::string text = std::to_string(x);
    expected.push_back(x % 10 == 7 ? "[dataset.map] element " + text + " of range.map: seven"
                                   : text);
  }
  EXPECT_EQ(sorted(rest_of(ds)), sorted(expected));
  EXPECT_EQ(rest_of(ds.ignore_errors({.log_warning = false})).size(), 27U);
}

TEST(OutOfOrder, PositionsLoseNothing) {
  auto bad = [](int64_t x) {
    if (x % 4 == 1) throw DataLoss("bad record");
    return x;
  };
  auto same = [](int64_t x) { return x; };
  const MapOptions map = {.parallel_calls = 3, .deterministic = false};
  const InterleaveOptions interleave = {
      .cycle_length = 3, .parallel_calls = 2, .deterministic = false};
  expect_nothing_lost([&] { return plain(13).map(bad, map); });
  expect_nothing_lost([&] { return plain(9).map(bad, map).prefetch(2).map(same, map); });
  expect_nothing_lost([&] { return plain(12).interleave(part, interleave); });
  expect_nothing_lost([&] { return plain(12).interleave(part, interleave).map(same, map); });
}

TEST(ParallelInterleave, GivesTheOrderOfOneThread) {
  for (const int cycle : {1, 2, 5, 16}) {
    for (const int64_t block : {1, 2, 7}) {
      auto read = [&](int parallel_calls) {
        return rest_of(plain(23).interleave(
            part,
            {.cycle_length = cycle, .block_length = block, .parallel_calls = parallel_calls}));
      };
      const std::vector<std::string> expected = read(1);
      EXPECT_GT(expected.size(), 25U);
      for (const int parallel_calls : {2, 3, 20}) {
        EXPECT_EQ(read(parallel_calls), expected) << cycle << " " << block << " " << parallel_calls;
      }
    }
  }
}

TEST(ParallelInterleave, ReadsManyDatasetsAtOnceWithFewThreads) {
  // The first elements of two datasets are read at the same time, whichever two.
  std::latch both(2);
  std::atomic<int> started{0};
  auto open = [&](int64_t x) {
    return Dataset::range(5).map([&, x](int64_t y) {
      if (y == 0 && started++ < 2) both.arrive_and_wait();
      return 100 * x + y;
    });
  };
  auto ds = Dataset::range(40).interleave(open, {.cycle_length = 16, .parallel_calls = 2});
  EXPECT_EQ(rest_of(ds).size(), 200U);
}

TEST(ParallelInterleave, PositionsOfOneNumberOfThreadsFitAnother) {
  auto make = [](int threads) {
    return plain(9)
        .map([](int64_t x) { return x; }, {.parallel_calls = threads})
        .interleave(part, {.cycle_length = 3, .block_length = 2, .parallel_calls = threads});
  };
  const std::vector<std::string> all = rest_of(make(1));
  for (const auto& [from, to] : {std::pair(1, 3), std::pair(3, 1), std::pair(2, 4)}) {
    for (std::size_t position = 0; position <= all.size(); ++position) {
      auto it = make(from).make_iterator();
      for (std::size_t i = 0; i < position; ++i) {
        try {
          it.next();
        } catch (const DataLoss&) {  // Counted as an element.
        }
      }
      auto resumed = make(to).make_iterator(it.save());
      EXPECT_EQ(rest_of(resumed),
                std::vector<std::string>(all.begin() + static_cast<int64_t>(position), all.end()));
    }
  }
}

Dataset with_threads_everywhere(int64_t n) {
  auto open = [](int64_t x) {
    return plain(5).map([x](int64_t y) { return 10 * x + y; }, {.parallel_calls = 2}).prefetch(2);
  };
  return plain(n)
      .prefetch(2)
      .interleave(open, {.cycle_length = 3, .parallel_calls = 2})
      .map([](int64_t x) { return x; }, {.parallel_calls = 2, .deterministic = false})
      .prefetch(3);
}

TEST(Cancelling, NoThreadOutlivesItsIterator) {
  const int64_t before = threads_of_process();
  std::minstd_rand random(7);
  for (int round = 0; round < 60; ++round) {
    auto it = with_threads_everywhere(1 << 30).make_iterator();
    for (auto left = random() % 40; left > 0; --left) ASSERT_TRUE(it.next());
    if (round % 4 == 0) it = with_threads_everywhere(1 << 30).make_iterator(it.save());
  }
  expect_threads(before);
}

TEST(Cancelling, ThreadsOfAnEndedPassAreGoneToo) {
  const int64_t before = threads_of_process();
  auto it = with_threads_everywhere(8).make_iterator();
  EXPECT_EQ(rest_of(it).size(), 40U);
  expect_threads(before);
}

/// A source that has nothing more to say until it is released.
struct Blocked {
  std::latch reached{1};
  std::latch released{1};

  Dataset dataset(bool below_threads) {
    Dataset source = Dataset::range(10).map([this](int64_t x) {
      if (x == 4) {
        reached.count_down();
        released.wait();
      }
      return x;
    });
    if (!below_threads) return source.prefetch(8);
    auto id = [](int64_t x) { return x; };
    return source.prefetch(1)
        .map(id, {.parallel_calls = 2})
        .interleave([](int64_t x) { return Dataset::range(x, x + 1); },
                    {.cycle_length = 1, .parallel_calls = 2})
        .prefetch(2);
  }
};

TEST(Cancelling, StopsAReaderThatWaitsOnAnotherThread) {
  for (const bool below_threads : {false, true}) {
    Blocked blocked;
    auto it = blocked.dataset(below_threads).make_iterator();
    std::string text;
    std::thread reader([&] {
      try {
        while (it.next()) continue;
      } catch (const Cancelled& e) {
        text = e.what();
      }
    });
    blocked.reached.wait();
    it.cancel();
    reader.join();  // Nobody has released the source.
    EXPECT_EQ(text, "[iterator.next] expected an iterator in use, got one that was cancelled");
    EXPECT_THROW(it.next(), Cancelled);
    blocked.released.count_down();
  }
}

TEST(Cancelling, IsNoErrorThatIgnoreErrorsLeavesOut) {
  Blocked blocked;
  auto it = blocked.dataset(true).ignore_errors().make_iterator();
  std::thread canceller([&] {
    blocked.reached.wait();
    it.cancel();
  });
  EXPECT_THROW(
      {
        while (it.next()) continue;
      },
      Cancelled);
  canceller.join();
  blocked.released.count_down();
}

TEST(Errors, ComeThroughEveryKindOfThreadWithTheirPlace) {
  auto bad = [](int64_t x) {
    if (x == 5) throw DataLoss("bad record");
    return x;
  };
  auto id = [](int64_t x) { return x; };
  auto open = [](int64_t x) { return Dataset::range(x, x + 1); };
  for (const std::optional<bool> deterministic : {true, false}) {
    auto ds =
        Dataset::range(9)
            .map(bad, {.parallel_calls = 2, .deterministic = deterministic})
            .prefetch(2)
            .interleave(open,
                        {.cycle_length = 2, .parallel_calls = 2, .deterministic = deterministic})
            .map(id, {.parallel_calls = 3, .deterministic = deterministic})
            .prefetch(1);
    const std::vector<std::string> all = sorted(rest_of(ds));
    ASSERT_EQ(all.size(), 9U);
    EXPECT_EQ(all.back(), "[dataset.map] element 5 of range.map: bad record");
  }
}

}  // namespace
}  // namespace cohort
