// SPDX-License-Identifier: Apache-2.0
//
// How replicated servers fail over and are fenced: a model of cohort/replication (membership.cc,
// replica.cc, client.cc) for spin, which looks at every order of steps that there is. Each step
// below has the name of the function that it is a model of.
//
// Messages may be lost, late, twice and in any order. So none is in a queue: what was ever sent can
// arrive at any time, as often as it likes, or never. All that a primary sends in one epoch are
// parts of that epoch's log, so `sent[e]` is all of its messages: an Append is any part of it. What
// a follower answers is `sent[e].acked`. A configuration is named by its epoch.
//
// Time is no number: a lease, or patience, may be over at any moment, in the order that leases
// promise: the membership service loses its patience with a primary when its lease, and any that an
// answer on its way could still give, is over by the primary's own clock. (That clocks at most so
// unlike keep that order is simulator.h's.) A server that has died is one that does no step any
// more, so dying is a step only where the launcher sees it.
//
//   spin -a -DSERVERS=3 -DBACKUPS=6 -DEPOCHS=2 -DUPDATES=2 replication.pml
//   gcc -O2 -DSAFETY -DNOREDUCE -o pan pan.c && ./pan -E -m200000
//   spin -t -p -g -DSERVERS=3 ... replication.pml      # what led to a violation
//
// BACKUPS: those of the first epoch, as bits; server 0 is its primary, the others are spares.
// EPOCHS: the last one. -DCALM: progress as well. -DNARROW: nobody reads, or is seen to die.
// -DBUG_...: something is wrong, and has to be found; run.py has the list.
//
// Left out: snapshots and what is forgotten of the log, results that are forgotten, bounds of
// memory, how often things are sent again, and that updates wait for one who has nearly caught up.

#ifdef CALM
#define LAST_EPOCH (EPOCHS + 5)  // membership goes on as far as calm needs it
#else
#define LAST_EPOCH EPOCHS
#endif
#define NOBODY SERVERS
#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)
// An entry of a log: of which epoch's primary it is, and which update.
#define ENTRY(epoch, update) ((epoch) * 4 + (update))
#define UPDATE_OF(entry) ((entry) & 3)

mtype = { Spare, Backup, Primary };

typedef Server {
  mtype role = Spare;
  byte epoch;              // epoch_: the highest that it has heard of
  byte configured;         // configuration_, by its epoch
  byte last;               // log_
  byte log[UPDATES + 1];   // from 1
  byte committed;
  byte inherited;
  bit lease;               // now < lease_end_, or an answer is on its way by which it is
  byte matched[SERVERS];   // followers_
  byte candidate = NOBODY;
  bit proposes;            // proposal_
  byte proposal;           // its backups
};
Server server[SERVERS];

// An epoch: its configuration, and the messages of its primary and of those that follow it.
typedef Epoch {
  byte primary;
  byte backups;
  byte last;               // of the log that is sent
  byte log[UPDATES + 1];
  byte committed;
  byte followers;          // to whom
  byte acked[SERVERS];     // what they have acknowledged
};
Epoch sent[LAST_EPOCH + 1];

// The membership service.
byte now = 1;              // the epoch of the current configuration
byte dead;                 // dead_

// The client: pushes the updates 1, 2, ... in this order, each to whoever it likes.
byte begun;

// What has been promised: these updates, in this order, are acknowledged or were read.
byte truth[UPDATES + 1];
byte promised;
byte acting = 1;           // the highest epoch whose primary has acknowledged or answered
bit calm;                  // nothing bad happens any more,
byte stopped;              // but these do nothing any more

#define ACTS(s) (!HAS(dead, s) && !HAS(stopped, s))
#define LEADS(s) (ACTS(s) && server[s].role == Primary)
#define BACKUPS_OF(s) sent[server[s].configured].backups
#define STORM (!calm)
#ifdef NARROW
#define IS_WIDE false
#else
#define IS_WIDE true
#endif

// ---- Scratch of steps, which are atomic; 0 between them.
byte e, i, f, a, p, l, c;

// What spin checks

// All members of the primary's configuration have the entry at i. (required() has whoever is about
// to become one as well.)
inline assert_all_have(s) {
  f = 0;
  do
  :: f < SERVERS ->
     assert(!HAS(BACKUPS_OF(s), f) ||
            (server[f].last >= i && server[f].log[i] == server[s].log[i]));
     f++
  :: else -> break
  od;
  f = 0
}

// Two never act as primary: who was replaced answers no reads, and acknowledges nothing but what has
// been acknowledged.
inline act(s) {
  assert(server[s].epoch >= acting);
  acting = server[s].epoch
}

// Server s tells clients of all entries up to `until`: it acknowledges them, or answers a read.
inline tell(s, until) {
  i = 1;
  do
  :: i <= until ->
     assert_all_have(s);              // nothing is seen before all of its epoch have it
     if
     :: i > promised -> act(s); promised = i; truth[i] = UPDATE_OF(server[s].log[i])
     :: else -> assert(truth[i] == UPDATE_OF(server[s].log[i]))
     fi;
     i++
  :: else -> break
  od;
  i = 0
}

// What was acknowledged is in the log of whoever is promoted.
inline assert_keeps_all(s) {
  assert(server[s].last >= promised);
  i = 1;
  do
  :: i <= promised -> assert(UPDATE_OF(server[s].log[i]) == truth[i]); i++
  :: else -> break
  od;
  i = 0
}

// replica.cc: who this node is

// acknowledged(), over required()
inline commit(s) {
  a = server[s].last;
#ifndef BUG_ACKNOWLEDGES_BEFORE_THE_BACKUP
  f = 0;
  do
  :: f < SERVERS ->
     if
     :: (HAS(BACKUPS_OF(s), f)
#ifndef BUG_FORGETS_WHO_IS_PROPOSED
         || (server[s].proposes && HAS(server[s].proposal, f))
#endif
        ) && server[s].matched[f] < a -> a = server[s].matched[f]
     :: else
     fi;
     f++
  :: else -> break
  od;
  f = 0;
#endif
  if
  :: a > server[s].committed ->
     server[s].committed = a;
     sent[server[s].epoch].committed = a;
     tell(s, a)
  :: else
  fi;
  a = 0
}

// What no one would take any more is no longer there, so that there are fewer states: it would be
// fenced by all to whom it was sent.
#if defined(BUG_PROMOTES_WITHOUT_FENCING) || defined(BUG_COUNTS_LATE_ACKNOWLEDGEMENTS)
#define REFUSED_BY_ALL(x) false
#else
#define REFUSED_BY_ALL(x) (REFUSES(0, x) && REFUSES(1, x) && (SERVERS < 3 || REFUSES(SERVERS - 1, x)))
#define REFUSES(s, x) \
  (HAS(dead, s) || sent[x].primary == s || !HAS(sent[x].followers, s) || server[s].epoch > (x))
#endif
inline forget_refused() {
  e = 1;
  do
  :: e < now ->
     if
     :: REFUSED_BY_ALL(e) && server[sent[e].primary].epoch > e ->
        sent[e].last = 0;
        sent[e].committed = 0;
        sent[e].followers = 0;
        i = 1;
        do
        :: i <= UPDATES -> sent[e].log[i] = 0; i++
        :: else -> break
        od;
        i = 0
     :: else
     fi;
     e++
  :: else -> break
  od;
  e = 0
}

// Its former epoch's acknowledgements, which on(Appended) drops.
inline raise_epoch(s, to_epoch) {
#ifndef BUG_COUNTS_LATE_ACKNOWLEDGEMENTS
  if
  :: sent[server[s].epoch].primary == s ->
     f = 0;
     do
     :: f < SERVERS -> sent[server[s].epoch].acked[f] = 0; f++
     :: else -> break
     od;
     f = 0
  :: else
  fi;
#endif
  server[s].epoch = to_epoch;
  forget_refused()
}

inline follow(s, in_epoch) {
  if
  :: in_epoch > server[s].epoch -> raise_epoch(s, in_epoch)
  :: else
  fi;
  if
  :: server[s].role == Primary -> server[s].role = Spare
  :: else
  fi;
  f = 0;
  do
  :: f < SERVERS -> server[s].matched[f] = 0; f++
  :: else -> break
  od;
  f = 0;
  server[s].proposes = 0;
  server[s].proposal = 0;
  server[s].candidate = NOBODY;
  server[s].inherited = 0;
  server[s].lease = 0
}

inline lead(s) {
  if
  :: server[s].role != Primary ->
     server[s].role = Primary;
     server[s].inherited = server[s].last;
     server[s].candidate = NOBODY
  :: else
  fi;
  server[s].proposes = 0;
  server[s].proposal = 0;
  if
  :: server[s].candidate != NOBODY && HAS(BACKUPS_OF(s), server[s].candidate) ->
     server[s].candidate = NOBODY
  :: else
  fi;
  f = 0;
  do
  :: f < SERVERS -> server[s].matched[f] = 0; f++
  :: else -> break
  od;
  f = 0;
  // ship_to_all()
  sent[server[s].epoch].followers = BACKUPS_OF(s);
  if
  :: server[s].candidate != NOBODY ->
     sent[server[s].epoch].followers = sent[server[s].epoch].followers | BIT(server[s].candidate)
  :: else
  fi;
  sent[server[s].epoch].committed = server[s].committed;
  sent[server[s].epoch].last = server[s].last;
  i = 1;
  do
  :: i <= server[s].last -> sent[server[s].epoch].log[i] = server[s].log[i]; i++
  :: else -> break
  od;
  i = 0;
  commit(s)
}

// adopt(): a Configured, or a HeartbeatAnswer, of any epoch that there has been
#define CAN_ADOPT(s, x) \
  (ACTS(s) && (x) <= now && (x) >= server[s].epoch && (x) > server[s].configured && \
   (STORM || (x) == now))
inline adopt(s, x) {
  server[s].configured = x;
  if
  :: sent[x].primary != s ->
     follow(s, x);
     server[s].role = (HAS(sent[x].backups, s) -> Backup : Spare)
  :: else ->
     if
     :: x > server[s].epoch -> raise_epoch(s, x)
     :: else
     fi;
     lead(s)
  fi
}

// replica.cc: what a backup does

#ifdef BUG_PROMOTES_WITHOUT_FENCING
#define IS_FENCED(s, x) false
#else
#define IS_FENCED(s, x) ((x) < server[s].epoch)
#endif
#ifdef BUG_COUNTS_LATE_ACKNOWLEDGEMENTS
#define COUNTS(s, x) ((x) <= server[s].epoch)
#else
#define COUNTS(s, x) ((x) == server[s].epoch)
#endif
// An Append of epoch x is on its way to s. In calm only the last one, where it changes something.
#define CAN_APPEND(s, x) \
  (ACTS(s) && (x) <= now && HAS(sent[x].followers, s) && sent[x].primary != s && \
   (STORM || ((x) == now && LEADS(sent[x].primary) && server[sent[x].primary].epoch == (x) && \
              !IS_FENCED(s, x) && \
              (sent[x].acked[s] < sent[x].last || server[s].committed < sent[x].committed || \
               server[s].epoch < (x)))))

// on(Append): entries behind p up to l, committed c. What is fenced is refused: hear_of_later().
inline append(s, x) {
  if
  :: IS_FENCED(s, x)
  :: else ->
     if
     :: x > server[s].epoch -> follow(s, x)
     :: else
     fi;
     if
     :: p > 0 && (p > server[s].last || server[s].log[p] != sent[x].log[p])  // refused: step_back()
     :: else ->
        i = p + 1;
        do
        :: i <= l ->
           if
           :: i <= server[s].last && server[s].log[i] == sent[x].log[i]
           :: else ->
              assert(i > server[s].committed);  // "takes back entry ..., which was committed"
              server[s].last = i;               // cut_behind()
              server[s].log[i] = sent[x].log[i];
              a = i + 1;
              do
              :: a <= UPDATES -> server[s].log[a] = 0; a++
              :: else -> break
              od;
              a = 0
           fi;
           i++
        :: else -> break
        od;
        i = 0;
        c = (c < l -> c : l);
        server[s].committed = (c > server[s].committed -> c : server[s].committed);
        if
        :: l > sent[x].acked[s] && COUNTS(sent[x].primary, x) -> sent[x].acked[s] = l
        :: else
        fi
     fi
  fi
}

// replica.cc: what a primary hears

// on(Appended) of a later epoch
#define CAN_HEAR_OF_LATER(s, g) \
  (LEADS(s) && HAS(sent[server[s].epoch].followers, g) && server[g].epoch > server[s].epoch && \
   ACTS(g))

// on(Appended): of follower g, all up to l; anything up to what it has acknowledged in epoch x
#define IS_FOLLOWER(s, g) (HAS(BACKUPS_OF(s), g) || server[s].candidate == (g))
#ifdef BUG_OWES_ONLY_WHAT_IS_COMMITTED
#define OWED(s) server[s].committed
#else
#define OWED(s) (server[s].committed > server[s].inherited -> \
                 server[s].committed : server[s].inherited)
#endif
#define CAN_ADD(s) \
  (server[s].candidate != NOBODY && !server[s].proposes && \
   server[s].matched[server[s].candidate] >= OWED(s))
#define CAN_HEAR(s, g, x) \
  (LEADS(s) && COUNTS(s, x) && sent[x].primary == s && IS_FOLLOWER(s, g) && \
   (sent[x].acked[g] > server[s].matched[g] || CAN_ADD(s)))
inline hear(s, g) {
  server[s].matched[g] = (l > server[s].matched[g] -> l : server[s].matched[g]);
  // add_candidate()
  if
  :: CAN_ADD(s) ->
     server[s].proposes = 1;
     server[s].proposal = BACKUPS_OF(s) | BIT(server[s].candidate)
  :: else
  fi;
  commit(s)
}

// look_after_followers(): g is silent
#ifdef BUG_DROPS_NOBODY
#define DROPS false
#else
#define DROPS true
#endif
#define CAN_DROP(s, g) \
  (DROPS && LEADS(s) && !server[s].proposes && IS_FOLLOWER(s, g) && (STORM || !ACTS(g)))
inline drop(s, g) {
  if
  :: server[s].candidate == g ->
     server[s].candidate = NOBODY;
     commit(s)
  :: else ->
     server[s].proposes = 1;
     server[s].proposal = BACKUPS_OF(s) & ~BIT(g)
  fi
}

// on(Join)
#define CAN_JOIN(s, g) \
  (STORM && LEADS(s) && ACTS(g) && g != s && server[g].role == Spare && \
   server[s].candidate == NOBODY && !HAS(BACKUPS_OF(s), g) && now < EPOCHS)
inline join(s, g) {
  server[s].candidate = g;
  sent[server[s].epoch].followers = sent[server[s].epoch].followers | BIT(g)
}

// on(Update): one that it has not got (result_of(), pending_)
#define IN_LOG(s, u) \
  (UPDATE_OF(server[s].log[1]) == (u) || (UPDATES > 1 && UPDATE_OF(server[s].log[UPDATES]) == (u)))
#define CAN_UPDATE(s, u) (LEADS(s) && begun >= (u) - 1 && !IN_LOG(s, u))
inline update(s, u) {
  begun = (begun > u -> begun : u);
  server[s].last++;
  server[s].log[server[s].last] = ENTRY(server[s].epoch, u);
  sent[server[s].epoch].last = server[s].last;
  sent[server[s].epoch].log[server[s].last] = ENTRY(server[s].epoch, u);
  commit(s)
}

// on(Read): it may have been asked for at this very moment, so all that was told is in it
#ifdef BUG_READS_WITHOUT_A_LEASE
#define HAS_LEASE(s) true
#else
#define HAS_LEASE(s) server[s].lease
#endif
#ifdef BUG_READS_BEFORE_IT_HAS_RECOVERED
#define HAS_RECOVERED(s) true
#else
#define HAS_RECOVERED(s) (server[s].committed >= server[s].inherited)
#endif
#define CAN_READ(s) (STORM && LEADS(s) && HAS_LEASE(s) && HAS_RECOVERED(s))
inline read(s) {
  act(s);
#ifdef BUG_SHOWS_WHAT_IS_NOT_ACKNOWLEDGED
  assert(server[s].last >= promised);
  tell(s, server[s].last)
#else
  assert(server[s].committed >= promised);
  tell(s, server[s].committed)
#endif
}

// membership.cc

#define LIMIT (calm -> LAST_EPOCH : EPOCHS)

inline change(next_primary, next_backups) {
  sent[now + 1].primary = next_primary;
  sent[now + 1].backups = next_backups;
  now++
}

// receive(Heartbeat) and on(HeartbeatAnswer): from the heartbeat on the lease may be there,
#define CAN_TAKE_LEASE(s) (STORM && IS_WIDE && LEADS(s) && !server[s].lease && server[s].epoch == now)
// and is over by its own clock
#define CAN_END_LEASE(s) ((STORM || !ACTS(s)) && server[s].lease)
// before the membership service loses its patience. Of a backup it hears, or not, as it likes.
#ifdef BUG_FORGETS_A_SLOW_CLOCK
#define IS_SILENT(s) true
#else
#define IS_SILENT(s) (!server[s].lease && (STORM || !ACTS(s)))
#endif

// advance(): g is promoted
#define CAN_PROMOTE(g) \
  (now < LIMIT && IS_SILENT(sent[now].primary) && HAS(sent[now].backups, g) && ACTS(g))
inline promote(g) {
  assert_keeps_all(g);
  change(g, (sent[now].backups & ~BIT(g)) |
            (HAS(dead, sent[now].primary) -> 0 : BIT(sent[now].primary)))
}

// has_died()
#define CAN_DIE(s) \
  (STORM && IS_WIDE && !HAS(dead, s) && (dead | BIT(s)) != BIT(SERVERS) - 1 && \
   (!HAS(sent[now].backups, s) || now < LIMIT))
inline die(s) {
  dead = dead | BIT(s);
  server[s].lease = 0;
  if
  :: HAS(sent[now].backups, s) -> change(sent[now].primary, sent[now].backups & ~BIT(s))
  :: else
  fi
}

// receive(Proposal): it may be of one that has stopped meanwhile
#define CAN_TAKE_PROPOSAL(s) \
  (!HAS(dead, s) && server[s].proposes && sent[now].primary == s && server[s].epoch == now && \
   now < LIMIT)

// ---- The steps of a server, from each epoch and of each other server

#define OF_EPOCH(x) \
  :: d_step { CAN_ADOPT(me, x) -> adopt(me, x) } \
  :: atomic { \
       CAN_APPEND(me, x) -> \
       l = sent[x].last; \
       p = 0; \
       c = sent[x].committed; \
       do \
       :: STORM && l > 0 && p == 0 && c == sent[x].committed -> l-- \
       :: STORM && p < l && c == sent[x].committed -> p++ \
       :: STORM && c > 0 -> c-- \
       :: break \
       od; \
       d_step { append(me, x); l = 0; p = 0; c = 0 } \
     }
#define OF_SERVER(g) \
  :: d_step { CAN_HEAR_OF_LATER(me, g) -> follow(me, server[g].epoch) } \
  :: d_step { CAN_DROP(me, g) -> drop(me, g) } \
  :: d_step { CAN_JOIN(me, g) -> join(me, g) }
#define OF_BOTH(g, x) \
  :: atomic { \
       CAN_HEAR(me, g, x) -> \
       l = sent[x].acked[g]; \
       do \
       :: STORM && l > 0 -> l-- \
       :: break \
       od; \
       d_step { hear(me, g); l = 0 } \
     }
#define OF_ALL(x) OF_EPOCH(x) OF_BOTH(0, x) OF_BOTH(1, x) IF_THIRD(OF_BOTH(2, x))
#if SERVERS > 2
#define IF_THIRD(step) step
#else
#define IF_THIRD(step)
#endif

proctype Replica(byte me) {
  do
  OF_ALL(1)
#if EPOCHS > 1
  OF_ALL(2)
#endif
#if EPOCHS > 2
  OF_ALL(3)
#endif
#if EPOCHS > 3
  OF_ALL(4)
#endif
#ifdef CALM
  OF_ALL((calm * now))
#endif
  OF_SERVER(0)
  OF_SERVER(1)
  IF_THIRD(OF_SERVER(2))
  :: d_step { CAN_UPDATE(me, 1) -> update(me, 1) }
#if UPDATES > 1
  :: d_step { CAN_UPDATE(me, 2) -> update(me, 2) }
#endif
  :: d_step { CAN_READ(me) -> read(me) }
  // What others see of it.
  :: d_step { CAN_TAKE_LEASE(me) -> server[me].lease = 1 }
  :: d_step { CAN_END_LEASE(me) -> server[me].lease = 0 }
  :: d_step { CAN_PROMOTE(me) -> promote(me) }
  :: d_step { CAN_DIE(me) -> die(me) }
  :: d_step { CAN_TAKE_PROPOSAL(me) -> change(me, server[me].proposal) }
  od
}

#ifdef CALM
// At any moment all is well from here on, but for those that do nothing any more. When nothing is
// left to do every push is acknowledged, and the primary may answer reads, unless all who had the
// state are gone. Calm steps get on, each by what there is only so much of, so they end.
#define HAS_STATE(g) \
  (ACTS(g) && (sent[now].primary == (g) || HAS(sent[now].backups, g)))
proctype Weather() {
  do
  :: stopped + 1 < BIT(SERVERS) - 1 -> stopped++
  :: atomic { true -> calm = 1; break }
  od;
  timeout;
  assert(now < LAST_EPOCH);
  assert((!HAS_STATE(0) && !HAS_STATE(1)
#if SERVERS > 2
          && !HAS_STATE(2)
#endif
         ) || (promised == UPDATES && LEADS(sent[now].primary) &&
               HAS_RECOVERED(sent[now].primary)))
}
#endif

init {
  atomic {
    sent[1].primary = 0;
    sent[1].backups = BACKUPS;
    sent[1].followers = BACKUPS;
    do
    :: f < SERVERS ->
       server[f].epoch = 1;
       server[f].configured = 1;
       server[f].role = (f == 0 -> Primary : (HAS(BACKUPS, f) -> Backup : Spare));
       f++
    :: else -> break
    od;
    do
    :: f > 0 -> f--; run Replica(f)
    :: else -> break
    od;
#ifdef CALM
    run Weather()
#endif
  }
}
