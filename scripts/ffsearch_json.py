"""Runs ffsearch for the scripts that print tables."""

import json
import os
import subprocess
import sys


def ffsearch(build, graph, topology, batch, *flags):
    """What `ffsearch --json` says with analytic costs; ends the script with its message where it fails."""
    command = [build / "ffsearch", "--graph", graph, "--topo", topology, "--batch", str(batch), "--cost", "analytic",
               "--json", "--out", os.devnull, *flags]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)
