#!/usr/bin/python3
"""C++ and CUDA sources are as clang-format 14 writes them by .clang-format, and no line of any source is longer than
120 columns. Exits 77 (skipped) without clang-format 14, once the lines are counted."""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = 120
FORMATTED = (".h", ".cpp", ".cu", ".cuh")
OTHERS = (".py", ".sh", ".cmake", "CMakeLists.txt", "CMakePresets.json", "run")


def sources(suffixes):
    folders = [ROOT / folder for folder in (".ci", "cmake", "common", "executor", "scripts", "search", "tests")]
    files = [path for folder in folders for path in folder.rglob("*")] + list(ROOT.glob("CMake*"))
    return sorted(path for path in files if path.is_file() and path.name.endswith(suffixes))


def clang_format():
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(r"version 14\.", version):
                return name
    return None


def main():
    failed = False
    for path in sources(FORMATTED + OTHERS):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > COLUMNS:
                print(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns, expected at most {COLUMNS}")
                failed = True
    if failed:
        sys.exit(1)
    program = clang_format()
    if not program:
        print("skipped: no clang-format 14 (scripts/install_dependencies.sh installs it)")
        sys.exit(77)
    sys.exit(subprocess.run([program, "--dry-run", "-Werror", *sources(FORMATTED)], check=False).returncode)


if __name__ == "__main__":
    main()
