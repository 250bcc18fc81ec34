#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has spin look at all states of the models in this folder, and find every planted bug.

    run.py [FILTER]      only those of which the line below contains it

Where spin or gcc is missing it is skipped with the reason (status 77); on CI (CI=true) it fails. Two run at
a time, each in at most half a GiB.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SECONDS = 240  # of one search, on a busy machine


def replication(servers, backups, epochs, updates, *more):
    return ["replication.pml", f"SERVERS={servers}", f"BACKUPS={backups}", f"EPOCHS={epochs}",
            f"UPDATES={updates}", *more]


CLOSURES = ["closures.pml", "SERVERS=2", "ATTEMPTS=3"]
CHIEFS = ["chiefs.pml", "SERVERS=2", "CHIEFS=3"]
PAIR = (2, 0b10)         # a primary and a backup
TRIO = (3, 0b110)        # and two
WITH_SPARE = (3, 0b10)   # and a spare, which would like to be one

HOLD = [
    replication(*WITH_SPARE, 3, 1),
    replication(*TRIO, 2, 1, "CALM"),
    replication(*TRIO, 2, 2),
    replication(*PAIR, 4, 2),
    replication(*PAIR, 3, 2, "CALM"),
    CLOSURES,
    CHIEFS,
]
# Each with a small world that shows it.
BUGS = [
    replication(*PAIR, 3, 2, "BUG_ACKNOWLEDGES_BEFORE_THE_BACKUP"),
    replication(*PAIR, 3, 2, "BUG_PROMOTES_WITHOUT_FENCING"),
    replication(*PAIR, 3, 2, "BUG_SHOWS_WHAT_IS_NOT_ACKNOWLEDGED"),
    replication(*PAIR, 3, 2, "BUG_READS_WITHOUT_A_LEASE"),
    replication(*PAIR, 3, 2, "BUG_READS_BEFORE_IT_HAS_RECOVERED"),
    replication(*PAIR, 3, 2, "BUG_FORGETS_A_SLOW_CLOCK"),
    replication(*PAIR, 2, 1, "CALM", "BUG_DROPS_NOBODY"),
    replication(*WITH_SPARE, 3, 1, "BUG_FORGETS_WHO_IS_PROPOSED"),
    replication(*TRIO, 3, 1, "NARROW", "BUG_COUNTS_LATE_ACKNOWLEDGEMENTS"),
    replication(*WITH_SPARE, 4, 1, "NARROW", "BUG_OWES_ONLY_WHAT_IS_COMMITTED"),
    [*CLOSURES, "BUG_ANSWERS_BEFORE_ALL_ARE_PREPARED"],
    [*CLOSURES, "BUG_KEEPS_FORMER_ATTEMPTS"],
    [*CLOSURES, "BUG_FORGETS_WHAT_IS_SETTLED"],
    [*CLOSURES, "BUG_HEARS_WHO_WAS_GIVEN_UP"],
    [*CLOSURES, "BUG_DECIDES_TWICE"],
    [*CHIEFS, "BUG_SERVERS_TAKE_ALL"],
    [*CHIEFS, "BUG_JOURNAL_TAKES_ALL"],
    [*CHIEFS, "BUG_TELLS_BEFORE_THE_DISK"],
]


def search(world, optimize):
    """What the search said, and how long it took."""
    model, *settings = world
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cohort_models_") as folder:
        def run(*command):
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=SECONDS)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}")
            return done.stdout
        run("spin", "-a", *(f"-D{each}" for each in settings), HERE / model)
        run("gcc", optimize, "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=500", "-o", "pan", "pan.c")
        # -E: steps that are left undone are no error.
        said = run("./pan", "-E", "-m200000")
    return said, time.monotonic() - begun


def look_at(world, is_wrong):
    """A line about it, and whether all is as it should be."""
    name = " ".join(world)
    try:
        said, seconds = search(world, "-O0" if is_wrong and "NARROW" not in world else "-O1")
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return f"{name}: {e}", False
    states = re.search(r"(\d\S*) states, stored", said)
    violation = re.search(r"pan:1: (.*)", said)
    is_whole = "Search not completed" not in said and "max search depth too small" not in said
    text = f"{name}: {float(states.group(1)):,.0f} states, {seconds:.1f} s"
    if violation:
        text += f", {violation.group(1)[:160]}"
    if is_wrong:
        return text + ("" if violation else ": NOT FOUND"), violation is not None
    return text + ("" if is_whole or violation else ": NOT ALL STATES"), is_whole and not violation


def main():
    missing = [each for each in ("spin", "gcc") if shutil.which(each) is None]
    if missing:
        reason = f"{' and '.join(missing)} not found (Debian: spin, gcc; tools/setup)"
        if os.environ.get("CI") == "true":
            sys.exit(f"models: failed: {reason}")
        print(f"models: skipped: {reason}")
        sys.exit(SKIPPED)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    jobs = [(world, is_wrong) for is_wrong, worlds in ((False, HOLD), (True, BUGS)) for world in worlds
            if wanted in " ".join(world)]
    is_good = bool(jobs)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for text, holds in pool.map(lambda job: look_at(*job), jobs):
            print(("ok      " if holds else "FAILED  ") + text, flush=True)
            is_good = is_good and holds
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
