#!/usr/bin/env python3
"""Does the stand-in for CUDA find faults? Makes one fault after the other in a copy of the CUDA backend and runs its
tests on processors; prints which of them were found, and by what.

    scripts/cuda_mutants.py                      all of them
    scripts/cuda_mutants.py --only 3 7           those with these numbers (--list names them)

The copy is build/cuda-mutants, which stays; --work DIR takes another folder. Exit code: 0 when all were found that are
expected to be.
"""

import argparse
import pathlib
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
KERNELS = "common/kernels/cuda/"
NCCL = "executor/transport/nccl.cpp"

# Name, file, text, and what takes its place (the first occurrence behind `after`).
MUTANTS = [
    ("no barrier before a block's sum", KERNELS + "device.cuh", "    __syncthreads();\n    float total = 0;",
     "    float total = 0;"),
    ("no barrier before a column's sum", KERNELS + "device.cuh",
     "    shared[threadIdx.y][threadIdx.x] = total[k];\n    __syncthreads();",
     "    shared[threadIdx.y][threadIdx.x] = total[k];"),
    ("half of a warp is summed", KERNELS + "device.cuh", "for (int offset = 16;", "for (int offset = 8;"),
    ("no barrier in a transposition", KERNELS + "loops.cu", "  __syncthreads();\n", ""),
    ("index off by one in a transposition", KERNELS + "loops.cu", "row < rows && column < columns",
     "row < rows && column <= columns"),
    ("a stride swapped", KERNELS + "loops.cu", "destination[offset + column * rows + row]",
     "destination[offset + row * columns + column]"),
    ("momentum forgotten", KERNELS + "loops.cu", "velocity[i] = momentum * velocity[i] + step", "velocity[i] = step"),
    ("wrong transposition flags", KERNELS + "products.cpp",
     "cublasGemmEx_64(context.blas, operation(transpose_b), operation(transpose_a)",
     "cublasGemmEx_64(context.blas, operation(transpose_a), operation(transpose_b)"),
    ("wrong transposition flag of a convolution as a product", KERNELS + "convolution.cpp",
     "multiply_matrices(context_, 'N', 'T', pixels, out, in", "multiply_matrices(context_, 'N', 'N', pixels, out, in"),
    ("a workspace too small", KERNELS + "convolution.cpp", "  const size_t bytes = static_cast<size_t>("
     "choice.workspace_bytes);", "  const size_t bytes = static_cast<size_t>(choice.workspace_bytes / 2);"),
    ("warps do not wait for shared memory", KERNELS + "gating.cu",
     "      __syncwarp();\n      if (token >= group_tokens) continue;", "      if (token >= group_tokens) continue;"),
    ("an atomic addition that is not", KERNELS + "gating.cu",
     "atomicAdd(counts + token / group_tokens * experts + choice.first.expert, 1)",
     "counts[token / group_tokens * experts + choice.first.expert] += 1"),
    ("no barrier between tokens", KERNELS + "embedding.cu",
     "    __syncthreads();\n  }\n", "  }\n"),
    ("a row beyond the table", KERNELS + "embedding.cu", "token < rows.end;", "token <= rows.end;"),
    ("a position too far in causal softmax", KERNELS + "softmax.cu", "? row % causal + 1 : classes",
     "? row % causal + 2 : classes"),
    ("a 64-bit cast missing", KERNELS + "device.cuh", "static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i",
     "blockIdx.x * blockDim.x + threadIdx.x; i"),
    ("a graph replays its first iteration's numbers", KERNELS + "context.cpp",
     "return status == cudaStreamCaptureStatusNone ? nullptr : iteration_;", "return nullptr;"),
    ("a kernel does not wait for what is received", NCCL, "    backend_.wait_for_event(events_[request.slot]);\n", ""),
    ("a transfer does not wait for its data", NCCL, "      follow(transfer_stream_);\n    check(ncclGroupStart()",
     "      (void)follow_;\n    check(ncclGroupStart()"),
    ("messages in another order on one rank", NCCL, "    grouping_ = false;\n    start(group_);",
     "    grouping_ = false;\n    if (rank() == 1) std::reverse(group_.begin(), group_.end());\n    start(group_);"),
    ("staged copies do not wait for kernels", "executor/transport/staging.cpp",
     "    backend_.wait_for_event(follow_, out_);\n", ""),
]
# With why: no test can be large enough.
NOT_EXPECTED = {"a 64-bit cast missing": "needs more than 2^32 threads' elements, 16 GB"}

TESTS = [
    ("test_gpu", ["tests/test_gpu", "~[convolution]"]),
    ("test_gpu, convolutions", ["tests/test_gpu", "[convolution]"]),
    ("ranks, CUDA graph", ["tests/test_gpu_ranks", "threads", "1", "--cuda-graph", "--cases", "30", "--seconds", "60"]),
    ("ranks, threads", ["tests/test_gpu_ranks", "threads", "2", "--cases", "30", "--seconds", "60"]),
    ("ranks, NCCL", ["mpirun", "-n", "2", "tests/test_gpu_ranks", "nccl", "--cases", "30", "--seconds", "60"]),
]


def build(work):
    return subprocess.run(["cmake", "--build", "--preset", "cuda-stand-in", "--target", "test_gpu", "test_gpu_ranks",
                           "-j2"], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def fault(output):
    """The line of a test's output that says what was wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for word in ("CUDA stand-in:", "FAILED", "test_gpu_ranks:", "differ", "cases agree"):
        found = [line for line in lines if word in line]
        if found:
            return found[0][:150]
    return lines[-1][:150] if lines else ""


def find(work, seconds):
    """The first test that fails, and how; None when all pass."""
    sys.path.append(str(REPOSITORY / "scripts"))
    from mpi_environment import mpi_environment
    environment = {**mpi_environment(), "OMP_NUM_THREADS": "1"}
    for name, command in TESTS:
        folder = work / "build/cuda-stand-in"
        command = [str(folder / word) if word.startswith("tests/") else word for word in command]
        try:
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=seconds, env=environment)
        except subprocess.TimeoutExpired:
            return name, f"not finished in {seconds} s"
        if done.returncode != 0:
            return name, fault(done.stdout)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=REPOSITORY / "build/cuda-mutants")
    parser.add_argument("--seconds", type=float, default=600, help="for one test program")
    arguments = parser.parse_args()
    if arguments.list:
        for number, (name, file, *_) in enumerate(MUTANTS):
            print(number, name, file)
        return 0
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "--null", "-T", "-", "-cf", work / "files.tar"], cwd=REPOSITORY, input=files, check=True)
    subprocess.run(["tar", "-xf", "files.tar"], cwd=work, check=True)
    subprocess.run(["cmake", "--preset", "cuda-stand-in"], cwd=work, stdout=subprocess.DEVNULL, check=True)
    first = build(work)
    if first.returncode != 0 or (wrong := find(work, arguments.seconds)):
        sys.exit(f"without a fault: {first.stdout[-500:] if first.returncode else wrong}")
    missed, expected = 0, 0
    print("| fault | found by | how |\n|---|---|---|", flush=True)
    for number, (name, file, text, other) in enumerate(MUTANTS):
        if arguments.only and number not in arguments.only:
            continue
        path = work / file
        source = path.read_text(encoding="utf-8")
        if source.count(text) < 1:
            sys.exit(f'{file} has no "{text}" (fault {number}): it has changed')
        path.write_text(source.replace(text, other, 1), encoding="utf-8")
        begin = time.monotonic()
        built = build(work)
        found = ("compiler", built.stdout[-150:]) if built.returncode != 0 else find(work, arguments.seconds)
        path.write_text(source, encoding="utf-8")
        is_expected = name not in NOT_EXPECTED
        expected += is_expected
        missed += is_expected and not found
        by, how = found or ("not found", NOT_EXPECTED.get(name, ""))
        print(f"| {name} | {by} | {how} | {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{expected - missed} of {expected} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
