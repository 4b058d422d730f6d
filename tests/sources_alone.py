#!/usr/bin/env python3
"""Each source compiles by itself: it includes what it uses, and needs no name of a source that a unity build puts
before it. Checks one of 7 parts of the sources, which changes with the day; --part N: that one, --all: all.

    tests/sources_alone.py [--part N | --all]        needs clang-14; build/clang is configured, not built
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = 7


def check(entry):
    """What the compiler says of one source; "" where it accepts it."""
    command = shlex.split(entry["command"])
    if pathlib.Path(command[0]).name == "ccache":
        command = command[1:]
    output = command.index("-o")
    del command[output:output + 2]
    done = subprocess.run([*command, "-fsyntax-only"], cwd=entry["directory"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.stdout or f"{entry['file']}: exit code {done.returncode}\n" if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=datetime.date.today().toordinal() % PARTS)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    subprocess.run(["cmake", "--preset", "clang"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["cmake", "--build", "build/clang", "--target", "ff_version_commit"], cwd=ROOT,
                   stdout=subprocess.DEVNULL, check=True)
    entries = json.loads((ROOT / "build/clang/compile_commands.json").read_text(encoding="utf-8"))
    by_file = {entry["file"]: entry for entry in entries}
    files = [file for number, file in enumerate(sorted(by_file))
             if arguments.all or number % PARTS == arguments.part % PARTS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(lambda file: check(by_file[file]), files) if text]
    sys.stdout.writelines(said)
    part = "all" if arguments.all else f"part {arguments.part % PARTS} of {PARTS}"
    print(f"{len(files) - len(said)} of {len(files)} sources compile alone ({part})")
    return 1 if said or not files else 0


if __name__ == "__main__":
    sys.exit(main())
