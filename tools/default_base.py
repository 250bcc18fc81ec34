#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the commit that the work in hand started from: the merge base with main. On main itself: the
last commit where something is uncommitted, else the one before it; the empty tree where there is
none."""

import subprocess


def git(*arguments):
    """What git prints; None if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def default_base():
    head = git("rev-parse", "HEAD")
    for name in ("origin/main", "main"):
        found = git("merge-base", "HEAD", name)
        if found is not None and found != head:
            return found
    if git("status", "--porcelain"):
        return head
    before = git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}")
    return before or git("hash-object", "-t", "tree", "/dev/null")


if __name__ == "__main__":
    print(default_base())
