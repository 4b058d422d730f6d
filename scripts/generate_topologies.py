#!/usr/bin/python3
"""Writes device topologies (fftopology/1): the clusters of the FlexFlow paper, DGX systems, TPU pods, and CPU ranks
of one machine.

    scripts/generate_topologies.py                           the committed set into topologies/
    scripts/generate_topologies.py p100-8x4 dgx-h100-32      other sizes of the same families
    scripts/generate_topologies.py --list                    the families and what their names mean

Bandwidths are physical rates of one direction, in 1e9 bytes per second. Latencies are estimates (see LATENCY); `ffexec
--calibrate` measures both on the machine at hand.
"""

import argparse
import itertools
import pathlib
import re

from generate_graphs import REPOSITORY, write_json

COMMITTED = (
    [f"local-cpu-{n}" for n in (1, 2, 4)]
    + [f"p100-{n}x4" for n in (1, 2, 4, 16)]
    + [f"k80-{n}x4" for n in (1, 2, 4, 8, 16)]
    + [f"dgx-{gpu}-{n}" for gpu in ("a100", "h100") for n in (1, 2, 8, 128)]
    + ["h100-1"] + [f"h200-{n}" for n in (1, 8, 64)]
    + [f"tpu-v3-{n}" for n in (128, 512, 2048)]
)

LAUNCH = ("launch_us: estimate, not a datasheet figure; a null kernel's launch is commonly measured at 2 to 10 us, "
          "most of it in the "
          "driver, with little difference between generations.")
PRECISION = ("peak_tflops is the FP32 rate of the CUDA cores, which is what the executor uses by default; "
             "peak_tf32_tflops and peak_bf16_tflops are those of the tensor cores in TF32 and bf16, dense (the "
             "datasheet's figures without sparsity), for --precision tf32 and bf16.")
LATENCY = "latency estimated"
MEMORY = ("memory_bytes: the datasheet's GB taken as 1e9, a little less than the driver reports, which leaves room for "
          "its context.")

# The datasheets are NVIDIA's, by title.
GPU_MODELS = {
    "p100": {
        "peak_tflops": 10.6, "memory_gb_per_s": 732, "memory_bytes": 16 * 10**9, "launch_us": 5,
        "source": "NVIDIA Tesla P100 datasheet, SXM2 (NVLink) module of 16 GB: 10.6 TFLOPS single precision, 732 GB/s "
        "(the PCIe "
                  "card has 9.3 TFLOPS). " + MEMORY + " " + LAUNCH},
    "k80": {
        "peak_tflops": 4.37, "memory_gb_per_s": 240, "memory_bytes": 12 * 10**9, "launch_us": 5,
        "source": "NVIDIA Tesla K80 datasheet and board specification BD-07317-001: the board has 8.74 TFLOPS single "
        "precision at "
                  "the boost clock (875 MHz; 5.6 at the base clock of 562 MHz), 480 GB/s and 24 GB; a device here is "
                  "one of its "
                  "two GK210 dies, half of that. " + MEMORY + " " + LAUNCH},
    "a100": {
        "peak_tflops": 19.5, "peak_tf32_tflops": 156, "peak_bf16_tflops": 312, "memory_gb_per_s": 2039,
        "memory_bytes": 80 * 10**9, "launch_us": 5,
        "source": "NVIDIA A100 datasheet, SXM4 of 80 GB: FP32 19.5 TFLOPS, 2,039 GB/s. " + PRECISION + " "
        + MEMORY
                  + " " + LAUNCH},
    "h100": {
        "peak_tflops": 67, "peak_tf32_tflops": 494.5, "peak_bf16_tflops": 989.5, "memory_gb_per_s": 3350,
        "memory_bytes": 80 * 10**9, "launch_us": 5,
        "source": "NVIDIA H100 datasheet, SXM5 of 80 GB: FP32 67 TFLOPS, 3.35 TB/s. " + PRECISION + " "
        + MEMORY
                  + " " + LAUNCH},
    "h200": {
        "peak_tflops": 67, "peak_tf32_tflops": 494.5, "peak_bf16_tflops": 989.5, "memory_gb_per_s": 4800,
        "memory_bytes": 141 * 10**9, "launch_us": 5,
        "source": "NVIDIA H200 datasheet, SXM5 of 141 GB: FP32 67 TFLOPS, 4.8 TB/s. " + PRECISION + " "
        + MEMORY
                  + " " + LAUNCH},
}

JOUPPI = ("Jouppi, Yoon, Kurian, Li, Patil, Laudon, Young, Patterson, A domain-specific supercomputer for training "
          "deep neural networks, Communications of the ACM 63(7), 2020")
TPU_V3_CORE = {
    "peak_tflops": 61.5, "peak_bf16_tflops": 61.5, "memory_gb_per_s": 450, "memory_bytes": 16 * 2**30, "launch_us": 1,
    "source": "Half a TPU v3 chip, which has two cores, 123 TFLOPS in bfloat16, 900 GB/s and 32 GiB of HBM (Google "
              "Cloud, TPU v3; " + JOUPPI + "). peak_tflops is the rate in bfloat16, in which these machines multiply "
              "matrices, not in f32: analytic costs count f32 bytes, but operations at this rate. With f32 products in "
              "several passes of bfloat16, as XLA computes them at its highest precision (6 passes), it would be about "
              "10. launch_us: estimate; a whole iteration is one program, without the host between operations."}

CPU_MODEL = {
    "peak_tflops": 0.145, "memory_gb_per_s": 10, "memory_bytes": 0, "launch_us": 1, "cores": 1,
    "source": "Estimates: peak_tflops is what a oneDNN 3x3 convolution reached on one core of a server processor of "
    "2023 with AVX-512 "
              "(Sapphire Rapids); memory_gb_per_s, one core's share; launch_us, a call of a prepared oneDNN primitive; "
              "memory_bytes 0: "
              "not limited."}

PAPER = ("Jia, Zaharia, Aiken, Beyond Data and Model Parallelism for Deep Neural Networks, MLSys 2019 (arXiv "
         "1807.05358), section 8")


def link(ends, bandwidth, latency, source, **more):
    """A link between two ends; without ends, the link of a network."""
    between = {"between": list(ends)} if ends else {}
    return {**between, "bandwidth_gb_per_s": bandwidth, "latency_us": latency, **more, "source": f"{source}; {LATENCY}"}


def gpus(model, count):
    return [{"name": f"gpu{i}", "kind": "gpu", "model": model} for i in range(count)]


def topology(name, description, models, **rest):
    return {"$schema": "../docs/schema/fftopology.json", "format": "fftopology/1", "name": name,
            "description": description, "device_models": models, **{key: value for key, value in rest.items() if value}}


def cluster(name, description, model, count, devices, switches, links, attach, network_link):
    """`count` equal nodes; what `attach` names of each is joined to one network, when there is more than one node."""
    nodes = {"count": count, "name": "node", "devices": devices}
    if switches:
        nodes["switches"] = switches
    if links:
        nodes["links"] = links
    if count > 1:
        nodes["network"] = {"name": "network", "attach": attach, "link": network_link}
        description += " The network is one switch without contention inside: full bisection bandwidth."
    return topology(name, description, {model: GPU_MODELS[model]}, nodes=nodes)


def local_cpu(name, ranks):
    """local-cpu-N: N single-core CPU ranks of one machine."""
    description = (f"{ranks} rank{'s' if ranks > 1 else ''} of one machine, one core each, that exchange data by "
                   f"copies through shared "
                   f"memory: a copy keeps both ends busy. These numbers are guesses; `mpirun -n {ranks} ffexec "
                   f"--calibrate --out "
                   "topo.json` replaces them with measurements of your machine.")
    devices = [{"name": f"cpu{i}", "kind": "cpu", "model": "cpu", "node": "local"} for i in range(ranks)]
    links = [link((a["name"], b["name"]), 8, 0.8, "guess: Open MPI over shared memory", duplex="half",
                  blocks_devices=True) for a, b in itertools.combinations(devices, 2)]
    return topology(name, description, {"cpu": CPU_MODEL}, devices=devices, links=links)


def p100(name, nodes, per_node):
    """p100-PxQ: P nodes of Q P100 GPUs with NVLink; EDR InfiniBand. p100-4x4 is the paper's first cluster."""
    if per_node > 4:
        raise ValueError("at most 4 GPUs a node: a P100 has 4 NVLinks, one for each other GPU")
    devices = gpus("p100", per_node)
    names = [device["name"] for device in devices]
    links = [link(pair, 20, 5, "NVLink 1 (NVIDIA WP-08019)") for pair in itertools.combinations(names, 2)]
    links += [link((gpu, "host"), 15.75, 2.5, "PCIe 3.0 x16") for gpu in names]
    network = link(None, 12.5, 1, "EDR InfiniBand 100 Gb/s (the paper)")
    return cluster(name, f"{nodes} node{'s' if nodes > 1 else ''} of {per_node} Tesla P100 (SXM2), every pair joined "
                   f"by one NVLink "
                   f"(a P100 has four; one that would double some pairs is left out); 100 Gb/s EDR InfiniBand between "
                   f"nodes, one adapter a "
                   f"node. After the first cluster of {PAPER} (4 nodes of 4 GPUs).",
                   "p100", nodes, devices, ["host"], links, ["host"], network)


def k80(name, nodes, per_node):
    """k80-PxQ: P nodes of Q K80 dies, in pairs on a PCIe switch; FDR InfiniBand. k80-16x4 is the paper's second
    cluster."""
    devices = gpus("k80", per_node)
    pairs = [f"pair{i}" for i in range((per_node + 1) // 2)]
    pcie = "PCIe 3.0 x16"
    links = [link((device["name"], pairs[i // 2]), 15.75, 2.5, pcie) for i, device in enumerate(devices)]
    links += [link((pair, "host"), 15.75, 0.5, pcie + ", shared by its GPUs") for pair in pairs]
    network = link(None, 7, 1, "FDR InfiniBand 56 Gb/s (the paper)")
    return cluster(name, f"{nodes} node{'s' if nodes > 1 else ''} of {per_node} Tesla K80 GPUs (GK210 dies); "
                   f"neighbours in pairs on a "
                   f"PCIe switch of their own, the pairs joined by a shared one; 56 Gb/s InfiniBand between nodes, one "
                   f"adapter per node (the "
                   f"signalling rate: 6.8 of the 7 GB/s are data). After the second cluster of {PAPER} (16 nodes of 4 "
                   f"GPUs).",
                   "k80", nodes, devices, pairs + ["host"], links, ["host"], network)


def nvswitch_cluster(name, system, model, nodes, per_node, nvlink, nvlink_source, nic, nic_source):
    devices = gpus(model, per_node)
    names = [device["name"] for device in devices]
    alone = per_node == 1
    links = [] if alone else [link((gpu, "nvswitch"), nvlink, 2.5, nvlink_source) for gpu in names]
    size = "a single GPU" if alone and nodes == 1 else f"{per_node} GPUs joined by NVSwitch"
    description = f"{nodes} {system} with {size}."
    if not alone:
        description += " A datasheet's NVLink rate is that of both directions together: half of it a direction."
    if nodes > 1:
        description += (" Every GPU reaches the network through its own adapter (rail), at the adapter's rate, which "
                        "its PCIe link "
                        "exceeds.")
    return cluster(name, description, model, nodes, devices, [] if alone else ["nvswitch"], links, names,
                   link(None, nic, 2.5, nic_source))


def dgx_a100(name, nodes):
    """dgx-a100-N: N DGX A100 (640 GB) of 8 GPUs; HDR InfiniBand, one adapter per GPU."""
    return nvswitch_cluster(name, "DGX A100 (640 GB)", "a100", nodes, 8,
                            300, "NVLink 3 (NVIDIA A100 datasheet)",
                            25, "HDR InfiniBand 200 Gb/s per GPU (NVIDIA DGX A100 datasheet)")


def dgx_h100(name, nodes):
    """dgx-h100-N: N DGX H100 of 8 GPUs; NDR InfiniBand, one adapter per GPU."""
    return nvswitch_cluster(name, "DGX H100", "h100", nodes, 8, 450, "NVLink 4 (NVIDIA H100 datasheet)",
                            50, "NDR InfiniBand 400 Gb/s per GPU (NVIDIA DGX H100 datasheet)")


def h100(name, count):
    """h100-N: N H100 GPUs of one node, as in a DGX H100; dgx-h100-N has more nodes."""
    if count > 8:
        raise ValueError("more than 8 GPUs are nodes: dgx-h100-N")
    return nvswitch_cluster(name, "DGX H100" if count == 8 else "node", "h100", 1, count,
                            450, "NVLink 4 (NVIDIA H100 datasheet)",
                            50, "NDR InfiniBand 400 Gb/s a GPU (NVIDIA DGX H100 datasheet)")


def h200(name, count):
    """h200-N: N H200 GPUs, in nodes of 8 (DGX H200) when there are more; NDR InfiniBand, one adapter per GPU."""
    if count > 8 and count % 8 != 0:
        raise ValueError("more than 8 GPUs come in nodes of 8: expected a multiple of 8")
    nodes, per_node = (1, count) if count <= 8 else (count // 8, 8)
    return nvswitch_cluster(name, "DGX H200" if per_node == 8 else "node", "h200", nodes, per_node,
                            450, "NVLink 4 (NVIDIA H200 datasheet)",
                            50, "NDR InfiniBand 400 Gb/s per GPU (NVIDIA DGX H200 datasheet)")


def tpu_v3(name, cores):
    """tpu-v3-N: N cores of TPU v3, two a chip, the chips in a 2-D torus; N a power of two."""
    if cores < 8 or cores & (cores - 1):
        raise ValueError("expected a power of two, at least 8")
    chips = cores // 2
    rows = 2 ** ((chips.bit_length() - 1) // 2)
    core_source = ("guess: as much as the chip's four links, so that a core can use all of them; the chip's cores "
                   "exchange data through its router too")
    nodes = {
        "count": chips, "name": "chip",
        "devices": [{"name": f"core{i}", "kind": "gpu", "model": "tpu-v3-core"} for i in range(2)],
        "switches": ["router"],
        "links": [link((f"core{i}", "router"), 328, 0.5, core_source) for i in range(2)],
        "torus": {"shape": [rows, chips // rows], "attach": "router",
                  "link": link(None, 82, 0.5, f"656 Gb/s a link and direction ({JOUPPI})")}}
    return topology(name, f"{cores} cores of TPU v3 (kind gpu: an accelerator): {chips} chips in a torus of {rows} by "
                    f"{chips // rows}, each with a router that has four links. The machine of GShard (Lepikhin et al. "
                    f"2020, arXiv 2006.16668) has up to 2048 such cores. A torus of 32 by 32 is a whole pod; smaller "
                    f"slices of a pod may lack the links from the last row and column to the first.",
                    {"tpu-v3-core": TPU_V3_CORE}, nodes=nodes,
                    sources="The bisection of a pod, 64 links, is 5.2 TB/s a direction with links of 656 Gb/s; Google "
                            "Cloud's page on TPU v3 gives 6.4 TB/s.")


FAMILIES = [
    (r"local-cpu-(\d+)", local_cpu),
    (r"p100-(\d+)x(\d+)", p100),
    (r"k80-(\d+)x(\d+)", k80),
    (r"dgx-a100-(\d+)", dgx_a100),
    (r"dgx-h100-(\d+)", dgx_h100),
    (r"h100-(\d+)", h100),
    (r"h200-(\d+)", h200),
    (r"tpu-v3-(\d+)", tpu_v3),
]


def build(name):
    """The topology of that name as a dict. Raises ValueError for a name of no family."""
    for pattern, family in FAMILIES:
        match = re.fullmatch(pattern, name)
        if match:
            sizes = [int(size) for size in match.groups()]
            if min(sizes) < 1:
                raise ValueError(f"{name}: expected at least 1")
            try:
                return family(name, *sizes)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    raise ValueError(f'no family of topologies has a name such as "{name}"; see --list')


def main():
    parser = argparse.ArgumentParser(description="Writes device topologies (fftopology/1).")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: the committed set, " + " ".join(COMMITTED))
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "topologies", metavar="DIR",
                        help="default: topologies/")
    parser.add_argument("--list", action="store_true", help="list the families and what their names mean")
    arguments = parser.parse_args()
    if arguments.list:
        for _, family in FAMILIES:
            print(family.__doc__)
        return
    try:
        built = [build(name) for name in arguments.names or COMMITTED]
    except ValueError as error:
        parser.error(str(error))
    for topology_file in built:
        path = arguments.out / (topology_file["name"] + ".json")
        write_json(path, topology_file)
        print(path)


if __name__ == "__main__":
    main()
