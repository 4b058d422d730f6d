#!/usr/bin/env python3
"""Rates of A100 and H100 (SXM) from published microbenchmarks, for the analytic cost model.

Usage: scripts/device_models.py [--check]

Reads topologies/microbenchmarks/*.csv (sources and licences in its README.md) and writes
search/discovery/measured_rates.inc, which `ffsearch topology --preset` takes. --check: exit 1 where the file is not
what the microbenchmarks give. No run of a training program is among them, and nothing is fitted to one.

What is taken from where:
  products          share of the peak rate in bf16 by depth (k) and outputs (m x n): medians of the measured shapes
                    nearest to each (gemm-bf16-h100-a100.csv: torch linear, m, n, k >= 256). exposed_accumulation: of
                    gradients of weights that are added to f32 values, what they take longer than forward products of
                    the same terms, over the time in which memory at the datasheet's rate moves 8 bytes a gradient
                    (gemm-layouts.csv, A100 PCIe and B200; H100 between them as for memory): the median of those of at
                    least 2^24 gradients and at most 4,096 terms, where that time counts
  sustained         the benchmark of products measures short bursts; under lasting load the clock falls. Best rate over
                    all shapes of a benchmark with warm-up and repetitions (mamf-finder.py of github.com/stas00/
                    ml-engineering, compute/accelerator/README.md: 271.2 and 794.5 TFLOP/s) over the best of the bursts
  fp8               rate of products in fp8 over that in bf16, of all shapes: best rates of the same benchmark (1402.6
                    TFLOP/s on H100). By shape a benchmark of XLA (openxla/xla, matmul_interpolator_data.h) has them,
                    with rates above the datasheet's peak for the larger ones: not used
  attention         share of the peak rate by length, forward and backward together (attention-flash.csv); causal ones
                    count half of the operations. FlashAttention's first generation was measured on A100 alone, with a
                    causal mask: H100 has the same ratio to the second generation. What forward has over both together
                    follows from Dao 2023 (arXiv 2307.08691, sections 1 and 4.1): up to 230 TFLOP/s forward and 63 % of
                    312 backward; of the first generation 30 to 50 % forward and 25 to 35 % backward; written in Triton,
                    the second generation is 1.3 to 1.5 times as fast forward and about twice as fast backward
                    cuDNN's kernels (attention-cudnn.csv, cuDNN 9.19 on H200, for H100; heads of 64 channels by
                    attention-flash.csv); those of 2024 reached 0.8 of these rates forward (the same file)
  variation         of products from GPU to GPU: standard deviation of the times of the GPUs of a cluster, without
                    outliers (more than 1.5 interquartile ranges beyond the quartiles), over the median
                    (products-by-gpu.csv: SGEMM on V100 SXM2 at their power limit; the same is taken for A100 and H100
                    SXM, whose products in bf16 reach theirs)
  collectives       share of the multiprocessors that NCCL's kernels occupy: 24 channels, a block each, as NCCL's log
                    shows them on nodes with NVSwitch (forums.developer.nvidia.com/t/337991 sees 24 beside products)
  memory            rate of elementwise kernels (memory-bound-efficiency-simumax.csv, class default: efficient_factor
                    times gbps, which is not the datasheet's rate for A100 PCIe) over the memory bandwidth of the
                    datasheet. H100 was not measured: between A100 and B200, linear in the logarithm of the bandwidth
  norms             the same of layer and RMS norms, forward and backward together (norms.csv): two arrays are moved
                    forward and five backward, of which two by the kernel of the parameters' gradients
  nvlink            latency of a ring's step and rate of all-gather, reduce-scatter and all-reduce among 8 GPUs
                    (nccl-h100-a100-one-node.csv): least squares of the relative error of latency + bytes / rate, from
                    1 MiB on
  network           the same of all-gather and reduce-scatter among nodes (nccl-h100-multinode-autoparallel.csv): the
                    share of the adapters' rate that large messages reach
"""
import argparse
import csv
import json
import math
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MICROBENCHMARKS = ROOT / "topologies" / "microbenchmarks"
OUTPUT = ROOT / "search" / "discovery" / "measured_rates.inc"
PEAK_BF16 = {"a100": 312.0, "h100": 989.5}  # as in search/discovery/datasheets.cpp
NVLINK_GB_PER_S = {"a100": 300.0, "h100": 450.0}  # in one direction, as in search/discovery/presets.cpp
MEMORY_GB_PER_S = {"a100": 2039.0, "h100": 3350.0}
LASTING_TFLOPS = {"a100": 271.2, "h100": 794.5}  # products in bf16, with warm-up: see above
LASTING_FP8_TFLOPS = {"h100": 1402.6}  # the same in fp8
CARDS_GB_PER_S = {"A100 PCIe 80GB": 1935.0, "A100 SXM 40GB": 1555.0, "B200": 8000.0, "H100 SXM": 3350.0}  # datasheets
CARDS_TFLOPS = {"A100 PCIe 80GB": 312.0, "B200": 2250.0}  # to which gemm-layouts.csv refers
NORM_ARRAYS = 2 + 5
MULTIPROCESSORS = {"a100": 108, "h100": 132}
CHANNELS = 24
FORWARD_OVER_BACKWARD = {1: (0.3 + 0.5) / (0.25 + 0.35), 2: 230 / (0.63 * 312)}  # by FlashAttention's generation
SECOND_OVER_TRITON = {"forward": 1.4, "backward": 2.0}
LAUNCH_US = 3  # least time of a kernel in a stream of kernels: the smallest products of gemm-bf16-h100-a100.csv


def rows(name):
    with open(MICROBENCHMARKS / name, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def median_by(keyed):
    cells = {}
    for key, value in keyed:
        cells.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in cells.items()}


def products(model):
    """Cells without a shape have the share of the nearest one with as many outputs or fewer of the same depth."""
    cells = median_by(((round(math.log2(int(row["k"]))), 2 * round(math.log2(int(row["m"]) * int(row["n"])) / 2)),
                       float(row["efficiency"]))
                      for row in rows("gemm-bf16-h100-a100.csv") if row["gpu"].lower().startswith(model))
    depths, outputs = (sorted({key[i] for key in cells}) for i in (0, 1))
    table = []
    for depth in depths:
        known = [cells.get((depth, size)) for size in outputs]
        for i, share in enumerate(known):
            if share is None:
                known[i] = known[i - 1] if i > 0 else next(one for one in known if one is not None)
        table.append([round(share, 3) for share in known])
    return {"depths": [2 ** depth for depth in depths], "outputs": [2 ** size for size in outputs], "shares": table,
            "exposed_accumulation": between(model, {"a100": exposed_accumulation("A100 PCIe 80GB"),
                                                    "b200": exposed_accumulation("B200")}), **in_fp8(model)}


def exposed_accumulation(card):
    forward, exposed = {}, []
    measured = []
    for row in rows("gemm-layouts.csv"):
        if row["gpu"] == card:
            m, k, n = (int(row[key]) for key in ("m", "k", "n"))
            us = 2 * m * k * n / (float(row["efficiency"]) * CARDS_TFLOPS[card] * 1e6)
            measured.append((row["layout"], m, k, n, us))
    for layout, m, k, n, us in measured:
        if layout == "TN":
            forward[tuple(sorted((m, k, n)))] = us
    for layout, m, k, n, us in measured:
        same = forward.get(tuple(sorted((m, k, n))))
        if layout == "NT" and same and k <= 4096 and m * n >= 2 ** 24:
            exposed.append((us - same) / (8 * m * n / (CARDS_GB_PER_S[card] * 1e3)))
    return statistics.median(exposed)


def between(model, known):
    """Of A100, or where H100 was not measured: between A100 and B200, linear in the logarithm of the bandwidth."""
    if model in known:
        return round(known[model], 3)
    slow, fast = CARDS_GB_PER_S["A100 PCIe 80GB"], CARDS_GB_PER_S["B200"]
    place = math.log(MEMORY_GB_PER_S[model] / slow) / math.log(fast / slow)
    return round(known["a100"] + (known["b200"] - known["a100"]) * place, 3)


def in_fp8(model):
    if model not in LASTING_FP8_TFLOPS:
        return {}
    return {"fp8": round(LASTING_FP8_TFLOPS[model] / LASTING_TFLOPS[model], 3)}


def sustained(model):
    bursts = max(float(row["tflops"]) for row in rows("gemm-bf16-h100-a100.csv")
                 if row["gpu"].lower().startswith(model))
    return round(LASTING_TFLOPS[model] / bursts, 3)


def variation():
    times = [float(row["ms"]) for row in rows("products-by-gpu.csv")]
    first, median, third = statistics.quantiles(times, n=4)
    within = [time for time in times
              if first - 1.5 * (third - first) <= time <= third + 1.5 * (third - first)]
    return round(statistics.pstdev(within) / median, 4)


def flash(model, generation, causal_only=False):
    tables = {}
    for row in rows("attention-flash.csv"):
        causal = row["causal"] == "yes"
        if (row["gpu"].lower().startswith(model) and row["kernel"] == f"FlashAttention-{generation}" and
                row["pass"] == "fwd+bwd" and (causal or not causal_only)):
            tables.setdefault((int(row["head_dim"]), causal), {})[int(row["seq"])] = float(row["tflops"])
    return tables


def passes(forward_over_backward):
    """Rates of the two passes, over that of both together: two products forward, five backward."""
    backward = (2 / forward_over_backward + 5) / 7
    return forward_over_backward * backward, backward


def rate_of_both(forward, backward):
    """Of the two passes together: two products forward, five backward."""
    return 7 / (2 / forward + 5 / backward)


def cudnn_attention(model):
    """cuDNN's kernels, for H100 by those of H200, which has its chip. Heads of 64 channels were measured forward alone,
    by others: the share of the rate of 128 channels that they reach."""
    if model != "h100":
        return []
    forward_rates = {(int(row["head_dim"]), int(row["seq"])): float(row["tflops"])
                     for row in rows("attention-flash.csv") if row["kernel"] == "cuDNN"}
    tables = {(channels, causal): [] for channels in (64, 128) for causal in (False, True)}
    forward_over_both = []
    for row in rows("attention-cudnn.csv"):
        length, forward, backward = (float(row[key]) for key in ("q_seqlen", "fwd_tflops", "bwd_tflops"))
        both = rate_of_both(forward, backward)
        forward_over_both.append(forward / both)
        causal = row["attn_mask"] != "no_mask"
        tables[128, causal].append((int(length), both / PEAK_BF16[model]))
        nearest = min((seq for _, seq in forward_rates), key=lambda seq: abs(math.log(seq / length)))
        narrow = forward_rates[64, nearest] / forward_rates[128, nearest]
        tables[64, causal].append((int(length), narrow * both / PEAK_BF16[model]))
    return [{"generation": 2, "cudnn": True, "head_channels": channels, "causal": causal,
             "forward": round(statistics.mean(forward_over_both), 3),
             "by_length": [[length, round(share, 3)] for length, share in sorted(table)]}
            for (channels, causal), table in sorted(tables.items())]


def attention(model):
    second, first = flash(model, 2), flash("a100", 1)
    reference = flash("a100", 2)
    tables = [(2, key, {length: rate / PEAK_BF16[model] for length, rate in table.items()})
              for key, table in sorted(second.items())]
    tables += [(1, key, {length: rate / reference[key][length] * second[key][length] / PEAK_BF16[model]
                         for length, rate in table.items()})
               for key, table in sorted(first.items())]
    known = [{"generation": generation, "head_channels": channels, "causal": causal,
              "forward": round(passes(FORWARD_OVER_BACKWARD[generation])[0], 3),
              "by_length": [[length, round(share, 3)] for length, share in sorted(table.items())]}
             for generation, (channels, causal), table in tables]
    forward, backward = (rate / SECOND_OVER_TRITON[name]
                         for rate, name in zip(passes(FORWARD_OVER_BACKWARD[2]), ("forward", "backward")))
    both = rate_of_both(forward, backward)
    triton = [{"generation": 1, "triton": True, "head_channels": channels, "causal": causal,
               "forward": round(forward / both, 3),
               "by_length": [[length, round(both * share, 3)] for length, share in sorted(table.items())]}
              for generation, (channels, causal), table in tables if generation == 2]
    return known + triton + cudnn_attention(model)


def memory(model):
    return between(model, {row["gpu"].split()[0].lower():
                           float(row["gbps"]) * float(row["efficient_factor"]) / CARDS_GB_PER_S[row["gpu"]]
                           for row in rows("memory-bound-efficiency-simumax.csv") if row["class"] == "default"})


def norms(model):
    return round(statistics.mean(
        NORM_ARRAYS * int(row["bytes"]) * int(row["rows"]) * int(row["channels"]) / float(row["us"]) / 1e3 /
        CARDS_GB_PER_S[row["gpu"]] for row in rows("norms.csv") if row["gpu"].lower().startswith(model)), 3)


def line(points):
    """(latency, time of a byte), of (bytes, time): least squares of the relative error."""
    weighted = [(1 / time ** 2, size, time) for size, time in points]
    total = sum(w for w, _, _ in weighted)
    x = sum(w * size for w, size, _ in weighted) / total
    y = sum(w * time for w, _, time in weighted) / total
    slope = (sum(w * (size - x) * (time - y) for w, size, time in weighted) /
             sum(w * (size - x) ** 2 for w, size, _ in weighted))
    return y - slope * x, slope


def nvlink(model):
    """Of one link between a GPU and the switch, its rate as a share of NVLink's: a ring's step crosses two."""
    gpus, latencies, rates = 8, [], []
    for op, passes in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        points = [(passes * (gpus - 1) / gpus * float(row["bytes"]), float(row["latency_us"]))
                  for row in rows("nccl-h100-a100-one-node.csv")
                  if row["gpu"].lower().startswith(model) and row["op"] == op and int(row["num_gpus"]) == gpus and
                  int(row["bytes"]) >= 2 ** 20]
        latency_us, us_per_byte = line(points)
        latencies.append(latency_us / (passes * (gpus - 1)) / 2)
        rates.append(1e-3 / us_per_byte)
    return {"all_reduce_share": round(statistics.mean(rates) / NVLINK_GB_PER_S[model], 4),
            "all_reduce_latency_us": round(statistics.mean(latencies), 2)}


def network():
    """Of one GPU's adapter of 50 GB/s, as a share of its rate; the latency of one of the two links of a step."""
    adapter_gb_per_s, large = 50.0, 0.87  # of 32 MB a GPU and more: first line of the file
    shares, latencies = [], []
    for row in rows("nccl-h100-multinode-autoparallel.csv"):
        nodes, gpus = int(row["nodes"]), int(row["gpus_per_node"])
        if row["op"] != "all_gather/reduce_scatter" or row["algo"] != "ring" or row["proto"] != "SIMPLE" or gpus != 1:
            continue
        bus_gb_per_s = float(row["algbw_GBps"]) * (nodes - 1) / nodes
        shares.append(large * bus_gb_per_s / adapter_gb_per_s)
        latencies.append(float(row["latency_us"]) / (nodes - 1) / 2)
    return {"all_reduce_share": round(statistics.mean(shares), 3),
            "all_reduce_latency_us": round(statistics.median(latencies), 2)}


def rates(model):
    return {"launch_us": LAUNCH_US,
            "efficiency": {"products": products(model), "attention": attention(model), "memory": memory(model),
                           "norms": norms(model),
                           "sustained": sustained(model), "variation": variation(),
                           "collectives": round(CHANNELS / MULTIPROCESSORS[model], 3)},
            "nvlink": nvlink(model),
            "network": network()}


def text():
    lines = ["// Written by scripts/device_models.py from topologies/microbenchmarks: do not edit."]
    for model in PEAK_BF16:
        lines.append(f'{{"{model}", R"json(')
        for key, value in rates(model).items():
            if key != "efficiency":
                lines.append((' {"' if len(lines) and lines[-1].endswith("json(") else '  "') + f'{key}": '
                             + json.dumps(value) + ",")
                continue
            lines.append('  "efficiency": {')
            lines.append('   "products": {')
            for name in ("depths", "outputs"):
                lines.append(f'    "{name}": ' + json.dumps(value["products"][name]) + ",")
            lines.append('    "shares": [')
            lines += ["     " + json.dumps(row) + ("," if row is not value["products"]["shares"][-1] else "],")
                      for row in value["products"]["shares"]]
            lines.append("    " + ", ".join(f'"{name}": {value["products"][name]}'
                                            for name in ("exposed_accumulation", "fp8")
                                            if name in value["products"]) + "},")
            lines.append('   "attention": [')
            lines += ["    " + json.dumps(one) + ("," if one is not value["attention"][-1] else "")
                      for one in value["attention"]]
            lines.append("   ],")
            lines.append(", ".join(f'   "{name}": {value[name]}'.replace("   ", "   " if name == "memory" else "")
                                   for name in ("memory", "norms", "sustained", "variation", "collectives")) + "},")
        lines[-1] = lines[-1].rstrip(",") + "}"
        lines.append(')json"},')
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the file with the microbenchmarks")
    if not parser.parse_args().check:
        OUTPUT.write_text(text(), encoding="utf-8")
    elif OUTPUT.read_text(encoding="utf-8") != text():
        sys.exit(f"{OUTPUT.relative_to(ROOT)} is not what scripts/device_models.py writes")


if __name__ == "__main__":
    main()
