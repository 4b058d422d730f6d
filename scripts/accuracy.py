#!/usr/bin/python3
"""Predicted against measured iteration time on CPU ranks; called by accuracy.sh with BUILD_DIR WORK_DIR SCALE."""

import json
import subprocess
import sys

if len(sys.argv) != 4:
    sys.exit(__doc__)
build, work, scale = sys.argv[1], sys.argv[2], float(sys.argv[3])


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def mpirun(ranks, *command):
    return run("mpirun", "-n", str(ranks), f"{build}/ffexec", *command)


def split(strategy, dimension, chosen, parts, ranks):
    """Splits the chosen operators along a dimension and the others by sample."""
    devices = [part % ranks for part in range(parts)]
    return {**strategy, "configurations": [
        {"operators": "*", "degrees": {"sample": parts}, "devices": devices},
        {"operators": chosen, "degrees": {dimension: parts}, "devices": devices}]}


def with_channels(strategy):
    """All but the normalization, which has whole channels, the loss, and the logits, of which a loss reads all."""
    return [operator["name"] for operator in strategy["graph"]["operators"][:-2]
            if operator["type"] != "local_response_normalization"]


def with_height(strategy):
    """The operators in front of the flattening one."""
    types = [operator["type"] for operator in strategy["graph"]["operators"]]
    return [operator["name"] for operator in strategy["graph"]["operators"][:types.index("flatten")]]


print("| network | batch | ranks | strategy | predicted ms | measured ms | difference |")
print("|---|---|---|---|---|---|---|")
differences = {1: [], 2: []}
for ranks in (1, 2):
    topology = f"{work}/topology-{ranks}.json"
    mpirun(ranks, "--calibrate", "--out", topology)
    with open(topology) as file:
        calibrated = json.load(file)
    for model in calibrated["device_models"].values():
        model["cores"] = 1  # one thread a rank, however many ranks there are
    with open(topology, "w") as file:
        json.dump(calibrated, file)
    for network, batch, iterations in (("lenet", 64, 400), ("alexnet", 16, 12)):
        base = f"{work}/base.json"
        profile = f"{work}/profile-{ranks}-{network}.json"
        common = ("--graph", f"graphs/{network}.json", "--topo", topology, "--batch", str(batch), "--quiet")
        run(f"{build}/ffsearch", "profile", "--graph", f"graphs/{network}.json", "--topo", topology, "--batch",
            str(batch), "--out", profile, "--quiet")
        run(f"{build}/ffsearch", *common, "--algorithm", "data-parallel", "--profile", profile, "--out", base)
        with open(base) as file:
            strategy = json.load(file)
        candidates = [("data-parallel" if ranks > 1 else "one device", strategy)]
        if ranks > 1:
            searched = f"{work}/searched.json"
            run(f"{build}/ffsearch", *common, "--proposals", "20000", "--seed", "1", "--profile", profile, "--out",
                searched)
            with open(searched) as file:
                candidates.append(("searched", json.load(file)))
            candidates.append(("channel", split(strategy, "channel", with_channels(strategy), ranks, ranks)))
        else:
            candidates.append(("sample in 2 tasks", split(strategy, "sample", [], 2, 1)))
            candidates.append(("height in 2 tasks", split(strategy, "height", with_height(strategy), 2, 1)))
        for name, candidate in candidates:
            edited, timed = f"{work}/edited.json", f"{work}/timed.json"
            with open(edited, "w") as file:
                json.dump(candidate, file)
            run(f"{build}/ffsearch", "simulate", "--strategy", edited, "--profile", profile, "--out", timed, "--quiet")
            result = json.loads(mpirun(ranks, "--strategy", timed, "--iterations", str(max(3, int(iterations * scale))),
                                       "--momentum", "0.9", "--lr", "0.001", "--json"))
            predicted, measured = result["predicted_us"] / 1e3, result["measured_us"] / 1e3
            difference = predicted / measured - 1
            differences[ranks].append(abs(difference))
            print(f"| {network} | {batch} | {ranks} | {name} | {predicted:.3f} | {measured:.3f} | "
                  f"{100 * difference:+.1f} % |", flush=True)
for ranks, values in differences.items():
    print(f"\n{ranks} rank(s): mean {100 * sum(values) / len(values):.1f} %, worst {100 * max(values):.1f} %")
