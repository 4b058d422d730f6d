#!/usr/bin/env python3
"""Rates of A100 and H100 (SXM) from published microbenchmarks, for the analytic cost model.

Usage: scripts/device_models.py [--check]

Reads topologies/microbenchmarks/*.csv (sources and licences in its README.md) and writes
search/discovery/measured_rates.inc, which `ffsearch topology --preset` takes. --check: exit 1 where the file is not
what the microbenchmarks give. No run of a training program is among them, and nothing is fitted to one.

What is taken from where:
  products          time of a launch, shares of the peak rate in bf16 and of the memory bandwidth, so that launch +
                    operations / rate + bytes / bandwidth has the least squares of the relative error over all shapes
                    (gemm-bf16-h100-a100.csv: torch linear, m, n, k >= 256)
  attention         share of the peak rate by length: FlashAttention-2, forward and backward together
                    (attention-flash.csv); causal ones count half of the operations
  memory            share of the memory bandwidth of elementwise kernels (memory-bound-efficiency-simumax.csv, class
                    default). H100 was not measured: between A100 and B200, linear in the logarithm of the bandwidth
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
MEMORY_GB_PER_S = {"a100": 2039.0, "h100": 3350.0}
LAUNCH_US = 3  # least time of a kernel in a stream of kernels: the smallest products of gemm-bf16-h100-a100.csv


def rows(name):
    with open(MICROBENCHMARKS / name, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def solved(matrix, values):
    """Of a system of linear equations, by Gauss and Jordan."""
    rows_of = [row + [value] for row, value in zip(matrix, values)]
    for i in range(len(values)):
        pivot = max(range(i, len(values)), key=lambda r: abs(rows_of[r][i]))
        rows_of[i], rows_of[pivot] = rows_of[pivot], rows_of[i]
        for r in range(len(values)):
            if r != i:
                factor = rows_of[r][i] / rows_of[i][i]
                rows_of[r] = [x - factor * y for x, y in zip(rows_of[r], rows_of[i])]
    return [rows_of[i][-1] / rows_of[i][i] for i in range(len(values))]


def products(model):
    terms = []  # of each shape: launch, operations and bytes at the peak rates, each over the measured time
    for row in rows("gemm-bf16-h100-a100.csv"):
        if not row["gpu"].lower().startswith(model):
            continue
        m, n, k = (float(row[key]) for key in "mnk")
        us = float(row["latency_ms"]) * 1e3
        terms.append([1 / us, 2 * m * n * k / PEAK_BF16[model] / 1e6 / us,
                      2 * (m * k + n * k + m * n) / MEMORY_GB_PER_S[model] / 1e3 / us])
    normal = [[sum(term[i] * term[j] for term in terms) for j in range(3)] for i in range(3)]
    launch_us, operations, moved = solved(normal, [sum(term[i] for term in terms) for i in range(3)])
    return {"launch_us": round(launch_us, 2), "operations": round(1 / operations, 3), "bytes": round(1 / moved, 3)}


def attention(model):
    tables = {}
    for row in rows("attention-flash.csv"):
        if row["gpu"].lower().startswith(model) and row["kernel"] == "FlashAttention-2" and row["pass"] == "fwd+bwd":
            key = (int(row["head_dim"]), row["causal"] == "yes")
            tables.setdefault(key, []).append([int(row["seq"]), round(float(row["tflops"]) / PEAK_BF16[model], 3)])
    return [{"head_channels": channels, "causal": causal, "by_length": sorted(table)}
            for (channels, causal), table in sorted(tables.items())]


def memory(model):
    known = {row["gpu"].split()[0].lower(): (float(row["gbps"]), float(row["efficient_factor"]))
             for row in rows("memory-bound-efficiency-simumax.csv") if row["class"] == "default"}
    if model in known:
        return known[model][1]
    (slow, high), (fast, low) = known["a100"], known["b200"]
    place = math.log(MEMORY_GB_PER_S[model] / slow) / math.log(fast / slow)
    return round(high + (low - high) * place, 3)


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
    """Of one link between a GPU and the switch: a ring's step crosses two."""
    gpus, latencies, rates = 8, [], []
    for op, passes in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        points = [(passes * (gpus - 1) / gpus * float(row["bytes"]), float(row["latency_us"]))
                  for row in rows("nccl-h100-a100-one-node.csv")
                  if row["gpu"].lower().startswith(model) and row["op"] == op and int(row["num_gpus"]) == gpus and
                  int(row["bytes"]) >= 2 ** 20]
        latency_us, us_per_byte = line(points)
        latencies.append(latency_us / (passes * (gpus - 1)) / 2)
        rates.append(1e-3 / us_per_byte)
    return {"all_reduce_gb_per_s": round(statistics.mean(rates), 1),
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
            "efficiency": {"products": products(model), "attention": attention(model), "memory": memory(model)},
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
            lines.append('   "products": ' + json.dumps(value["products"]) + ",")
            lines.append('   "attention": [')
            lines += ["    " + json.dumps(one) + ("," if one is not value["attention"][-1] else "")
                      for one in value["attention"]]
            lines.append("   ],")
            lines.append(f'   "memory": {value["memory"]}}},')
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
