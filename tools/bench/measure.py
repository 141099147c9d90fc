#!/usr/bin/env python3
"""Runs commands in turn, several times, and prints wall time and peak memory of each.

    python3 tools/bench/measure.py [--repeat 7] LABEL=COMMAND [LABEL=COMMAND ...]

The commands take turns (A B C A B C ...), so that a slow moment of the machine hits all. One run before the clock
fills the file cache. The median time and the largest resident set count. Ratios are to the first label.
This program imports little on purpose: Linux lets a child inherit the resident set of the process that forked it as
the lower bound of its own peak (about 10 MB here).
"""
import os
import subprocess
import sys
import time


def run(command):
    """Seconds and peak resident set in MB of one run; its output is dropped unless it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(["bash", "-c", "exec " + command], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        text = message.decode(errors="replace").strip()
        sys.exit(f"measure.py: exit code {process.returncode}: {command}\n{text}")
    return seconds, usage.ru_maxrss / 1024


def main():
    arguments = sys.argv[1:]
    repeat = 7
    if arguments[:1] == ["--repeat"]:
        repeat, arguments = int(arguments[1]), arguments[2:]
    commands = [a.split("=", 1) for a in arguments]
    if not commands or any(len(c) != 2 for c in commands) or repeat < 1:
        sys.exit(__doc__)
    results = {label: [] for label, _ in commands}
    for _, command in commands:
        run(command)
    for _ in range(repeat):
        for label, command in commands:
            results[label].append(run(command))
    medians = {k: sorted(s for s, _ in v)[len(v) // 2] for k, v in results.items()}
    base = medians[commands[0][0]]
    width = max(len(label) for label in results)
    for label, runs in results.items():
        fastest = min(s for s, _ in runs)
        print(f"  {label:{width}}  median {medians[label] * 1e3:8.1f} ms  best {fastest * 1e3:8.1f} ms"
              f"  peak {max(m for _, m in runs):7.1f} MB  x{medians[label] / base:.2f}")


if __name__ == "__main__":
    main()
