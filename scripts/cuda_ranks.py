#!/usr/bin/env python3
"""Random strategies on the stand-in for CUDA against one device (docs/gpu.md, "Without a GPU"): 1 to 8 ranks, as
threads, over MPI and over NCCL, with and without CUDA graphs, for as long as it is left to run. The order of streams
is another one in each run of a test program; in every other one kernel times are drawn, too.

    scripts/cuda_ranks.py build/dev --cases 2000 --log ranks.jsonl
    scripts/cuda_ranks.py build/dev --seed 5000         without --log, on standard output

Prints a line of JSON for each run of the test program: transport, ranks, seeds, how many cases agree, wall and CPU
time. A run that fails leaves its output beside the log, or in the working directory. Exit code: 0 when all agree.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from mpi_environment import mpi_environment

# An order in which ranks and transports differ from one to the next.
KINDS = [("threads", 1, False), ("nccl", 5, False), ("mpi", 8, False), ("nccl", 2, True), ("threads", 4, False),
         ("mpi", 3, False), ("nccl", 6, False), ("threads", 7, False), ("threads", 1, True), ("nccl", 3, False),
         ("mpi", 2, False), ("threads", 6, False), ("nccl", 8, False), ("mpi", 5, False), ("threads", 2, False),
         ("nccl", 4, True), ("mpi", 6, False), ("threads", 3, False), ("nccl", 7, False), ("mpi", 4, False),
         ("threads", 8, False), ("nccl", 2, False), ("mpi", 7, False), ("threads", 5, False), ("nccl", 4, False)]


def run(program, number, seed, cases):
    """The row of one run, and what it printed."""
    transport, ranks, graph = KINDS[number % len(KINDS)]
    environment = {**mpi_environment(), "OMP_NUM_THREADS": "1", "FF_CUDA_STAND_IN_SEED": str(seed)}
    if number % 2:
        environment["FF_CUDA_STAND_IN_TIMES"] = "1"
    command = [program, transport, "--cases", cases, "--seed", seed, "--seconds", 1000000]
    command += ["--cuda-graph"] if graph else []
    command = [*command, ranks] if transport == "threads" else ["mpirun", "-n", ranks, *command]
    begin, before = time.monotonic(), os.times()
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    after = os.times()
    agree = re.search(rf"(\d+) of {cases} cases agree", done.stdout)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"transport": transport, "ranks": ranks, "cuda_graph": graph, "seed": seed, "cases": cases,
            "agree": int(agree[1]) if agree else 0, "exit_code": done.returncode,
            "wall_s": round(time.monotonic() - begin, 1), "cpu_s": round(cpu, 1)}, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder of a build with the stand-in")
    parser.add_argument("--cases", type=int, default=100, help="of all runs together")
    parser.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="of the first case")
    parser.add_argument("--each", type=int, default=8, help="cases of one run")
    parser.add_argument("--log", type=pathlib.Path, help="lines are added to it")
    arguments = parser.parse_args()
    failed = 0
    for number, first in enumerate(range(0, arguments.cases, arguments.each)):
        cases = min(arguments.each, arguments.cases - first)
        row, output = run(arguments.build / "tests/test_gpu_ranks", number, arguments.seed + first, cases)
        print(json.dumps(row), flush=True, file=open(arguments.log, "a") if arguments.log else sys.stdout)
        if row["exit_code"] != 0 or row["agree"] != cases:
            failed += 1
            folder = arguments.log.parent if arguments.log else pathlib.Path()
            (folder / f"failed-{row['transport']}-{row['ranks']}-{row['seed']}.txt").write_text(output)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
