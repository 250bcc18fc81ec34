// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/state.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "cohort/base/strings.h"

namespace cohort::internal::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Time passes as the test says.
struct StoreStates : ::testing::Test {
  StoreState state;
  StoreState::Time now = StoreState::Time(seconds(1000));
  uint64_t tickets = 0;
  std::map<uint64_t, StoreReply> answers;

  uint64_t ask(StoreRequest request) {
    state.ask(++tickets, request, now);
    take();
    return tickets;
  }
  void pass(milliseconds time) {
    now += time;
    state.advance(now);
    take();
  }
  void take() {
    for (auto& [ticket, reply] : state.take_answers()) {
      EXPECT_TRUE(answers.emplace(ticket, reply).second) << "answered twice: " << ticket;
    }
  }
  std::optional<StoreReply> answer(uint64_t ticket) const {
    const auto found = answers.find(ticket);
    return found == answers.end() ? std::nullopt : std::optional(found->second);
  }
  StoreReply answered(StoreRequest request) {
    const auto reply = answer(ask(std::move(request)));
    EXPECT_TRUE(reply) << "it waits";
    return reply.value_or(StoreReply{.code = ErrorCode::kUnknown});
  }

  // A task that lives.
  struct Task {
    std::string name;
    uint64_t generation;
  };
  Task join(const std::string& name, milliseconds lease = seconds(10)) {
    const StoreReply reply =
        answered({.verb = StoreVerb::kJoin, .value = name + ":2222", .lease = lease, .task = name});
    EXPECT_EQ(reply.code, ErrorCode::kOk) << reply.text;
    return {name, static_cast<uint64_t>(reply.number)};
  }
  static StoreRequest by(const Task& task, StoreRequest request) {
    request.task = task.name;
    request.generation = task.generation;
    return request;
  }
  StoreReply beat(const Task& task, const std::string& doing = "") {
    return answered(by(task, {.verb = StoreVerb::kHeartbeat, .value = doing}));
  }
  uint64_t meet(const Task& task, int64_t count, milliseconds wait = seconds(60),
                const std::string& value = "") {
    return ask(by(
        task,
        {.verb = StoreVerb::kMeet, .key = "here", .value = value, .number = count, .wait = wait}));
  }
};

void expect_words(const std::optional<StoreReply>& reply, ErrorCode code,
                  std::initializer_list<const char*> words) {
  ASSERT_TRUE(reply) << "it waits";
  EXPECT_EQ(reply->code, code) << reply->text;
  for (const char* word : words) {
    EXPECT_NE(reply->text.find(word), std::string::npos) << word << " in " << reply->text;
  }
}

TEST_F(StoreStates, TheFirstWriterWins) {
  const Task a = join("worker 0");
  const Task b = join("worker 1");
  EXPECT_EQ(answered(by(a, {.verb = StoreVerb::kInsert, .key = "k", .value = "a"})).value, "a");
  EXPECT_EQ(answered(by(b, {.verb = StoreVerb::kInsert, .key = "k", .value = "b"})).value, "a");
  EXPECT_EQ(answered(by(a, {.verb = StoreVerb::kGet, .key = "k"})).value, "a");
  EXPECT_TRUE(answered(by(a, {.verb = StoreVerb::kErase, .key = "k"})).yes);
  EXPECT_FALSE(answered(by(a, {.verb = StoreVerb::kGet, .key = "k"})).yes);
}

TEST_F(StoreStates, GetWaitsForTheKeyOrTheDeadline) {
  const Task a = join("worker 0");
  const StoreRequest get = {.verb = StoreVerb::kGet, .key = "k", .wait = seconds(5)};
  const uint64_t first = ask(by(a, get));
  const uint64_t late = ask(by(a, {.verb = StoreVerb::kGet, .key = "other", .wait = seconds(5)}));
  EXPECT_FALSE(answer(first));
  answered(by(a, {.verb = StoreVerb::kSet, .key = "k", .value = "v"}));
  ASSERT_TRUE(answer(first));
  EXPECT_EQ(answer(first)->value, "v");
  pass(milliseconds(4999));
  EXPECT_FALSE(answer(late));
  pass(milliseconds(1));
  expect_words(answer(late), ErrorCode::kDeadlineExceeded, {"\"other\"", "5 s"});
}

TEST_F(StoreStates, CountersAdd) {
  const Task a = join("worker 0");
  const auto add = [&](int64_t n) {
    return answered(by(a, {.verb = StoreVerb::kAdd, .key = "n", .number = n}));
  };
  EXPECT_EQ(add(3).number, 3);
  EXPECT_EQ(add(-5).number, -2);
  EXPECT_EQ(add(std::numeric_limits<int64_t>::min()).code, ErrorCode::kOutOfRange);
  answered(by(a, {.verb = StoreVerb::kSet, .key = "n", .value = "12x"}));
  EXPECT_EQ(add(1).code, ErrorCode::kFailedPrecondition);
}

TEST_F(StoreStates, AMeetingTakesAsManyAsWereSaid) {
  const Task a = join("worker 0");
  const Task b = join("worker 1");
  for (int round = 0; round < 2; ++round) {  // one name again and again
    const uint64_t first = meet(a, 2, seconds(60), "from a");
    EXPECT_FALSE(answer(first));
    const uint64_t second = meet(b, 2, seconds(60), "from b");
    const std::map<std::string, std::string> all = {{"worker 0", "from a"}, {"worker 1", "from b"}};
    EXPECT_EQ(answer(first)->all, all);
    EXPECT_EQ(answer(second)->all, all);
  }
  const uint64_t waiting = meet(a, 2);
  expect_words(answer(meet(b, 3)), ErrorCode::kFailedPrecondition,
               {"\"here\"", "2 from worker 0", "3 from worker 1"});
  EXPECT_FALSE(answer(waiting));
}

TEST_F(StoreStates, ADeadlineNamesWhoHasNotCome) {
  const Task a = join("worker 0");
  const Task b = join("worker 1");
  beat(b, "in strategy.run, step 3");
  const uint64_t waiting = meet(a, 2, seconds(2));
  pass(seconds(2));
  expect_words(answer(waiting), ErrorCode::kDeadlineExceeded,
               {"expected 2 at \"here\" within 2 s", "got 1 (worker 0)",
                "not here: worker 1 (worker 1:2222)", "in strategy.run, step 3"});
  // It has gone: a later round begins anew.
  const uint64_t again = meet(b, 2);
  EXPECT_FALSE(answer(again));
}

// A3: a lease that is over makes a task's process too late, whatever it asks from then on.
TEST_F(StoreStates, A3_WhoIsNotHeardOfIsFenced) {
  const Task a = join("worker 0", seconds(2));
  const Task b = join("worker 1", seconds(2));
  const StoreReply seen = beat(a);
  const uint64_t held =
      ask(by(a, {.verb = StoreVerb::kHeartbeat, .number = seen.number, .wait = seconds(60)}));
  beat(b, "in strategy.run, step 7");
  for (int i = 0; i < 2; ++i) {
    pass(milliseconds(900));
    beat(a);
  }
  EXPECT_FALSE(answer(held)) << "nothing has happened";
  pass(milliseconds(201));
  ASSERT_TRUE(answer(held)) << "the news come at once";
  const std::vector<StoreMember> members = answer(held)->members;
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[1].state, StoreMember::State::kDead);
  EXPECT_EQ(members[1].doing, "in strategy.run, step 7");
  EXPECT_EQ(members[1].silent, milliseconds(2001));
  for (const StoreVerb verb : {StoreVerb::kSet, StoreVerb::kInsert, StoreVerb::kAdd,
                               StoreVerb::kErase, StoreVerb::kMeet, StoreVerb::kHeartbeat}) {
    expect_words(answered(by(b, {.verb = verb, .key = "k", .value = "late"})),
                 ErrorCode::kFailedPrecondition, {"worker 1 (generation 1) is too late"});
  }
  EXPECT_FALSE(answered(by(a, {.verb = StoreVerb::kGet, .key = "k"})).yes);
  // The next process of the task is welcome.
  const Task again = join("worker 1");
  EXPECT_EQ(again.generation, 2U);
  EXPECT_TRUE(answered(by(again, {.verb = StoreVerb::kSet, .key = "k", .value = "v"})).yes);
}

TEST_F(StoreStates, AnotherProcessOfTheTaskFencesTheFirst) {
  const Task first = join("worker 0");
  const uint64_t waiting = meet(first, 2);
  const Task second = join("worker 0");
  EXPECT_EQ(second.generation, 2U);
  EXPECT_EQ(answer(waiting)->code, ErrorCode::kFailedPrecondition);
  expect_words(answered(by(first, {.verb = StoreVerb::kSet, .key = "k"})),
               ErrorCode::kFailedPrecondition, {"generation 1", "another process", "generation 2"});
}

TEST_F(StoreStates, AMeetingThatCannotBecomeWholeFailsAtOnce) {
  const Task a = join("worker 0", seconds(60));
  join("worker 1", seconds(2));
  const uint64_t waiting = meet(a, 2, seconds(600));
  const uint64_t enough = meet(join("worker 2", seconds(60)), 2, seconds(600));
  EXPECT_TRUE(answer(enough));
  EXPECT_TRUE(answer(waiting));
  const uint64_t hopeless = meet(a, 3, seconds(600));
  pass(milliseconds(2001));
  expect_words(answer(hopeless), ErrorCode::kUnavailable, {"expected 3", "worker 1", "2.001 s"});
}

TEST_F(StoreStates, WhoLeavesIsNotDead) {
  const Task a = join("worker 0", seconds(2));
  answered(by(a, {.verb = StoreVerb::kLeave}));
  pass(seconds(10));
  const StoreReply reply = answered({.verb = StoreVerb::kMembers});
  ASSERT_EQ(reply.members.size(), 1U);
  EXPECT_EQ(reply.members[0].state, StoreMember::State::kLeft);
}

// A4: Ctrl-Z of a job whose launcher, which keeps the store, goes on.
TEST_F(StoreStates, A4_WhoWereSilentTogetherAreAlive) {
  const Task a = join("worker 0", seconds(2));
  const Task b = join("worker 1", seconds(2));
  pass(seconds(3600));
  EXPECT_EQ(beat(b).code, ErrorCode::kOk);
  pass(milliseconds(900));
  EXPECT_EQ(beat(a).code, ErrorCode::kOk) << "it has as long to come back";
  // From here on one is heard, and the other is not.
  for (int i = 0; i < 3; ++i) {
    pass(milliseconds(900));
    beat(a);
  }
  expect_words(answered(by(b, {.verb = StoreVerb::kSet, .key = "k"})),
               ErrorCode::kFailedPrecondition, {"worker 1 (generation 1) is too late"});
}

// A4: a machine, or the job with its chief, which keeps the store, was stopped.
TEST_F(StoreStates, A4_AKeeperThatWasStoppedGivesNobodyUp) {
  const Task a = join("worker 0", seconds(2));
  state.keeper_was_stopped(seconds(30), now);  // times leave it out
  state.advance(now);
  EXPECT_EQ(beat(a).code, ErrorCode::kOk);
}

// But who went on meanwhile has given it up, and may have a new job.
TEST_F(StoreStates, A4_NobodyWritesUntilAllHaveHeardOfAKeeperThatWasStopped) {
  const Task a = join("worker 0", seconds(2));
  const Task b = join("worker 1", seconds(2));
  const StoreRequest may_write = {.verb = StoreVerb::kMayWrite, .wait = seconds(3)};
  EXPECT_TRUE(answered(by(a, may_write)).yes);
  const int64_t before = beat(b).number;
  state.keeper_was_stopped(seconds(1), now);
  EXPECT_TRUE(answered(by(a, may_write)).yes) << "nobody has given it up for that";
  state.keeper_was_stopped(seconds(30), now);
  take();
  const uint64_t waiting = ask(by(a, may_write));
  EXPECT_FALSE(answer(waiting));
  const auto beat_after = [&](const Task& task, int64_t version) {
    return answered(by(task, {.verb = StoreVerb::kHeartbeat, .number = version})).number;
  };
  const int64_t after = beat_after(a, before);
  beat_after(a, after);
  beat_after(b, before);  // was on its way before
  EXPECT_FALSE(answer(waiting));
  beat_after(b, after);
  ASSERT_TRUE(answer(waiting));
  EXPECT_TRUE(answer(waiting)->yes);
  // One that never comes back has ended it for good.
  state.keeper_was_stopped(seconds(30), now);
  take();
  const int64_t last = beat_after(a, after);
  const uint64_t in_vain = ask(by(a, may_write));
  for (int i = 0; i < 4; ++i) {
    pass(milliseconds(800));
    beat_after(a, last);
  }
  expect_words(answer(in_vain), ErrorCode::kFailedPrecondition,
               {"was stopped for 30 s", "worker 1 (worker 1:2222)", "must write"});
  expect_words(answered(by(a, may_write)), ErrorCode::kFailedPrecondition, {"worker 1"});
  const Task again = join("worker 1", seconds(2));
  EXPECT_TRUE(answered(by(a, may_write)).yes);
  EXPECT_TRUE(answered(by(again, may_write)).yes);
}

TEST_F(StoreStates, WhoIsNoTaskOnlyLooks) {
  EXPECT_EQ(answered({.verb = StoreVerb::kGet, .key = "k"}).code, ErrorCode::kOk);
  EXPECT_EQ(answered({.verb = StoreVerb::kSet, .key = "k"}).code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(
      answered({.verb = StoreVerb::kSet, .key = "k", .task = "worker 7", .generation = 1}).code,
      ErrorCode::kFailedPrecondition);
  EXPECT_EQ(answered({.verb = StoreVerb::kSet, .key = "k", .is_keeper = true}).code,
            ErrorCode::kOk);
}

// F6
TEST(StoreStateLimits, F6_AStoreHoldsSoMuch) {
  StoreState state({.key_bytes = 10, .value_bytes = 20, .all_bytes = 50, .waiting = 1});
  const StoreState::Time now{};
  const auto set = [&](const std::string& key, std::size_t bytes) {
    state.ask(
        1,
        {.verb = StoreVerb::kSet, .key = key, .value = std::string(bytes, 'x'), .is_keeper = true},
        now);
    return state.take_answers().at(0).reply.code;
  };
  EXPECT_EQ(set("a key too long", 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(set("k", 21), ErrorCode::kInvalidArgument);
  EXPECT_EQ(set("k", 20), ErrorCode::kOk);
  EXPECT_EQ(set("l", 20), ErrorCode::kOk);
  EXPECT_EQ(set("m", 20), ErrorCode::kResourceExhausted);
  EXPECT_EQ(set("l", 20), ErrorCode::kOk) << "what takes the place of as much";
  const StoreRequest wait = {.verb = StoreVerb::kGet, .key = "z", .wait = seconds(1)};
  state.ask(2, wait, now);
  EXPECT_TRUE(state.take_answers().empty());
  state.ask(3, wait, now);
  EXPECT_EQ(state.take_answers().at(0).reply.code, ErrorCode::kResourceExhausted);
}

// F6: whatever it is that takes the memory.
TEST(StoreStateLimits, F6_CountersTasksAndWaitersCountToo) {
  StoreState state({.value_bytes = 100, .all_bytes = 300, .keys = 3, .members = 2, .waiting = 99});
  const StoreState::Time now{};
  const auto asked = [&](const StoreRequest& request) {
    state.ask(1, request, now);
    auto answers = state.take_answers();
    return answers.empty() ? StoreReply{} : answers[0].reply;
  };
  const auto join = [&](const std::string& task) {
    return asked({.verb = StoreVerb::kJoin, .lease = seconds(1), .task = task}).code;
  };
  EXPECT_EQ(join("a"), ErrorCode::kOk);
  EXPECT_EQ(join("b"), ErrorCode::kOk);
  EXPECT_EQ(join("b"), ErrorCode::kOk) << "in its own place";
  EXPECT_EQ(join("c"), ErrorCode::kResourceExhausted);
  const auto add = [&](const std::string& key) {
    return asked({.verb = StoreVerb::kAdd, .key = key, .number = 1, .is_keeper = true});
  };
  for (const char* key : {"1", "2", "3", "3"}) EXPECT_EQ(add(key).code, ErrorCode::kOk) << key;
  expect_words(add("4"), ErrorCode::kResourceExhausted, {"3 keys", "\"4\"", "erase"});
  const auto meet = [&](uint64_t ticket, const std::string& name) {
    state.ask(ticket,
              {.verb = StoreVerb::kMeet,
               .key = name,
               .value = std::string(90, 'x'),
               .number = 2,
               .wait = seconds(1),
               .is_keeper = true},
              now);
    auto answers = state.take_answers();
    return answers.empty() ? ErrorCode::kOk : answers[0].reply.code;
  };
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(meet(10 + i, str_cat("m", i)), ErrorCode::kOk);
  EXPECT_EQ(meet(13, "m3"), ErrorCode::kResourceExhausted);
  state.advance(now + seconds(2));  // all of them have waited long enough
  EXPECT_EQ(state.take_answers().size(), 3U);
  EXPECT_EQ(meet(14, "m4"), ErrorCode::kOk);
}

TEST(StoreMessages, GarbageIsDataLoss) {
  const std::string whole =
      encode(StoreRequest{.verb = StoreVerb::kSet, .key = "k", .value = "v", .wait = seconds(1)});
  EXPECT_EQ(decode_store_request(StoreVerb::kSet, whole).value, "v");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(decode_store_request(StoreVerb::kSet, whole.substr(0, size)), DataLoss) << size;
  }
  EXPECT_THROW(decode_store_request(StoreVerb::kSet, whole + "x"), DataLoss);
  StoreReply reply{.yes = true, .all = {{"a", "b"}}};
  reply.members.push_back({.task = "worker 0"});
  const std::string answer = encode(reply);
  for (std::size_t at = 0; at < answer.size(); ++at) {
    std::string flipped = answer;
    flipped[at] = static_cast<char>(~flipped[at]);
    try {
      decode_store_reply(flipped);
    } catch (const DataLoss&) {
      continue;  // or another value; never anything else
    }
  }
}

}  // namespace
}  // namespace cohort::internal::cluster
