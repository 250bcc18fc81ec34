// SPDX-License-Identifier: Apache-2.0
//
// How a function counts once, however often it is run: a model of cohort/replication/closures.h for
// spin. Each step has the name of the function that it is a model of.
//
// One closure; each attempt at it has an effect on servers of its own choice. Messages may be lost,
// late, twice and in any order: what was ever sent can arrive at any time, or never. A worker may
// do nothing any more, and one that was given up may go on.
//
//   spin -a -DSERVERS=2 -DATTEMPTS=3 closures.pml && gcc -O1 -DSAFETY -o pan pan.c && ./pan -E
//
// -DBUG_...: something is wrong, and has to be found. Left out: several effects on one server, what
// is kept of several closures, and servers that die (replication.pml's: what is here is their state).

#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)
#define NONE (ATTEMPTS + 1)    // whose effects are applied where it has thrown

// The coordinator: ClosureCommits.
byte attempt;                  // the last one that has begun
byte decided;                  // for which attempt; NONE: it has thrown; 0: not yet
byte settled_by;               // servers that have said so
bit ended;

// An attempt's worker.
typedef Attempt {
  byte touches;                // servers
  byte prepared;               // those that have acknowledged its effect
  bit is_done;                 // its answer is sent,
  bit is_good;                 // or that it has thrown
};
Attempt tried[ATTEMPTS + 2];

// PreparedEffects
typedef Server {
  bit is_settled;
  bit floor;                   // is behind the closure
  byte number;                 // of the attempt that is open
  byte effect;                 // of which attempt it is; 0: none
  byte applied;
};
Server server[SERVERS];

#define WANTS(s) (decided != NONE && HAS(tried[decided].touches, s))
#ifdef BUG_FORGETS_WHAT_IS_SETTLED
#define IS_SETTLED(s) false
#else
#define IS_SETTLED(s) (server[s].is_settled || server[s].floor)
#endif

// prepare(): of attempt a, on server s; where it changes something
#define CAN_PREPARE(s, a) \
  ((a) <= attempt && HAS(tried[a].touches, s) && !IS_SETTLED(s) && (a) >= server[s].number && \
   ((a) > server[s].number || server[s].effect == 0 || !HAS(tried[a].prepared, s)))
inline prepare(s, a) {
#ifndef BUG_KEEPS_FORMER_ATTEMPTS
  if
  :: a > server[s].number -> server[s].effect = 0
  :: else
  fi;
#endif
  server[s].number = a;
  server[s].effect = (server[s].effect == 0 -> a : server[s].effect);  // try_emplace()
  tried[a].prepared = tried[a].prepared | BIT(s)
}

// settle()
#define CAN_SETTLE(s) (decided != 0 && !HAS(settled_by, s))
#define IS_THERE(s) (decided != NONE && server[s].number == decided && server[s].effect != 0)
inline settle(s) {
  if
  :: !IS_SETTLED(s) ->
     assert(IS_THERE(s) == WANTS(s));  // "... effects were acknowledged, ... are there"
     if
     :: IS_THERE(s) ->
        assert(server[s].effect == decided);  // no other attempt's
        server[s].applied++;
        assert(server[s].applied == 1)
     :: else
     fi;
     server[s].number = 0;
     server[s].effect = 0;
     server[s].is_settled = 1
  :: else
  fi
}

// The worker has answers of all servers that it has changed.
#ifdef BUG_ANSWERS_BEFORE_ALL_ARE_PREPARED
#define HAS_ALL(a) true
#else
#define HAS_ALL(a) (tried[a].prepared == tried[a].touches)
#endif

// decide()
#ifdef BUG_HEARS_WHO_WAS_GIVEN_UP
#define IS_CURRENT(a) (decided == 0)
#else
#define IS_CURRENT(a) (attempt == (a) && IS_OPEN)
#endif
#ifdef BUG_DECIDES_TWICE
#define IS_OPEN true
#else
#define IS_OPEN (decided == 0)
#endif
#define OUTCOME(a) (tried[a].is_good -> (a) : NONE)

#define OF_ATTEMPT(a) \
  :: d_step { (a) <= attempt && !tried[a].is_done && HAS_ALL(a) -> \
              tried[a].is_done = 1; tried[a].is_good = 1 } \
  :: d_step { (a) <= attempt && !tried[a].is_done -> tried[a].is_done = 1 } \
  :: d_step { (a) <= attempt && tried[a].is_done && IS_CURRENT(a) && decided != OUTCOME(a) -> \
              decided = OUTCOME(a); settled_by = 0 } \
  :: d_step { CAN_PREPARE(0, a) -> prepare(0, a) } \
  :: d_step { CAN_PREPARE(1, a) -> prepare(1, a) }
// A settle() that comes again: its closure is settled, and nothing may change. raise_floor(): some
// later closure's.
#define OF_SERVER(s) \
  :: d_step { CAN_SETTLE(s) -> settle(s); settled_by = settled_by | BIT(s) } \
  :: d_step { decided != 0 && HAS(settled_by, s) && server[s].effect != 0 -> settle(s) } \
  :: d_step { ended && !server[s].floor -> \
              server[s].floor = 1; server[s].is_settled = 0; server[s].number = 0; \
              server[s].effect = 0 }

active proctype All() {
  do
  // begin(), anew when the attempt before was given up: lose()
  :: atomic {
       IS_OPEN && attempt < ATTEMPTS ->
       attempt++;
       do
       :: tried[attempt].touches + 1 < BIT(SERVERS) -> tried[attempt].touches++
       :: break
       od
     }
  OF_ATTEMPT(1)
  OF_ATTEMPT(2)
  OF_ATTEMPT(3)
  OF_SERVER(0)
  OF_SERVER(1)
  :: d_step { decided != 0 && settled_by == BIT(SERVERS) - 1 && !ended -> ended = 1 }
  :: timeout -> break
  od;
  // Nothing is left to do.
  assert(ended);
  assert(server[0].applied == WANTS(0));
  assert(server[1].applied == WANTS(1))
}
