# SPDX-License-Identifier: Apache-2.0
"""What peers of ps_peers_bench share: the sizes of benchmarks/ps_contender.cc, and their tasks."""

import ctypes
import signal
import socket
import subprocess
import sys

DENSE = 1 << 20
TABLE, WIDTH, IDS = 1_000_000, 32, 4096
RATE = 1 / 1024
ALL_IDS = [i * (TABLE // IDS) + i * 7919 % 200 for i in range(IDS)]


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def start_task(program, *arguments):
    """The same program in a process of its own, which calls end_with_parent()."""
    return subprocess.Popen([sys.executable, program, *arguments], stdin=subprocess.DEVNULL,
                            stdout=sys.stderr)


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
