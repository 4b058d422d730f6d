#!/usr/bin/env python3
"""Metamorphic relations of ffsearch and ffexec: pairs of commands whose results must agree. Prints a count by relation.

    scripts/metamorphic.py [--build DIR] [--quick] [--seed N] [--relation NAME ...]

Without --quick, all committed networks on five topologies and ffexec under mpirun: an hour of one core; --cases takes
some of them. --quick is a part of it that takes less than a minute; ctest runs it. Relations on random networks:
tests/unit/search/metamorphic_test.cpp and tests/unit/executor/plan/memory_prediction_test.cpp.

Exit code 1 where a relation does not hold. One is measured, not demanded: that the order of operators in a graph file
does not matter (docs/simulator.md, "Ties").
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import topology_forms

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICK = [("lenet", "local-cpu-2", 64), ("rnnlm-2step", "local-cpu-4", 16), ("alexnet", "p100-4x4", 16)]
NETWORKS = ["lenet", "alexnet", "vgg16", "resnet50", "inception_v3", "rnnlm-2step", "rnntc", "nmt", "bert-base",
            "gpt2-small", "dlrm", "moe-tiny", "llama-tiny"]
TOPOLOGIES = ["local-cpu-4", "p100-4x4", "k80-2x4", "dgx-a100-2", "dgx-h100-1"]
BASELINES = ["data-parallel", "single-device", "model-parallel", "expert", "pipeline", "megatron", "gshard", "optcnn",
             "sub-cluster"]
STRATEGIES = ROOT / "tests/integration/strategies"
ORDERS = ["fifo", "critical-path", "latest-start", "auto"]
MEASURED = {"order of operators"}


class NotApplicable(Exception):
    pass


class Relations:
    def __init__(self, build, work, only, seed):
        self.build, self.work, self.only = build, work, only
        self.random = random.Random(seed)
        self.held, self.failed = collections.Counter(), collections.defaultdict(list)
        self.largest = collections.defaultdict(float)

    def wanted(self, relation):
        return not self.only or relation in self.only

    def check(self, relation, first, second, what, tolerance=0.0):
        """Two values that must agree, within a share of the first."""
        numbers = isinstance(first, (int, float)) and isinstance(second, (int, float))
        if numbers:
            difference = abs(first - second) / max(abs(first), 1e-9)
            self.largest[relation] = max(self.largest[relation], difference)
        if first == second or (numbers and difference <= tolerance):
            self.held[relation] += 1
        else:
            self.fail(relation, f"{what}: {first} and {second}")

    def at_most(self, relation, less, more, what):
        if less <= more:
            self.held[relation] += 1
        else:
            self.fail(relation, f"{what}: {less} is above {more}")

    def fail(self, relation, failure):
        """Also at once, since all cases take hours."""
        self.failed[relation].append(failure)
        if relation not in MEASURED:
            print(f"fails: {relation}: {failure}", file=sys.stderr, flush=True)

    def ffsearch(self, *arguments):
        done = subprocess.run([self.build / "ffsearch", *map(str, arguments), "--cost", "analytic", "--json"],
                              capture_output=True, text=True)
        if done.returncode == 1 and done.stderr.startswith(tuple(f"ffsearch: {name}: " for name in BASELINES)):
            raise NotApplicable(done.stderr)
        if done.returncode:
            raise RuntimeError(f"ffsearch {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def file(self, name, content):
        path = self.work / name
        path.write_text(json.dumps(content))
        return path

    def search(self, graph, topology, batch, *flags, out="s.json"):
        return self.ffsearch("--graph", graph, "--topo", topology, "--batch-per-device", batch, "--out",
                             self.work / out, *flags)

    def simulate(self, strategy, *flags):
        return self.ffsearch("simulate", "--strategy", strategy, *flags)

    # Each takes a network, a topology and a batch.

    def search_is_simulate(self, network, topology, batch, algorithms):
        """Every algorithm, order of tasks, synchronization; what is found and its file."""
        for algorithm in algorithms:
            for synchronization in ("all-reduce", "parameter-server"):
                for order in ORDERS:
                    more = ["--proposals", 200, "--seed", 1] if algorithm in ("mcmc", "placement") else []
                    flags = ["--algorithm", algorithm, "--synchronization", synchronization, "--schedule", order]
                    try:
                        found = self.search(network, topology, batch, *flags, *more)
                    except NotApplicable:
                        continue
                    again = self.simulate(self.work / "s.json")
                    what = f"{network.stem} {topology.stem} {' '.join(flags)}"
                    for key in ("predicted_us", "predicted_fifo_us", "fifo_order", "memory_bytes"):
                        self.check("search = simulate", found[key], again[key], f"{what}: {key}")
                    self.at_most("lower bound <= plan", found["lower_bound_us"], found["predicted_us"], what)

    def with_background(self, network, topology, batch):
        self.search(network, topology, batch, "--algorithm", "single-device", out="job.json")
        background = ["--background", self.work / "job.json"]
        found = self.search(network, topology, batch, "--algorithm", "data-parallel", *background)
        again = self.simulate(self.work / "s.json", *background)
        self.check("search = simulate, with a background job", found["predicted_us"], again["predicted_us"],
                   f"{network.stem} {topology.stem}")

    def forms_of_topologies(self, network, topology, batch):
        self.search(network, topology, batch, "--algorithm", "data-parallel")
        strategy = json.loads((self.work / "s.json").read_text())
        machine = json.loads(topology.read_text())
        what = f"{network.stem} {topology.stem}"

        def simulated(other, graph=None):
            changed = dict(strategy, topology=other, graph=graph or strategy["graph"])
            changed.pop("issue_order", None)
            changed.pop("provenance", None)
            return self.simulate(self.file("other.json", changed))

        before = simulated(machine)
        for relation, other in (("nodes = written out", topology_forms.written_out(machine)),
                                ("names of devices", topology_forms.renamed(machine, self.other_name))):
            after = simulated(other)
            self.check(relation, before["predicted_us"], after["predicted_us"], what)
            self.check(relation, before["memory_bytes"], after["memory_bytes"], what + ": memory")
        larger = topology_forms.with_unused_device(machine)
        after = simulated(larger)
        self.check("an unused device", before["predicted_us"], after["predicted_us"], what)
        after = simulated(topology_forms.scaled(machine, 0.5))
        self.check("half of all rates", 2 * before["predicted_us"], after["predicted_us"], what, tolerance=1e-3)

    def other_name(self, name):
        return f"n{hash(name) % 1000}.{name[::-1]}"

    def renamed_operators(self, network, topology, batch):
        self.search(network, topology, batch, "--algorithm", "data-parallel")
        before = self.simulate(self.work / "s.json")
        graph = json.loads(network.read_text())
        inputs = {one["name"] for one in graph["inputs"]}

        def name(tensor):
            operator, colon, output = tensor.partition(":")
            return tensor if operator in inputs else self.other_name(operator) + colon + output

        for operator in graph["operators"]:
            operator["name"] = name(operator["name"])
            operator["inputs"] = [name(tensor) for tensor in operator["inputs"]]
        after = self.search(self.file("renamed.json", graph), topology, batch, "--algorithm", "data-parallel")
        self.check("names of operators", before["predicted_us"], after["predicted_us"],
                   f"{network.stem} {topology.stem}")

    def what_if(self, network, topology, batch):
        machine = json.loads(topology.read_text())
        self.search(network, topology, batch, "--algorithm", "data-parallel")
        links = machine.get("nodes", {}).get("network")
        if not links:
            return
        question = f"link {links['name']} bandwidth x2"
        answer = self.ffsearch("explain", "--strategy", self.work / "s.json", "--what-if", question)
        links["link"]["bandwidth_gb_per_s"] *= 2
        if "all_reduce_gb_per_s" in links["link"]:
            links["link"]["all_reduce_gb_per_s"] *= 2
        edited = self.simulate(self.work / "s.json", "--topo", self.file("edited.json", machine))
        self.check("what-if = edited topology", answer["what_if"][0]["predicted_us"], edited["predicted_fifo_us"],
                   f"{network.stem} {topology.stem} {question}")

    def order_of_operators(self, network, topology, batch):
        """A graph file with its operators in another order that its edges allow."""
        graph = json.loads(network.read_text())
        waiting, placed, ordered = list(graph["operators"]), {one["name"] for one in graph["inputs"]}, []
        while waiting:
            ready = [one for one in waiting if all(tensor.split(":")[0] in placed for tensor in one["inputs"])]
            chosen = self.random.choice(ready)
            waiting.remove(chosen)
            placed.add(chosen["name"])
            ordered.append(chosen)
        graph["operators"] = ordered
        for algorithm in ("data-parallel", "model-parallel"):
            try:
                before = self.search(network, topology, batch, "--algorithm", algorithm)
                strategy = json.loads((self.work / "s.json").read_text())
                strategy["graph"]["operators"] = ordered
                strategy.pop("issue_order", None)
                strategy.pop("provenance", None)
                after = self.simulate(self.file("permuted_strategy.json", strategy))
            except NotApplicable:
                continue
            self.check("order of operators", before["predicted_fifo_us"], after["predicted_fifo_us"],
                       f"{network.stem} {topology.stem} {algorithm}")

    def numbers_of_devices(self, network, topology, batch):
        machine = topology_forms.written_out(json.loads(topology.read_text()))
        order = list(range(len(machine["devices"])))
        self.random.shuffle(order)
        renumbered = self.file("renumbered.json", topology_forms.renumbered(machine, order))
        for algorithm in BASELINES:
            try:
                before = self.search(network, topology, batch, "--algorithm", algorithm)
                after = self.search(network, renumbered, batch, "--algorithm", algorithm)
            except NotApplicable:
                continue
            self.check("numbers of devices", before["predicted_us"], after["predicted_us"],
                       f"{network.stem} {topology.stem} {algorithm}")

    def memory(self, strategy, ranks):
        """Predicted and allocated, without and with momentum."""
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                           OMPI_MCA_hwloc_base_binding_policy="none", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        for momentum in (0, 0.9):
            predicted = self.simulate(strategy, "--momentum", momentum)["memory_bytes"]
            done = subprocess.run(["mpirun", "-n", str(ranks), self.build / "ffexec", "--strategy", strategy,
                                   "--iterations", "1", "--momentum", str(momentum), "--json"],
                                  capture_output=True, text=True, env=environment, timeout=300)
            if done.returncode:
                raise RuntimeError(f"ffexec {strategy}: {done.stderr}")
            allocated = json.loads(done.stdout[done.stdout.index("{"):])["memory_bytes"]
            for device, (first, second) in enumerate(zip(predicted, allocated, strict=True)):
                self.check("memory predicted = allocated", first, second,
                           f"{strategy.name} momentum {momentum} device {device}")

    def order_of_its_own(self, strategy):
        """As it was found: provenance has what the search predicted."""
        found = json.loads(strategy.read_text())["provenance"]["predicted_us"]
        self.check("search = simulate", found, self.simulate(strategy)["predicted_us"], strategy.name)

    def print(self):
        for relation in sorted(set(self.held) | set(self.failed)):
            failures = self.failed[relation]
            word = "differ" if relation in MEASURED else "FAILED"
            line = f"{relation:45} {self.held[relation]:6} held {len(failures):5} {word}"
            if relation in MEASURED and failures:
                line += f", by {100 * self.largest[relation]:.1f} % at most"
            print(line)
            for failure in failures[:10 if relation not in MEASURED else 0]:
                print("    " + failure)
        return not any(relation not in MEASURED for relation, failures in self.failed.items() if failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build_directory", nargs="?", type=pathlib.Path, help="as ctest gives it")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--relation", action="append", default=[], help="as the output names it")
    parser.add_argument("--cases", action="append", default=[], metavar="TEXT",
                        help="only those whose network/topology contains this; may repeat")
    arguments = parser.parse_args()
    build = (arguments.build_directory or arguments.build).resolve()
    with tempfile.TemporaryDirectory() as work:
        relations = Relations(build, pathlib.Path(work), arguments.relation, arguments.seed)
        cases = QUICK if arguments.quick else [(network, topology, 16) for network in NETWORKS
                                               for topology in TOPOLOGIES]
        for network, topology, batch in cases:
            name = f"{network}/{topology}"
            if arguments.cases and not any(wanted in name for wanted in arguments.cases):
                continue
            if not arguments.quick:
                print(f"{name} ({sum(relations.held.values())} held)", file=sys.stderr, flush=True)
            case = (ROOT / f"graphs/{network}.json", ROOT / f"topologies/{topology}.json", batch)
            if relations.wanted("search = simulate"):
                algorithms = ["model-parallel", "optcnn"] if arguments.quick else [*BASELINES, "placement", "mcmc"]
                relations.search_is_simulate(*case, algorithms)
            for relation, check in (("search = simulate, with a background job", relations.with_background),
                                    ("forms of topologies", relations.forms_of_topologies),
                                    ("names of operators", relations.renamed_operators),
                                    ("what-if = edited topology", relations.what_if),
                                    ("order of operators", relations.order_of_operators),
                                    ("numbers of devices", relations.numbers_of_devices)):
                if relations.wanted(relation) and not (arguments.quick and relation == "numbers of devices"):
                    check(*case)
        if relations.wanted("memory predicted = allocated") and (build / "ffexec").exists():
            relations.memory(STRATEGIES / "tied-table.json", 4)
            if not arguments.quick:
                relations.memory(STRATEGIES / "latest-start.json", 4)
        if relations.wanted("search = simulate"):
            relations.order_of_its_own(STRATEGIES / "latest-start.json")
        sys.exit(0 if relations.print() else 1)


if __name__ == "__main__":
    main()
