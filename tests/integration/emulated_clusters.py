"""Emulated clusters (scripts/emulated_cluster.sh) for tests."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cluster(*arguments, options=(), timeout=240):
    """Runs a command on an emulated cluster."""
    return subprocess.run([str(ROOT / "scripts/emulated_cluster.sh"), *options, "--", *map(str, arguments)],
                          capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def skip_where_impossible():
    """Ends the program with 77 and the reason."""
    trial = cluster("true")
    if trial.returncode == 77:
        print(trial.stderr.strip())
        sys.exit(77)
