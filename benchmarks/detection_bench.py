#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the workers of a job take to name one that is killed, or stopped.

    benchmarks/detection_bench.py --program build/dev/tests/multi_worker_program [--times 10]

Three workers of one host, with a heartbeat of 200 ms and a lease of 2 s. A killed one: from the begin
of the call in which it was missed. A stopped one: since it was last heard of. Both as the others'
own errors say; and the seconds from the death to the end of the last survivor's process.
"""
import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time

WORKERS = 3


def free_ports(count):
    held = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def start(program, fault):
    addresses = [f"localhost:{port}" for port in free_ports(WORKERS)]
    environment = dict(os.environ, COHORT_HEARTBEAT_MS="200", COHORT_LEASE_MS="2000",
                       COHORT_MIN_LOG_LEVEL="2", OMP_NUM_THREADS="1")
    job = []
    for index in range(WORKERS):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        job.append(subprocess.Popen([program, "loop", fault, "1", "5"], text=True,
                                    env=dict(environment, TF_CONFIG=json.dumps(config)),
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    return job


def once(program, fault, pattern):
    """The survivors' own words, in seconds, and how long a death took until the last had ended."""
    job = start(program, fault)
    ended = None
    try:
        if fault == "die":
            job[1].wait(timeout=60)
            ended = time.monotonic()
        said = []
        for survivor in (job[0], job[2]):
            text = survivor.communicate(timeout=60)[0]
            found = re.search(pattern, text)
            if not found:
                raise RuntimeError(f"no {pattern} in: {text[-2000:]}")
            said.append(float(found.group(1)))
        return max(said), (time.monotonic() - ended if ended else None)
    finally:
        for each in job:
            if each.poll() is None:
                each.send_signal(signal.SIGKILL)
                each.wait()


def row(what, numbers, bound):
    print(f"| {what} | {statistics.median(numbers):.3f} | {max(numbers):.3f} | {bound} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    killed = [once(options.program, "die", r": failed, begun ([0-9.e-]+) s ago")
              for _ in range(options.times)]
    stopped = [once(options.program, "stop", r"has not been heard of for ([0-9.]+) s")
               for _ in range(options.times)]
    print("| | median s | worst s | at most |\n|---|---|---|---|")
    row("killed: since the call began in which it was missed", [each[0] for each in killed], "2")
    row("killed: until the last survivor's process had ended", [each[1] for each in killed], "")
    row("stopped: since it was last heard of", [each[0] for each in stopped], "3 (lease + 1 s)")


if __name__ == "__main__":
    main()
