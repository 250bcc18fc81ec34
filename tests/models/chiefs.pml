// SPDX-License-Identifier: Apache-2.0
//
// How a function with an id counts once when its chief is followed by others, which have its
// journal: a model for spin of cohort/coordinator/internal/{journal,closure_effects} and of
// parameters/generation_fence.h, as cohort/replication/chief_simulator.h has them.
//
// One id, of which each chief runs a closure of its own, whose number is the chief's, with an
// effect on each server. A chief dies, with or without what the disk has not taken, or is followed
// while it lives, and goes on. Messages may be lost, late, twice and in any order: what was ever
// sent can arrive at any time, or never.
//
//   spin -a -DSERVERS=2 -DCHIEFS=3 chiefs.pml && gcc -O1 -DSAFETY -o pan pan.c && ./pan -E
//
// -DBUG_...: something is wrong, and has to be found. Left out: several attempts of one closure
// (closures.pml), and servers that die.

#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)
#define ALL (BIT(SERVERS) - 1)

// The journal's file.
byte newest = 1;               // the chief that has begun last
byte written;                  // closures that it says are decided
byte durable;                  // of these

typedef Told { byte by[CHIEFS + 1] };  // servers that have said so, by closure
typedef Chief {
  bit lives;
  byte knows;                  // what it has read: closures that are decided
  byte greeted;                // servers that have answered
  byte floored;                // and that refuse what is not decided and before it
  byte prepared;               // servers that have acknowledged its own closure's effect
  bit tells;                   // it has decided, and says so
  Told told;
  bit is_over;                 // the program has heard that the function has ended
};
Chief chief[CHIEFS + 1];
byte led;                      // the newest that all servers have answered

typedef Server {
  byte newest;                 // chief
  byte floor;
  byte prepared;               // closures
  byte settled;
  byte applied;
};
Server server[SERVERS];

#ifdef BUG_SERVERS_TAKE_ALL
#define TAKES(s, c) true
#else
#define TAKES(s, c) ((c) >= server[s].newest)
#endif
#ifdef BUG_JOURNAL_TAKES_ALL
#define MAY_WRITE(c) chief[c].lives
#else
#define MAY_WRITE(c) (chief[c].lives && newest == (c))
#endif
#ifdef BUG_TELLS_BEFORE_THE_DISK
#define MAY_TELL(c) HAS(written, c)
#else
#define MAY_TELL(c) HAS(durable, c)
#endif
#define LEADS(c) (chief[c].floored == ALL)
#define HAS_TOLD(c, d) (!HAS(chief[c].knows, d) || chief[c].told.by[d] == ALL)
#define HAS_TOLD_ALL(c) (HAS_TOLD(c, 1) && HAS_TOLD(c, 2) && HAS_TOLD(c, 3))

inline settle(c, d, s) {
  if
  :: d >= server[s].floor && !HAS(server[s].settled, d) ->
     assert(HAS(server[s].prepared, d));
     server[s].applied++;
     assert(server[s].applied == 1)
  :: else
  fi;
  server[s].settled = server[s].settled | BIT(d);
  chief[c].told.by[d] = chief[c].told.by[d] | BIT(s)
}

// What chief c and a server have to do with each other. A chief that was followed changes nothing.
#define WITH_SERVER(c, s) \
  :: d_step { (c) <= newest && (c) >= server[s].newest && !HAS(chief[c].greeted, s) -> \
              server[s].newest = c; chief[c].greeted = chief[c].greeted | BIT(s); \
              led = (chief[c].greeted == ALL && (c) > led -> (c) : led) } \
  :: d_step { chief[c].greeted == ALL && HAS_TOLD_ALL(c) && TAKES(s, c) && \
              !HAS(chief[c].floored, s) -> \
              server[s].floor = (server[s].floor < (c) -> (c) : server[s].floor); \
              chief[c].floored = chief[c].floored | BIT(s) } \
  :: d_step { LEADS(c) && chief[c].knows == 0 && TAKES(s, c) && (c) >= server[s].floor && \
              !HAS(server[s].settled, c) && !HAS(chief[c].prepared, s) -> \
              server[s].prepared = server[s].prepared | BIT(c); \
              chief[c].prepared = chief[c].prepared | BIT(s) } \
  :: d_step { chief[c].tells && TAKES(s, c) && !HAS(chief[c].told.by[c], s) -> settle(c, c, s) } \
  :: d_step { LEADS(c) && (c) < led && TAKES(s, c) -> assert(false) }
#define TAKES_OVER(c, d, s) \
  :: d_step { chief[c].greeted == ALL && HAS(chief[c].knows, d) && TAKES(s, c) && \
              !HAS(chief[c].told.by[d], s) -> settle(c, d, s) }
#define OF_CHIEF(c) \
  WITH_SERVER(c, 0) \
  WITH_SERVER(c, 1) \
  :: d_step { chief[c].prepared == ALL && MAY_WRITE(c) && !HAS(written, c) && !chief[c].tells -> \
              written = written | BIT(c) } \
  :: d_step { chief[c].lives && HAS(written, c) && !HAS(durable, c) -> durable = durable | BIT(c) } \
  :: d_step { chief[c].lives && !chief[c].tells && chief[c].knows == 0 && MAY_TELL(c) -> \
              chief[c].tells = 1 } \
  :: d_step { chief[c].lives && !chief[c].is_over && LEADS(c) && \
              (chief[c].knows != 0 || (chief[c].tells && chief[c].told.by[c] == ALL)) -> \
              chief[c].is_over = 1 }

active proctype World() {
  chief[1].lives = 1;
  do
  OF_CHIEF(1)
  OF_CHIEF(2)
  OF_CHIEF(3)
  TAKES_OVER(2, 1, 0)
  TAKES_OVER(2, 1, 1)
  TAKES_OVER(3, 1, 0)
  TAKES_OVER(3, 1, 1)
  TAKES_OVER(3, 2, 0)
  TAKES_OVER(3, 2, 1)
  // It dies, and its machine with it, or is followed.
  :: d_step { newest < CHIEFS && chief[newest].lives -> chief[newest].lives = 0 }
  :: d_step { newest < CHIEFS && chief[newest].lives ->
              chief[newest].lives = 0; written = written & durable }
  :: d_step { newest < CHIEFS ->
              newest++;
              chief[newest].lives = 1;
              chief[newest].knows = written;
              durable = written }
  :: timeout -> break
  od;
  // Nothing is left to do: the last chief's program has heard that the function has counted.
  assert(newest == CHIEFS && chief[CHIEFS].is_over);
  assert(server[0].applied == 1);
  assert(server[1].applied == 1)
}
