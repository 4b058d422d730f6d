#!/usr/bin/env python3
"""Does the stand-in for CUDA find faults? Makes one fault after the other in a copy of the CUDA backend and runs its
tests on CPUs; prints which of them were found, and by what.

    scripts/cuda_mutants.py                      all faults, all tests
    scripts/cuda_mutants.py --quick              of each fault's tests, only those of what it is in
    scripts/cuda_mutants.py --only 3 7           those with these numbers
    scripts/cuda_mutants.py --list               their numbers; exit code 1 when a source has no longer its text

The copy is build/cuda-mutants, which stays; --work DIR takes another folder. --work . makes the faults in place: each
is taken back before the next. Exit code: 0 when all were found that are expected to be.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
KERNELS = "common/kernels/cuda/"
NCCL = "executor/transport/nccl.cpp"
NEEDED = ["-w", "NoTests"]  # a name that no test has is a failure


def kernels(operator):
    return f"kernels, {operator}", ["tests/test_gpu", "every CUDA kernel*", "-c", operator, *NEEDED]


def large(operator):
    return f"larger shapes, {operator}", ["tests/test_gpu", "CUDA kernels equal*", "-c", operator, *NEEDED]


def backend(name):
    return f'"{name}..."', ["tests/test_gpu", name + "*", *NEEDED]


CONVOLUTIONS = "convolutions", ["tests/test_gpu", "every CUDA convolution*", "-c", "conv2d", *NEEDED]
CASES = ["--cases", "30", "--seconds", "60"]
GRAPH = "ranks, CUDA graph", ["tests/test_gpu_ranks", "threads", "1", "--cuda-graph", *CASES]
THREADS = "ranks, threads", ["tests/test_gpu_ranks", "threads", "2", *CASES]
PROCESSES = "ranks, NCCL", ["mpirun", "-n", "2", "tests/test_gpu_ranks", "nccl", *CASES]
WAYS = backend("CUDA convolutions equal the double-precision reference in each way")
MANY = backend("many parameters")
IMAGES, SUMS = backend("images go to the GPU"), backend("zeros")
TENSOR_CORES = backend("attention on tensor cores")
BF16, BF16_ATTENTION = backend("CUDA kernels that work on bf16"), backend("attention of bf16 is off")
MOVED, BLOCKS = backend("a dropout kernel moved"), backend("blocks of any rank")
TESTS = [("test_gpu", ["tests/test_gpu", "~[convolution]"]),
         ("test_gpu, convolutions", ["tests/test_gpu", "[convolution]"]), GRAPH, THREADS, PROCESSES]

# Name, file, text, what takes the place of its first occurrence, and the tests of --quick.
MUTANTS = [
    ("no barrier before a block's sum", KERNELS + "device.cuh", "    __syncthreads();\n    float total = 0;",
     "    float total = 0;", [large("softmax")]),
    ("no barrier before a column's sum", KERNELS + "device.cuh",
     "shared[v][own] = value[v];\n  __syncthreads();", "shared[v][own] = value[v];", [kernels("linear")]),
    ("packs of a misaligned tensor", KERNELS + "packs.cuh", "elements_before_pack(result) == 0 &&", "true &&",
     [backend("GPU kernels take tensors")]),
    ("a row's head is left out", KERNELS + "packs.cuh", "number < head ? number :", "number < head ? head - 1 :",
     [backend("GPU kernels take tensors")]),
    ("half of a tensor's rest is left out", KERNELS + "packs.cuh", "blockIdx.x == 0 && rest < elements",
     "blockIdx.x == 0 && rest + 1 < elements", [large("silu")]),
    ("half of a warp is summed", KERNELS + "device.cuh", "for (int offset = 16;", "for (int offset = 8;",
     [kernels("layer_norm")]),
    ("no barrier in a transposition", KERNELS + "loops.cu", "  __syncthreads();\n", "", [IMAGES]),
    ("index off by one in a transposition", KERNELS + "loops.cu", "row < rows && column < columns",
     "row < rows && column <= columns", [IMAGES]),
    ("a stride swapped", KERNELS + "loops.cu", "destination[offset + column * rows + row]",
     "destination[offset + row * columns + column]", [IMAGES]),
    ("momentum forgotten", KERNELS + "updates.cu", "velocity[i] = momentum * velocity[i] + change",
     "velocity[i] = 0 * momentum * velocity[i] + change", [SUMS]),
    ("Adam's second moment of the gradient itself", KERNELS + "updates.cu", "(1 - beta2) * g * g", "(1 - beta2) * g",
     [SUMS]),
    ("no barrier in a sum of squares", KERNELS + "updates.cu",
     "+= of_thread[threadIdx.x + half];\n    __syncthreads();", "+= of_thread[threadIdx.x + half];", [SUMS]),
    ("half of a block's squares", KERNELS + "updates.cu", "int half = block_threads / 2;",
     "int half = block_threads / 4;", [SUMS]),
    ("a chunk is updated as one of the parameter before", KERNELS + "updates.cu",
     "table.first_chunk[middle] <= chunk", "table.first_chunk[middle] < chunk", [MANY]),
    ("a full table is not launched", KERNELS + "updates.cu", "      use(table);\n      table = {};",
     "      table = {};", [MANY]),
    ("wrong transposition flags", KERNELS + "products.cpp",
     "cublasGemmEx_64(context.blas, operation(transpose_b), operation(transpose_a)",
     "cublasGemmEx_64(context.blas, operation(transpose_a), operation(transpose_b)", [kernels("linear")]),
    ("wrong transposition flag of a convolution as a product", KERNELS + "convolution.cpp",
     "multiply_matrices(context_, 'N', 'T', pixels, out, in", "multiply_matrices(context_, 'N', 'N', pixels, out, in",
     [WAYS]),
    ("a workspace too small", KERNELS + "convolution.cpp", "  const size_t bytes = static_cast<size_t>("
     "choice.workspace_bytes);", "  const size_t bytes = static_cast<size_t>(choice.workspace_bytes / 2);",
     [CONVOLUTIONS]),
    ("warps do not wait for shared memory", KERNELS + "gating.cu",
     "taken[expert] += __popc(equal);\n  __syncwarp();\n", "taken[expert] += __popc(equal);\n",
     [large("top_k_gating")]),
    ("no barrier before warps' experts are counted", KERNELS + "gating.cu",
     "  __syncthreads();\n  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {",
     "  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {", [large("top_k_gating")]),
    ("a score of another query", KERNELS + "relative_bias.cu", "(query - (queries - 1)) * heads",
     "(query - queries) * heads", [kernels("relative_bias")]),
    ("an atomic addition that is not", KERNELS + "gating.cu",
     "atomicAdd(counts + token / group_tokens * experts + first.expert, 1)",
     "counts[token / group_tokens * experts + first.expert] += 1", [kernels("load_balancing_loss")]),
    ("no barrier before the places of a token", KERNELS + "embedding.cu",
     "    __syncthreads();\n    float sum = 0;", "    float sum = 0;", [kernels("embedding"), large("embedding")]),
    ("every use of a row counts as its first one", KERNELS + "embedding.cu",
     "atomicAdd(counts + (token - rows.begin), 1) == 0", "atomicAdd(counts + (token - rows.begin), 1) >= 0",
     [kernels("embedding")]),
    ("a division one too small", KERNELS + "divisor.h", "- d) / d + 1)", "- d) / d)", [large("pool2d")]),
    ("a row's sum is not corrected for its largest number", KERNELS + "softmax.cu",
     "Row::sum(sum * expf(largest - row_largest))", "Row::sum(sum)", [kernels("softmax")]),
    ("a row beyond the table", KERNELS + "embedding.cu", "token < rows.end;", "token <= rows.end;",
     [kernels("embedding")]),
    ("a position too far in causal attention", KERNELS + "attention_tensors.cuh",
     "keys_end(query, 1) - first_key", "keys_end(query, 2) - first_key", [kernels("multi_head_attention")]),
    ("no barrier in attention's tiles", KERNELS + "attention_products.cu",
     "    __syncthreads();\n    add_product_of_rows", "    add_product_of_rows", [kernels("multi_head_attention")]),
    ("attention's probabilities not waited for", KERNELS + "attention_products.cu", "    __syncwarp();\n", "",
     [kernels("multi_head_attention")]),
    ("earlier tiles of attention not corrected", KERNELS + "attention_products.cu", "value *= correction;",
     "value *= 1;", [large("multi_head_attention")]),
    ("a group's last query head left out", KERNELS + "attention_products.cu",
     "head < (place.head + 1) * t.group;", "head < (place.head + 1) * t.group - 1;",
     [kernels("multi_head_attention")]),
    ("scores on tensor cores not waited for", KERNELS + "attention_tensor_cores.cu",
     "      __syncwarp();\n      const int visible", "      const int visible", [TENSOR_CORES]),
    ("a key too far on tensor cores", KERNELS + "attention_tensor_cores.cu", "t.causal ? places.row(i) : 0",
     "t.causal ? places.row(i) + 1 : 0", [TENSOR_CORES]),
    ("earlier tiles on tensor cores not corrected", KERNELS + "attention_tensor_cores.cu",
     "      correct(correction);", "      correct(1 + 0 * correction);", [TENSOR_CORES]),
    ("copies of keys in bf16 not waited for", KERNELS + "attention_bf16_products.cu",
     "    wait_for_copies<0>();\n    __syncthreads();", "    __syncthreads();", [BF16_ATTENTION]),
    ("no barrier before a tile in bf16 is read", KERNELS + "attention_bf16_products.cu",
     "    wait_for_copies<0>();\n    __syncthreads();", "    wait_for_copies<0>();", [BF16_ATTENTION]),
    ("a key too far in bf16", KERNELS + "attention_bf16_products.cu", "if (8 * n + e >= visible) hide",
     "if (8 * n + e > visible) hide", [BF16_ATTENTION]),
    ("the other stage of keys is read in bf16", KERNELS + "attention_bf16_products.cu",
     "memory.keys[stage].of + begin", "memory.keys[stage ^ 1].of + begin", [BF16_ATTENTION]),
    ("rows of padded weights in bf16 not zero", KERNELS + "bf16_kernels.cu",
     "    fill_zero(context_, result + out_ * in_, (padded_ - out_) * in_ * static_cast<int64_t>(sizeof(Bf16)));\n", "",
     [BF16]),
    ("the last channels' weights in bf16 have no gradient", KERNELS + "bf16_kernels.cu",
     "    if (first < out_) product(first, out_ - first);\n", "", [BF16]),
    ("an LSTM's second product begins the sum anew", KERNELS + "lstm.cu", "i == 0 ? 0 : 1", "0 * i", [kernels("lstm")]),
    ("gradients of a convolution's weights in bf16 not added", KERNELS + "convolution.cpp",
     "operands.weight_gradient, operands.add);",
     "operands.weight_gradient, operands.add && !is_bf16<Element>);", [BF16]),
    ("a window too far in pooling's gradient", KERNELS + "pool2d.cu",
     "last + 1 < axis.output ? last + 1 : axis.output};", "last + 1};", [kernels("pool2d")]),
    ("a position too far in pooling", KERNELS + "pool2d.cu", "behind < axis.input ? behind : axis.input}",
     "behind}", [kernels("pool2d")]),
    ("LSTM gates exchanged", KERNELS + "lstm.cu", "first + units, first + 2 * units,",
     "first + 2 * units, first + units,", [kernels("lstm")]),
    ("a channel too few in response normalization", KERNELS + "local_response_normalization.cu",
     "channel > half ? channel - half", "channel >= half ? channel - half + 1",
     [kernels("local_response_normalization")]),
    ("unequal strides merged", KERNELS + "block_copy.cu",
     "result.from[last] == loops.from[axis] * loops.sizes[axis] &&",
     "result.from[last] >= loops.from[axis] * loops.sizes[axis] &&", [BLOCKS]),
    ("a moved dropout kernel draws as before", KERNELS + "dropout.cu",
     "    stream_ = random_stream(seed_, operator_name);\n",
     "    stream_ = random_stream(seed_, operator_name.substr(1));\n", [MOVED]),
    ("a kernel that is not moved", KERNELS + "backend.cpp", "    kernel_->set_part(part, operator_name);",
     "    if (part.rank() < 0) kernel_->set_part(part, operator_name);", [MOVED]),
    ("a 64-bit cast missing", KERNELS + "device.cuh", "static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i",
     "blockIdx.x * blockDim.x + threadIdx.x; i", [kernels("add")]),
    ("a graph replays its first iteration's numbers", KERNELS + "context.cpp",
     "return status == cudaStreamCaptureStatusNone ? nullptr : iteration_;", "return nullptr;", [GRAPH]),
    ("a kernel does not wait for what is received", NCCL, "    backend_.wait_for_event(events_[request.slot]);\n", "",
     [PROCESSES]),
    ("a transfer does not wait for its data", NCCL, "      follow(transfer_stream_);\n    check(ncclGroupStart()",
     "      (void)follow_;\n    check(ncclGroupStart()", [PROCESSES]),
    ("a rank starts each group of transfers after the next one", NCCL, "    grouping_ = false;\n    start(group_);",
     "    grouping_ = false;\n    static Vector<Member> held;\n    if (rank() == 1) std::swap(group_, held);\n"
     "    start(group_);", [PROCESSES]),
    ("staged copies do not wait for kernels", "executor/transport/staging.cpp",
     "    backend_.wait_for_event(follow_, out_);\n", "", [THREADS]),
]
# With why: no test can be large enough.
NOT_EXPECTED = {"a 64-bit cast missing": "needs more than 2^32 threads' elements, 16 GB"}


def build(work, tests, preset, jobs):
    targets = {word.removeprefix("tests/") for _, command in tests for word in command if word.startswith("tests/")}
    return subprocess.run(["cmake", "--build", "--preset", preset, "--target", *sorted(targets),
                           f"-j{jobs}"], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def fault(output):
    """The line of a test's output that says what was wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for word in ("CUDA stand-in:", "FAILED", "test_gpu_ranks:", "differ", "cases agree"):
        found = [line for line in lines if word in line]
        if found:
            return found[0][:150]
    return lines[-1][:150] if lines else ""


def find(work, tests, preset, seconds):
    """The first of the tests that fails, and how; None when all pass."""
    sys.path.append(str(REPOSITORY / "scripts"))
    from mpi_environment import mpi_environment
    environment = {**mpi_environment(), "FF_GPU_TEST_SEED": "0", "FF_GPU_TEST_CASES": "60"}
    for name, command in tests:
        folder = work / "build" / preset
        command = [str(folder / word) if word.startswith("tests/") else word for word in command]
        try:
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=seconds, env=environment)
        except subprocess.TimeoutExpired:
            return name, f"not finished in {seconds} s"
        if done.returncode != 0:
            return name, fault(done.stdout)
    return None


def copy_sources(work):
    work.mkdir(parents=True, exist_ok=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "--null", "-T", "-", "-cf", work / "files.tar"], cwd=REPOSITORY, input=files, check=True)
    subprocess.run(["tar", "-xf", "files.tar"], cwd=work, check=True)


def try_fault(work, mutant, tests, arguments):
    """By what the fault is found, and how; None when it is not."""
    _, file, text, other, _ = mutant
    path = work / file
    source = path.read_text(encoding="utf-8")
    try:
        path.write_text(source.replace(text, other, 1), encoding="utf-8")
        built = build(work, tests, arguments.preset, arguments.jobs)
        if built.returncode != 0:
            return "compiler", built.stdout[-150:]
        return find(work, tests, arguments.preset, arguments.seconds)
    finally:
        path.write_text(source, encoding="utf-8")


def list_mutants():
    lost = 0
    for number, (name, file, text, *_) in enumerate(MUTANTS):
        known = text in (REPOSITORY / file).read_text(encoding="utf-8")
        lost += not known
        print(number, name, file + ("" if known else f': has no "{text}"'))
    return 1 if lost else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=REPOSITORY / "build/cuda-mutants")
    parser.add_argument("--preset", default="dev", help="of CMake: dev or ci")
    parser.add_argument("--seconds", type=float, default=600, help="for one test program")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once")
    arguments = parser.parse_args()
    if arguments.list:
        return list_mutants()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a fault that was made is taken back
    chosen = arguments.only or range(len(MUTANTS))
    tests_of = {number: MUTANTS[number][4] if arguments.quick else TESTS for number in chosen}
    tests = list({name: (name, command) for some in tests_of.values() for name, command in some}.values())
    work = arguments.work.resolve()
    if work != REPOSITORY:
        copy_sources(work)
    subprocess.run(["cmake", "--preset", arguments.preset], cwd=work, stdout=subprocess.DEVNULL, check=True)
    first = build(work, tests, arguments.preset, arguments.jobs)
    if first.returncode != 0 or (wrong := find(work, tests, arguments.preset, arguments.seconds)):
        sys.exit(f"without a fault: {first.stdout[-500:] if first.returncode else wrong}")
    missed, expected = 0, 0
    print("| fault | found by | how | seconds |\n|---|---|---|---|", flush=True)
    for number in chosen:
        name, file, text, *_ = MUTANTS[number]
        if text not in (work / file).read_text(encoding="utf-8"):
            sys.exit(f'{file} has no "{text}" (fault {number}): it has changed')
        begin = time.monotonic()
        found = try_fault(work, MUTANTS[number], tests_of[number], arguments)
        is_expected = name not in NOT_EXPECTED
        expected += is_expected
        missed += is_expected and not found
        by, how = found or ("not found", NOT_EXPECTED.get(name, ""))
        print(f"| {name} | {by} | {how} | {time.monotonic() - begin:.0f} |", flush=True)
    print(f"{expected - missed} of {expected} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
