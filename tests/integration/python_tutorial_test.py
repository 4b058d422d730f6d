#!/usr/bin/env python3
"""Runs the Python code of docs/python.md, and compares what it prints with what the page shows. Usage:
    python_tutorial_test.py BUILD_DIR            compares; exit code 77 without PyTorch, torchvision or mpirun
    python_tutorial_test.py BUILD_DIR --update   writes the output that was seen into the page

All blocks ```python run in one process, one after the other. The block ```text after one shows what it prints. Compared
are the words of each line, and its numbers within 10 %: kernel times come from the analytic model, and training on CPUs
differs by rounding alone."""

import contextlib
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "python"))

PAGE = ROOT / "docs/python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)*")


def same(shown, seen):
    """Equal lines, but for numbers that differ by less than 10 %."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", seen):
        return False
    pairs = zip(*([float(each.replace(",", "")) for each in NUMBER.findall(line)] for line in (shown, seen)))
    return all(abs(a - b) <= 0.1 * max(abs(a), abs(b)) for a, b in pairs)


def follow(text):
    """The page with what its code prints, and what differs."""
    names, failures = {"__name__": "tutorial"}, []

    def session(match):
        code, shown = match[1], match[2] or ""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, "docs/python.md", "exec"), names)  # pylint: disable=exec-used
        seen = output.getvalue().rstrip("\n")
        seen = "\n".join(line.rstrip() for line in seen.split("\n")) + "\n" if seen else ""
        lines, expected = seen.splitlines(), shown.splitlines()
        if len(lines) != len(expected) or not all(map(same, expected, lines)):
            failures.append(f"after\n{code}the page shows\n{shown}and this was printed:\n{seen}")
        return f"```python\n{code}```\n" + (f"\n```text\n{seen}```\n" if seen else "")

    return BLOCK.sub(session, text), failures


def main():
    os.environ["FFSEARCH_BIN"] = os.path.abspath(sys.argv[1])
    try:
        import torch  # pylint: disable=import-outside-toplevel
        import torchvision  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    if not shutil.which("mpirun"):
        print("skipped: no mpirun")
        sys.exit(77)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        new, failures = follow(text)
        os.chdir(ROOT)
    if "--update" in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
        failures = []
    print("\n".join(failures) or f"{len(BLOCK.findall(text))} blocks: what the page shows is what is printed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
