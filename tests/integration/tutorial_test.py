#!/usr/bin/python3
"""Runs the commands of README.md, docs/tutorial.md and other pages, and compares what they print with what these pages
show. Usage:
    tutorial_test.py BUILD_DIR            compares; exit code 77 without mpirun
    tutorial_test.py BUILD_DIR --update   writes the output that was seen into the pages
    tutorial_test.py BUILD_DIR --print    prints the sessions and their output
    --page PAGE                           of this page alone
    --folder DIR                          runs in this empty folder, which is kept

A page shows a session in a block ```console: "$ COMMAND", then its output; "..." stands for lines left out. All blocks
of a page run in one folder, which has the checkout's graphs, topologies, profiles and scripts.

Compared are exit codes, the first words of each line, and predicted iteration times (within 10 %). Other numbers, such
as measured times, are another machine's. After "--cost measure" so are predicted times, and the plan that is found:
then lines of the plan are not compared either."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

from mpi_environment import mpi_environment  # noqa: E402

PAGES = ("README.md", "docs/tutorial.md", "docs/how-to/edit-plans.md", "docs/explanations.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_OUT = "..."


def commands(block):
    """(command, shown lines) of a block. A command goes on after a backslash at the end of a line, and up to END
    where it has <<'END'."""
    found = []
    lines = iter(block.rstrip("\n").split("\n"))
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            while "<<'END'" in command and not command.endswith("\nEND"):
                command += "\n" + next(lines)
            found.append((command, []))
        else:
            found[-1][1].append(line)
    return found


def run(command, folder, build):
    environment = dict(mpi_environment(), PATH=f"{build}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    lines = done.stdout.rstrip("\n").split("\n")
    return done.returncode, [] if lines == [""] else lines


def label(line):
    """What a line begins with, numbers aside."""
    return re.sub(r"[-+]?[0-9][0-9.,]*", "#", re.split(r"\s{2,}|[:(]", line.strip())[0])


def prediction_ms(lines):
    for line in lines:
        found = re.search(r"predicted iteration\s+([0-9.]+) (us|ms|s)\b", line)
        if found:
            return float(found[1]) * {"us": 1e-3, "ms": 1, "s": 1e3}[found[2]]
    return None


def differences(command, shown, seen):
    """What the page shows and the program does not print."""
    measured = "--cost measure" in command
    labels = [label(line) for line in seen]
    place = 0
    for line in shown:
        # Whether the machine was busy is not the page's matter.
        if line == LEFT_OUT or not line.strip() or "note: the machine was busy" in line:
            continue
        if measured and (line.startswith("  ") or label(line) == "task order"):
            continue
        if label(line) not in labels[place:]:
            yield f"shown, but not printed: {line}"
        else:
            place += labels[place:].index(label(line)) + 1
    expected, found = prediction_ms(shown), prediction_ms(seen)
    if expected and found and not measured and abs(found / expected - 1) > 0.1:
        yield f"predicted iteration: {found} ms, the page shows {expected} ms"


def updated(shown, seen):
    """The lines that were seen, with the page's omissions."""
    if LEFT_OUT not in shown:
        return seen
    head = shown.index(LEFT_OUT)
    tail = len(shown) - head - 1
    return [*seen[:head], LEFT_OUT, *(seen[-tail:] if tail else [])]


def follow(page, build, update=False, show=False, folder=None):
    """Runs a page's sessions; returns what differs."""
    path, failures = ROOT / page, []
    text = path.read_text(encoding="utf-8")
    with contextlib.nullcontext(folder) if folder else tempfile.TemporaryDirectory() as work:
        for name in ("graphs", "topologies", "profiles", "scripts"):
            os.symlink(ROOT / name, pathlib.Path(work) / name)

        def session(match):
            lines = []
            for command, shown in commands(match[1]):
                code, seen = run(command, work, build)
                if code != 0:
                    failures.append(f"{page}: $ {command}: exit code {code}\n" + "\n".join(seen))
                if show:
                    print("\n".join((f"$ {command}", *seen)), flush=True)
                elif not update:
                    failures.extend(f"{page}: $ {command}: {text}" for text in differences(command, shown, seen))
                lines += [f"$ {command}", *updated(shown, seen)]
            return "```console\n" + "\n".join(line.rstrip() for line in lines) + "\n```"

        new = BLOCK.sub(session, text)
    if update and not failures:
        path.write_text(new, encoding="utf-8")
    if not BLOCK.search(text):
        failures.append(f"{page}: no block ```console")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--print", action="store_true", dest="show")
    parser.add_argument("--page", choices=PAGES)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    if not shutil.which("mpirun"):
        print("skipped: no mpirun")
        sys.exit(77)
    pages = [options.page] if options.page else PAGES
    failures = [failure for page in pages
                for failure in follow(page, options.build.resolve(), options.update, options.show, options.folder)]
    if failures or not options.show:
        print("\n".join(failures) or f"{len(pages)} pages: what they show is what is printed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
