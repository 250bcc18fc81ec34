# SPDX-License-Identifier: Apache-2.0
"""Opens a coordinator's page in Chromium; writes what stands in it, and a picture of it.

    look_at_page.py http://127.0.0.1:8080/ page.png

Status 77 where no browser is installed; on CI (CI=true) that is a failure, but on Ubuntu, whose Chromium is a
snap. Fails where the picture has not got the colours by which a task that lives and one that is lost are told:
the page's style is not applied, or its policy forbids it.
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = 77
COLOURS = {"alive": (0x2A, 0x9D, 0x4A), "lost": (0xDD, 0x33, 0x33)}


def is_ubuntu():
    with open("/etc/os-release", encoding="utf-8") as file:
        return "\nID=ubuntu\n" in file.read()


def look(browser, *arguments):
    with tempfile.TemporaryDirectory() as profile:
        out = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--window-size=1200,700", f"--user-data-dir={profile}", *arguments],
            capture_output=True, text=True, timeout=60, env=dict(os.environ, HOME=profile))
    assert out.returncode == 0, out.stderr
    return out.stdout


def pixels(path):
    """The set of colours of a PNG of 8 bits a channel, not interlaced, as Chromium writes it."""
    with open(path, "rb") as file:
        data = file.read()
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    assert depth == 8 and kind in (2, 6) and not interlaced, (depth, kind, interlaced)
    packed, at = b"", 8
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at:at + 8])
        if name == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    raw, size = zlib.decompress(packed), 3 if kind == 2 else 4
    colours, above = set(), bytearray(width * size)
    for row in range(height):
        start = row * (width * size + 1)
        line = unfiltered(raw[start], bytearray(raw[start + 1:start + 1 + width * size]), above, size)
        colours.update(zip(line[0::size], line[1::size], line[2::size]))
        above = line
    return colours


def unfiltered(kind, line, above, size):
    """PNG 1.2, 6.2 to 6.6: each byte is a difference to what stands left of it, above it, or both."""
    for i in range(len(line)) if kind else ():
        left = line[i - size] if i >= size else 0
        corner = above[i - size] if i >= size else 0
        if kind == 4:
            guess = left + above[i] - corner
            base = min((left, above[i], corner), key=lambda one: abs(guess - one))
        else:
            base = (0, left, above[i], (left + above[i]) // 2)[kind]
        line[i] = (line[i] + base) & 255
    return line


def main():
    url, picture = sys.argv[1:]
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        print("no browser: expected one of", ", ".join(NAMES), "(tools/setup browser)")
        sys.exit(1 if os.environ.get("CI") == "true" and not is_ubuntu() else MISSING)
    look(browser, f"--screenshot={picture}", url)
    colours = pixels(picture)
    for state, colour in COLOURS.items():
        near = [one for one in colours if max(abs(a - b) for a, b in zip(one, colour)) < 24]
        assert near, f"no colour of a task that is {state}, {colour}, among {len(colours)} in {picture}"
    print(look(browser, "--dump-dom", url))


main()
