"""What the reproductions share: running ffsearch on cells (network, topology), Markdown tables, and the check against
baselines."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = REPOSITORY / "docs/results"
NETWORKS = {"alexnet": "AlexNet", "inception_v3": "Inception-v3", "resnet101": "ResNet-101", "rnntc": "RNNTC",
            "rnnlm": "RNNLM", "nmt": "NMT"}
NORMALIZED = ("inception_v3", "resnet101")  # networks with batch normalization
BATCH = {"alexnet": 256}  # paper, section 8: 64, AlexNet 256
SEED = 1
SAMPLES = {"device": "64 samples per GPU, AlexNet 256 (the paper as published at MLSys 2019)",
           "total": "64 samples in total, AlexNet 256, however many GPUs (the paper as on arXiv)"}


SYNCHRONIZATION = {
    "all-reduce": "",
    "parameter-server": " Parameter servers update the parameters, as in FlexFlow's published simulator "
    "([`--synchronization parameter-server`](../simulator.md#parameter-servers))."}


def options(data):
    """The choices that an experiment was run with, as on its command line; `data` has `batch` ("device" or "total")
    and `synchronization`."""
    return f"--batch {data['batch']}" + synchronization_option(data)


def synchronization_option(data):
    return "" if data["synchronization"] == "all-reduce" else f" --synchronization {data['synchronization']}"


def conditions(data):
    """What every table says about its costs."""
    return ("Costs are analytic for P100 and K80 (raw peak rates of the datasheets, [simulator](../simulator.md)): "
            "nothing ran on these GPUs. "
            f"{SAMPLES[data['batch']]}. The memory limit is lifted, because the paper ran every cell."
            f"{SYNCHRONIZATION[data['synchronization']]}")


class Settings:
    """Where to build from and how long to search; `work` is a temporary folder for graphs, topologies and
    strategies."""

    def __init__(self, build, work, budget, quick, workers, batch="device", synchronization="all-reduce"):
        self.build, self.work = pathlib.Path(build).resolve(), pathlib.Path(work)
        self.budget, self.quick, self.workers = budget, quick, workers
        self.batch, self.synchronization = batch, synchronization

    def samples(self, network, devices):
        """The batch size."""
        return BATCH.get(network, 64) * (devices if self.batch == "device" else 1)

    def graph(self, network, statistics="local"):
        """The network's graph, whose batch normalization uses the statistics of each part (as the paper's runtime) or
        of the whole batch."""
        folder = self.work / statistics
        path = folder / f"{network}.json"
        if not path.exists():
            options = ("--statistics", statistics) if network in NORMALIZED else ()
            generate("generate_graphs.py", network, *options, "--out", folder)
            for written in folder.glob(f"{network}-*.json"):  # the generator names variants
                written.rename(path)
        return path

    def topology(self, model, devices):
        """`devices` GPUs in nodes of up to 4, without a memory limit."""
        per_node = min(devices, 4)
        name = f"{model}-{devices // per_node}x{per_node}"
        path = self.work / f"{name}.json"
        if not path.exists():
            generate("generate_topologies.py", name, "--out", self.work)
            topology = json.loads(path.read_text())
            topology["device_models"][model]["memory_bytes"] = 0
            path.write_text(json.dumps(topology))
        return path

    def ffsearch(self, *arguments, interrupt_after=None):
        """The JSON of one run, one seed and analytic costs; after `interrupt_after` seconds the search is told to stop
        and to return what it has."""
        command = [str(word) for word in (self.build / "ffsearch", *arguments, "--cost", "analytic", "--json")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        try:
            out, errors = process.communicate(timeout=interrupt_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate()
        if process.returncode not in (0, 130):
            raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}: {errors.strip()}")
        result = json.loads(out)
        result["memory_bytes"] = max(result["memory_bytes"])  # of the fullest device
        return result

    def search(self, network, model, devices, *arguments, statistics="local", out=None, interrupt_after=None):
        """ffsearch with the paper's batch size, tasks in FIFO order (its assumption A3); `throughput`
        (samples/s) is added."""
        out = out or self.work / f"strategy-{network}-{model}-{devices}-{statistics}-{abs(hash(arguments))}.json"
        result = self.ffsearch("--graph", self.graph(network, statistics), "--topo", self.topology(model, devices),
                               "--batch",
                               self.samples(network, devices), "--seed", SEED, "--out", out,
                               "--synchronization", self.synchronization, "--schedule", "fifo", *arguments,
                               interrupt_after=interrupt_after)
        result.update(network=network, model=model, devices=devices, statistics=statistics,
                      throughput=self.samples(network, devices) * 1e6 / result["predicted_us"])
        return result

    def each(self, function, items):
        """function(item) for all items on `workers` threads (ffsearch runs in processes of its own); results in order,
        a line printed for each."""
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            results = []
            for item, result in zip(items, pool.map(function, items)):
                results.append(result)
                print(f"  {item}", file=sys.stderr, flush=True)
            return results


def generate(script, *arguments):
    subprocess.run(["/usr/bin/python3", str(REPOSITORY / "scripts" / script), *map(str, arguments)], check=True,
                   stdout=subprocess.DEVNULL, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))


def prepare(settings, networks, model_devices):
    """Generates graphs and topologies before threads ask for them."""
    for network in networks:
        settings.graph(network)
        if network in NORMALIZED:
            settings.graph(network, "global")
    for model, devices in model_devices:
        settings.topology(model, devices)


def assert_no_slower(results):
    """No strategy found by mcmc is slower than any baseline of its cell."""
    for result in results:
        for baseline, time_us in result["baselines"].items():
            if result["predicted_us"] > time_us:
                raise AssertionError(f"{result['network']} on {result['devices']} {result['model']}: mcmc "
                                     f"{result['predicted_us']} us is slower than "
                                     f"{baseline}, {time_us} us")


def markdown_table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def times(ratio):
    return f"{ratio:.2f}"
