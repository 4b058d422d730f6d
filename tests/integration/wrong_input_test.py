#!/usr/bin/python3
"""Wrong input, both programs: one clear message, the right exit code, no hang, nothing overwritten. Usage:
wrong_input_test.py BUILD_DIR"""

import copy
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
GRAPH = ROOT / "graphs/lenet.json"
TOPOLOGY = ROOT / "topologies/local-cpu-2.json"
LIMIT_S = 60


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class WrongInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.folder.name)
        self.graph = json.loads(GRAPH.read_text())
        self.topology = json.loads(TOPOLOGY.read_text())

    def tearDown(self):
        self.folder.cleanup()

    def search(self, graph=GRAPH, topology=TOPOLOGY, *flags):
        return run(BUILD / "ffsearch", "--graph", graph, "--topo", topology, "--cost", "analytic", "--proposals", 50,
                   "--out", self.work / "s.json", *flags, cwd=self.work)

    def execute(self, ranks, strategy, *flags, iterations=3):
        # When a rank ends with an error mpirun gives the others a second, twice, to end by themselves.
        return run("mpirun", "--mca", "odls_base_sigkill_timeout", 0, "-n", ranks, BUILD / "ffexec", "--strategy",
                   strategy, "--iterations", iterations, *flags, cwd=self.work)

    def write(self, name, content):
        path = self.work / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def refused(self, result, *parts, code=1, program="ffsearch: "):
        returned, stdout, stderr = result
        self.assertEqual(returned, code, stderr)
        self.assertEqual(stdout, "")
        lines = [line for line in stderr.splitlines() if line.startswith(program)]
        self.assertEqual(len(lines), 1, stderr)
        for part in parts:
            self.assertIn(part, lines[0])

    def test_graphs(self):
        def changed(change):
            graph = copy.deepcopy(self.graph)
            change(graph)
            return self.search(self.write("g.json", graph))

        self.refused(self.search(self.work / "none.json"), "none.json: cannot open: No such file or directory")
        self.refused(self.search(self.work), "is a directory, expected a JSON file")
        self.refused(self.search(self.write("g.json", "")), "g.json: line 1, column 1: the file is empty")
        self.refused(self.search(self.write("g.json", '{"format": "ffgraph/1",\n "name"')), "g.json: line 2, column",
                     "syntax error")
        self.refused(self.search(self.write("g.json", "[" * 200000)), "g.json: ")
        self.refused(self.search(self.write("g.json", GRAPH.read_text().replace("64", "NaN", 1))),
                     "g.json: line 6, column 16: syntax error")
        self.refused(self.search(TOPOLOGY), "/format: found \"fftopology/1\", expected \"ffgraph/1\"")
        (self.work / "g.json").write_bytes(b"\xff" * 100)
        self.refused(self.search(self.work / "g.json"), "g.json: line 1, column 1")
        self.refused(changed(lambda g: g.update(nmae="x")), "/nmae: unknown key of a graph; did you mean \"name\"?")
        self.refused(changed(lambda g: g["operators"][0]["attributes"].update(kernal=3)),
                     "/operators/0/attributes/kernal: unknown attribute of conv2d; did you mean \"kernel\"?")
        self.refused(changed(lambda g: g["operators"][0].update(inputs=["tanh2"])), "the graph has a cycle: ")
        self.refused(changed(lambda g: g["operators"][-1].update(inputs=["fc2", "image"])), "/inputs/1: has type f32")
        self.refused(changed(lambda g: g["operators"][6].update(type="linear", attributes={"out_features": 3})),
                     "linear expects 2 to 3 axes")
        self.refused(changed(lambda g: g.update(operators=[])), "/operators: is empty")
        self.refused(changed(lambda g: g.update(batch_size=-3)), "/batch_size: found -3, expected an integer from 1")
        self.refused(changed(lambda g: g.update(batch_size=10**12)), "/batch_size: found 1000000000000")
        self.refused(changed(lambda g: g["operators"][0]["attributes"].update(out_channels=10**9)),
                     "/out_channels: found 1000000000")
        self.refused(self.search(GRAPH, TOPOLOGY, "--batch", 2**32), "more than 2^44 elements")
        self.refused(self.search(GRAPH, TOPOLOGY, "--batch-per-device", 2**32),
                     "/batch_size: asked for 8589934592 samples instead, expected at most 4294967296")
        self.refused(changed(lambda g: g["operators"][0].update(name="fc1")), "is already that of")

    def test_topologies(self):
        def changed(change):
            topology = copy.deepcopy(self.topology)
            change(topology)
            return self.search(GRAPH, self.write("t.json", topology))

        self.refused(changed(lambda t: t.update(links=[])), "no route joins the devices")
        self.refused(changed(lambda t: t["devices"][0].update(model="gpu")),
                     "/devices/0/model: no device model is named \"gpu\"")
        self.refused(changed(lambda t: t["links"][0].update(between=["cpu0", "cpu7"])),
                     "/links/0/between/1: no device or switch is named \"cpu7\"")
        self.refused(changed(lambda t: t["links"][0].update(bandwidth_gb_per_s=0)),
                     "found 0, expected a number from 0.0001 to 1e+12")
        self.refused(changed(lambda t: t["device_models"]["cpu"].update(peak_tflops=1e-308)),
                     "/peak_tflops: found 1e-308, expected a number from 0.0001")
        deep = json.dumps(self.topology)[:-1] + ', "sources": ' + "[" * 50000 + "]" * 50000 + "}"
        self.refused(self.search(GRAPH, self.write("t.json", deep)),
                     "t.json: objects and arrays are nested more than 100 deep")
        self.refused(changed(lambda t: t["devices"][1].update(kind="gpu")),
                     "/devices/1/kind: found \"gpu\", but \"cpu0\" has the same model and is none")
        self.refused(changed(lambda t: t.update(format="fftopology/9")),
                     "/format: found \"fftopology/9\", expected \"fftopology/1\"")

    def test_what_never_ends(self):
        self.refused(self.search("/dev/zero"), "/dev/zero: holds more than 1 GiB, expected a JSON file")
        self.assertEqual(self.search()[0], 0)
        self.refused(self.execute(2, self.work / "s.json", "--load", "/dev/zero"), "/dev/zero: is not a regular file",
                     program="ffexec: ")

    def test_strategies(self):
        self.assertEqual(self.search()[0], 0)
        good = json.loads((self.work / "s.json").read_text())

        def edited(configurations):
            return self.write("edited.json", {**good, "configurations": configurations})

        # As old files have them, by operator; and once for many.
        names = [operator["name"] for operator in good["graph"]["operators"]]
        whole = {name: {"degrees": {}, "devices": [0]} for name in names}
        others = {"operators": "*", "degrees": {}, "devices": "0"}
        cases = [
            ({**whole, "fc3": {"degrees": {"channel": 11}, "devices": [0] * 11}},
             "fc3/degrees/channel: found 11, but dimension \"channel\" of fc3 has size 10"),
            ({**whole, "fc3": {"degrees": {"chanel": 2}, "devices": [0, 1]}}, "did you mean \"channel\"?"),
            ({**whole, "fc3": {"degrees": {"sample": 2}, "devices": [0, 5]}},
             "/configurations/fc3/devices/1: found 5"),
            ({**whole, "fc3": {"degrees": {"sample": 2}, "devices": [0]}}, "has 1 devices, expected 2"),
            ({**whole, "fc3": {"degrees": {"sample": -1}, "devices": [0]}}, "found -1"),
            ({name: whole[name] for name in names if name != "fc3"}, "/configurations: \"fc3\" is missing"),
            ({**whole, "fc9": {}}, "/configurations/fc9: unknown operator"),
            ({**whole, "fc3": 7}, "found 7, expected an object"),
            (7, "/configurations: found 7, expected an array"),
            ([{**others, "operators": ["conv*", "fc[1-3]"]}], "/configurations: \"tanh1\" is missing, and 7 more"),
            ([others, {**others, "operators": ["fc[1-4]"]}],
             "/configurations/1/operators/0: unknown operator \"fc4\"; did you mean \"fc1\"?"),
            ([others, {**others, "operators": ["fc1", "fc[1-2]"]}],
             "/configurations/1/operators/1: operator \"fc1\" has a configuration already, by "
             "/configurations/1/operators/0"),
            ([{**others, "devices": "0-2"}], "/configurations/0/devices: device 2 is not there"),
            ([{**others, "devices": "0 to 1"}], "/configurations/0/devices: found \"0 to 1\", expected ranges"),
            ([others, {**others, "operators": "fc[1-2]", "degrees": {"sample": 0}}],
             "/configurations/1/degrees/sample: found 0", "(configuration of fc1)"),
            ([others, {"operators": ["fc1", "fc2"], "degrees": {}}],
             "/configurations/1: \"devices\" is missing (configuration of fc1, ...)"),
            ([others, {**others, "operators": "fc*", "device": 0}],
             "/configurations/1/device: unknown key of a configuration; did you mean \"devices\"? (configuration of "
             "fc*)"),
        ]
        for number, (configurations, *messages) in enumerate(cases):
            path = edited(configurations)
            self.refused(run(BUILD / "ffsearch", "simulate", "--strategy", path, cwd=self.work), *messages)
            if number % 3 == 0:  # the same reader
                self.refused(self.execute(2, path), *messages, program="ffexec: ")
        for found, message in (("owned", "/synchronization: found \"owned\"; known: all-reduce, "
                                "parameter-server"),
                               (3, "/synchronization: found 3, expected a string")):
            path = self.write("synchronization.json", {**json.loads((self.work / "s.json").read_text()),
                                                       "synchronization": found})
            self.refused(run(BUILD / "ffsearch", "simulate", "--strategy", path, cwd=self.work), message)
            self.refused(self.execute(2, path), message, program="ffexec: ")
        self.refused(self.execute(1, self.work / "s.json"), "is for 2 devices", program="ffexec: ")
        self.refused(self.execute(3, self.work / "s.json"), "is for 2 devices", program="ffexec: ")
        self.refused(self.execute(2, self.work / "none.json"), "none.json: cannot open", program="ffexec: ")
        self.refused(self.execute(2, self.work / "s.json", "--data", self.work / "nowhere"), "nowhere",
                     program="ffexec: ")
        self.write("image.npy", "not an array")
        self.refused(self.execute(2, self.work / "s.json", "--data", self.work), "image.npy", program="ffexec: ")

    def test_annotations(self):
        def annotated(*annotations, flags=()):
            file = self.write("a.json", {"format": "ffannotations/1", "annotations": list(annotations)})
            return self.search(GRAPH, TOPOLOGY, "--annotations", file, *flags)

        by_sample = {"operators": "conv1", "split": {"sample": 2}}
        self.assertEqual(annotated(by_sample)[0], 0)
        for annotation, message in (
            ({"operators": "conv3", "replicate": True}, "/operators: unknown operator \"conv3\"; did you mean"),
            ({"tensors": "los:correct", "replicate": True}, "did you mean \"loss:correct\"?"),
            ({"parameters": "conv1.wait", "replicate": True}, "did you mean \"conv1.weight\"?"),
            ({"operators": "conv1", "split": {"smaple": 2}},
             "/split/smaple: unknown parallelizable dimension of conv1 (conv2d): \"smaple\"; did you mean \"sample\"?"),
            ({"operators": "conv1", "split": {"channel": 7}},
             "/split/channel: found 7, but dimension \"channel\" of conv1 has size 6"),
            ({"operators": "conv1", "split": {"channel": 0}}, "/split/channel: "),
            ({"operators": "conv1", "split": 2}, "/split: "),
            ({"operators": "conv1", "replicate": "yes"}, "/replicate: "),
            ({"operators": "conv1", "shard": {"dimension": "sample", "devices": "0-2"}},
             "/shard/devices: device 2 is not there"),
            ({"operators": "conv1", "shard": {"dimension": "sample", "devices": ["cpu7"]}},
             "/shard/devices/0: no device of the topology is named \"cpu7\"; did you mean"),
            ({"operators": "conv1", "degrees": {"sample": 2}, "devices": [0]}, "/devices: has 1 devices, expected 2"),
            ({"operators": "conv1"}, ": expected one of \"split\""),
            ({"operators": [], "replicate": True}, "/operators: is empty"),
            (7, ": "),
        ):
            self.refused(annotated(annotation), "a.json: /annotations/0" if annotation != 7 else "a.json: ", message)
        self.refused(annotated(by_sample, {"tensors": "conv1", "replicate": True}),
                     "a.json: /annotations/1: splits \"sample\" of conv1 1 way, but /annotations/0 splits it 2 ways")
        self.refused(annotated(by_sample, flags=["--algorithm", "placement"]),
                     "placement: cannot keep to the annotation of conv1", "a.json: /annotations/0")
        for algorithm in ("sub-cluster", "reinforce"):
            self.refused(annotated(by_sample, flags=["--algorithm", algorithm]),
                         algorithm + ": does not keep to annotations")
        shard = {"operators": "conv1", "shard": {"dimension": "sample", "devices": [1, 0]}}
        for algorithm in ("optcnn", "exhaustive"):
            self.refused(annotated(shard, flags=["--algorithm", algorithm]),
                         algorithm + ": cannot keep to the annotation of conv1")
        self.refused(self.search(GRAPH, TOPOLOGY, "--annotations", self.work / "none.json"), "none.json: cannot open")
        self.refused(self.search(GRAPH, TOPOLOGY, "--annotations", GRAPH),
                     "/format: found \"ffgraph/1\", expected \"ffannotations/1\"")
        self.refused(annotated(by_sample, flags=["--report", self.work / "a.json"]), "a.json")

    def test_ranks_that_fail_alike_print_one_message(self):
        self.assertEqual(self.search()[0], 0)
        for name, dtype, shape, size in (("image", "<f4", (128, 1, 28, 28), 4 * 128 * 28 * 28),
                                         ("label", "<i4", (128,), 4 * 128)):
            header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
            (self.work / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header
                                                    + b"\x63" * size)
        self.refused(self.execute(2, "s.json", "--data", "."), "label.npy: sample ",
                     "has the label 1667457891, expected 0 to 9", program="ffexec: ")

    def test_command_lines(self):
        large = "99999999999999999999"  # more than 64 bits
        for flags in (["--nonsense"], ["--proposals", "-1"], ["--proposals", large], ["--proposals", ""],
                      ["--algorithm", "magic"],
                      ["--budget", "soon"], ["--budget", "0"], ["--budget", "inf"], ["--budget", "1e308h"],
                      ["--budget", ""],
                      ["--batch", "0"], ["--batch", large], ["--batch-per-device", large],
                      ["--batch-per-device", str(2**63 - 1)],
                      ["--threads", "0"], ["--chains", "0"], ["--chains", large], ["--seed", "-1"], ["--seed", large],
                      ["--seed", ""],
                      ["--synchronization", "broadcast"], ["--synchronization", ""],
                      ["--beta", "nan"], ["--beta", "-1"], ["--beta", "inf"], ["--init", "nothing"], ["--resume", "x"]):
            code, stdout, stderr = self.search(GRAPH, TOPOLOGY, *flags)
            self.assertEqual((code, stdout), (2, ""), flags)
            self.assertTrue(stderr)
        self.assertEqual(run(BUILD / "ffsearch", "--graph", GRAPH, cwd=self.work)[0], 2)

    def test_synchronization(self):
        self.refused(self.search(GRAPH, TOPOLOGY, "--algorithm", "exhaustive", "--synchronization", "parameter-server"),
                     "exhaustive: its bounds are for --synchronization all-reduce, not for parameter-server")
        self.assertEqual(self.search()[0], 0)
        self.assertEqual(run(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--synchronization",
                             "parameter-server", "--cost", "analytic", "--out", "o.json", cwd=self.work)[0], 0)
        self.assertEqual(json.loads((self.work / "o.json").read_text())["synchronization"], "parameter-server")
        self.assertNotIn("synchronization", json.loads((self.work / "s.json").read_text()))
        code, stdout, stderr = run(BUILD / "ffsearch", "diff", "s.json", "o.json", cwd=self.work)
        self.assertEqual((code, stderr), (0, ""))
        self.assertIn('  synchronization is "parameter-server" instead of "all-reduce"\n', stdout)

    def test_old_names_are_refused_with_the_new_ones(self):
        for path, file, key, old, new in (
                ("/links/0", TOPOLOGY, ["links", 0], "busy_endpoints", "blocks_devices"),
                ("/links/0", TOPOLOGY, ["links", 0], "processor_us", "cpu_overhead_us"),
                ("/links/0", TOPOLOGY, ["links", 0], "processor_share", "cpu_overhead_fraction"),
                ("/device_models/cpu", TOPOLOGY, ["device_models", "cpu"], "kernels_of", "scaled_from")):
            topology = json.loads(pathlib.Path(file).read_text())
            place = topology
            for step in key:
                place = place[step]
            place[old] = 1
            self.refused(self.search(GRAPH, self.write("t.json", topology)),
                         f't.json: {path}/{old}: is now called "{new}"')
        entries = {"forward x": {"us": 1, "samples": 1, "spread": 0}}
        profile = self.write("p.json", {"format": "ffprofile/1", "device_model": "cpu", "measured": {},
                                        "entries": entries})
        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", profile),
                     'p.json: /entries/forward x/spread: is now called "iqr_over_median"')
        self.assertEqual(self.search()[0], 0)
        for key, old, new in (("transfer_buffers", "roomy", "preallocated"), ("transfer_buffers", "brief", "on_demand"),
                              ("synchronization", "owner", "parameter-server")):
            strategy = json.loads((self.work / "s.json").read_text())
            strategy[key] = old
            self.refused(run(BUILD / "ffsearch", "simulate", "--strategy", self.write("o.json", strategy),
                             cwd=self.work), f'o.json: /{key}: "{old}" is now called "{new}"')
        for flag, old, new in (("--synchronization", "owner", "parameter-server"), ("--schedule", "ready", "fifo")):
            code, stdout, stderr = self.search(GRAPH, TOPOLOGY, flag, old)
            self.assertEqual((code, stdout), (2, ""))
            self.assertIn(f'{flag}: "{old}" is now called "{new}"', stderr)
        code, stdout, stderr = self.search(GRAPH, TOPOLOGY, "--schedule", "interleaved")
        self.assertEqual((code, stdout), (2, ""))
        self.assertIn("--schedule: interleaved pipelines are plans with several chunks of layers per device", stderr)

    def test_flags_without_effect(self):
        for flags, message in ((["--algorithm", "expert", "--init", "random"],
                                "--init: goes with --algorithm mcmc or placement"),
                               (["--algorithm", "expert", "--check-local"],
                                "--check-local: goes with --algorithm mcmc or placement"),
                               (["--assignments", "consecutive"], "--assignments: goes with --algorithm exhaustive")):
            code, _, stderr = self.search(GRAPH, TOPOLOGY, *flags)
            self.assertEqual((code, stderr.splitlines()[0]), (2, message))
        self.assertEqual(self.search()[0], 0)
        code, _, stderr = run(BUILD / "ffsearch", "--out", "x.json", "simulate", "--strategy", "s.json", cwd=self.work)
        self.assertEqual((code, stderr.splitlines()[0]), (2, "--out: stands before \"simulate\", expected after it"))
        (self.work / "data").mkdir()
        code, _, stderr = self.execute(2, "s.json", "--data", "data", "--epochs", 1)
        self.assertEqual((code, stderr.splitlines()[0]), (2, "--iterations excludes --epochs"))

    def test_a_result_that_cannot_be_printed(self):
        for flags in ([], ["--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([BUILD / "ffsearch", "--graph", GRAPH, "--topo", TOPOLOGY, "--algorithm",
                                       "data-parallel", "--cost", "analytic", *flags],
                                      cwd=self.work, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                                      check=False)
            self.assertEqual((done.returncode, done.stderr), (3, "ffsearch: cannot write to standard output\n"))

    def test_command_lines_of_the_executor(self):
        self.assertEqual(self.search()[0], 0)
        for flags in (["--lr", "nan"], ["--lr", "1e39"], ["--momentum", "-1"], ["--weight-decay", "inf"],
                      ["--optimizer", "lion"], ["--clip-norm", "-1"], ["--rank-timeout", "nan"],
                      ["--seed", "-1"], ["--epochs", "1"], ["--backend", "tpu"], ["--resume", "x"]):
            code, stdout, stderr = self.execute(2, self.work / "s.json", *flags)
            self.assertEqual((code, stdout), (2, ""), flags)
            self.assertEqual(stderr.count("Run with --help"), 1, stderr)

    def test_an_optimizer_without_a_gradient(self):
        graph = {"format": "ffgraph/1", "name": "none", "batch_size": 4, "inputs": [
            {"name": "x", "shape": ["batch", 8], "dtype": "f32"}, {"name": "y", "shape": ["batch"], "dtype": "i32"}],
                 "operators": [{"name": "loss", "type": "softmax_cross_entropy", "inputs": ["x", "y"]}]}
        for optimizer, flags, place in (({"type": "adamw"}, [], "{}: /optimizer"),
                                        (None, ["--optimizer", "adamw"], "--optimizer")):
            path = self.write("g.json", {**graph, **({"optimizer": optimizer} if optimizer else {})})
            code, stdout, stderr = self.search(path, TOPOLOGY, *flags)
            self.assertEqual((code, stdout), (1, ""))
            self.assertEqual(stderr.strip(), f"ffsearch: {place.format(path)}: an optimizer has nothing to do: no "
                                             'parameter of "none" has a gradient')

    def test_optimizers_that_cannot_be(self):
        graph = json.loads(pathlib.Path(GRAPH).read_text())
        for optimizer, place, message in (
                ({"type": "lion"}, "/type", "unknown optimizer; known: sgd, adam, adamw"),
                ({}, "", "\"type\" is missing"),
                ({"type": "sgd", "learning_rate": -1}, "/learning_rate",
                 "found -1, expected a number from 0 to 3.4e+38"),
                ({"type": "adam", "momentum": 0.9}, "/momentum",
                 "goes with the optimizer sgd; adam and adamw have \"betas\""),
                ({"type": "sgd", "betas": [0.9, 0.99]}, "/betas", "goes with the optimizers adam and adamw"),
                ({"type": "adamw", "betas": [0.9]}, "/betas", "has 1 elements, expected 2"),
                ({"type": "adamw", "betas": [0.9, 1]}, "/betas/1", "found 1, expected a number from 0 to 1"),
                ({"type": "sgd", "clip_norm": 0}, "/clip_norm", "found 0, expected a number above 0"),
                ({"type": "sgd", "schedule": {"warmup_iterations": 5, "iterations": 5}}, "/schedule/iterations",
                 "found 5, expected more than the 5 iterations of the warm-up, which they contain"),
                ({"type": "sgd", "schedule": {"minimum": 0.001}}, "/schedule/minimum",
                 "goes with \"iterations\", after which the learning rate is at its minimum")):
            path = self.work / "graph.json"
            path.write_text(json.dumps({**graph, "optimizer": optimizer}))
            code, stdout, stderr = self.search(path, TOPOLOGY)
            self.assertEqual((code, stdout), (1, ""), optimizer)
            self.assertEqual(stderr.strip(), f"ffsearch: {path}: /optimizer{place}: {message}")
        self.assertEqual(self.search(GRAPH, TOPOLOGY, "--synchronization", "parameter-server")[0], 0)
        for flags, message in ((["--optimizer", "adamw", "--momentum", "0.9"],
                                "--momentum goes with the optimizer sgd, not with adamw"),
                               (["--clip-norm", "1"],
                                "clipping by the norm of all gradients is not possible with parameter servers, which "
                                "update each parameter as soon as its gradients are there; plan with "
                                "--synchronization all-reduce, or give --clip-norm 0")):
            code, stdout, stderr = self.execute(2, self.work / "s.json", *flags)
            self.assertEqual((code, stdout), (1, ""), flags)
            self.assertEqual([line for line in stderr.splitlines() if line.startswith("ffexec")],
                             [f"ffexec: {message}"])

    def test_topology_discovery(self):
        def topology(*flags):
            return run(BUILD / "ffsearch", "topology", *flags, cwd=self.work)

        machine = ROOT / "tests/hwloc/power8gpudistances.xml"
        code, stdout, stderr = topology("--out", "t.json", "--hwloc-xml", machine)
        if "built without hwloc" in stderr or "hwloc was not found" in stderr:
            self.skipTest(stderr)
        self.assertEqual(code, 0, stderr)
        self.assertIn("4 GPUs", stdout)
        self.assertEqual(stderr, "")  # a machine alone needs no network
        self.assertEqual(topology("--out", "two.json", "--nodes", "2", "--network-gb-per-s", "12.5", "--hwloc-xml",
                                  machine)[2], "ffsearch: note: no network adapters were found\n")
        code, _, stderr = self.search(GRAPH, "t.json")
        self.assertEqual((code, stderr), (0, ""))
        self.refused(topology("--out", "t.json", "--hwloc-xml", machine, "--nodes", "2"),
                     "--nodes: the rate of no network adapter is known; give --network-gb-per-s")
        self.refused(topology("--out", "t.json", "--hwloc-xml", "none.xml"), "none.xml: cannot open")
        self.refused(topology("--out", "t.json", "--hwloc-xml", GRAPH),
                     "cannot read it, expected a file that lstopo wrote, of this version or an older one")
        shutil.copy(machine, self.work / "m.xml")
        self.refused(topology("--out", "m.xml", "--hwloc-xml", "m.xml"), "m.xml: this command reads it")
        self.assertEqual(topology("--out", "t.json", "--nodes", "0")[0], 2)
        self.assertEqual(topology()[0], 2)
        for flags, message in ((["--network-gb-per-s", "nan"], "found nan, expected a number from 0.0001 to 1e+12"),
                               (["--preset", "dgx-h100", "--cpu-ranks", "2"], "--preset excludes --cpu-ranks")):
            code, stdout, stderr = topology("--out", "none.json", *flags)
            self.assertEqual((code, stdout), (2, ""))
            self.assertIn(message, stderr)
        self.refused(topology("--out", "none.json", "--preset", ""), '--preset: found ""; known: ')
        self.assertFalse((self.work / "none.json").exists())
        code, stdout, stderr = topology("--out", "here.json", "--json", "--quiet")
        self.assertEqual((code, stderr), (0, ""))
        self.assertEqual(json.loads(stdout), json.loads((self.work / "here.json").read_text()))

    def test_profiles(self):
        def used(entries, *flags, model="cpu"):
            profile = {"format": "ffprofile/1", "device_model": model, "measured": {}, "entries": entries}
            return self.search(GRAPH, TOPOLOGY, *flags, "--profile", self.write("p.json", profile))

        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", self.work / "none.json"), "none.json: cannot open")
        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", GRAPH),
                     "/format: found \"ffgraph/1\", expected \"ffprofile/1\"")
        self.refused(used({}, model="other"), "p.json: is the profile of device model \"other\"")
        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", "p.json", "p.json"),
                     "p.json: is the profile of device model \"other\"")
        self.refused(run(BUILD / "ffsearch", "--graph", GRAPH, "--topo", TOPOLOGY, "--cost", "profile", cwd=self.work),
                     "--cost profile: there are no kernel times of device model \"cpu\"; give --profile FILE")
        used({})
        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", "p.json", "./p.json"),
                     "./p.json: is of device model \"cpu\", as is p.json")
        for precision, message in ((3, "found 3, expected a string"), ("fp16", "found \"fp16\"")):
            profile = {"format": "ffprofile/1", "device_model": "p100", "measured": {"precision": precision},
                       "entries": {}}
            self.refused(self.search(GRAPH, ROOT / "topologies/p100-1x4.json", "--profile",
                                     self.write("p.json", profile)), f"/measured/precision: {message}")
        (self.work / "profiles").mkdir(exist_ok=True)
        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", "profiles"),
                     "profiles: has no profile of a device model of the topology \"local-cpu-2\"; expected cpu.json")
        self.write("profiles/cpu.json", {"format": "ffprofile/1", "device_model": "other", "measured": {},
                                         "entries": {}})
        self.refused(self.search(GRAPH, TOPOLOGY, "--profile", "profiles"),
                     "profiles/cpu.json: is the profile of device model \"other\"")
        self.refused(used({"forward x": {"us": -1, "samples": 1, "iqr_over_median": 0}}),
                     "/us: found -1, expected a number above 0")

    def test_outputs_do_not_replace_what_is_read_or_each_other(self):
        for name, flags in (("g.json", ["--report", "g.json"]), ("s.json", ["--trace", "s.json"]),
                            ("s.json", ["--report", "./s.json"])):
            graph = self.write("g.json", self.graph)
            self.refused(self.search(graph, TOPOLOGY, *flags),
                         f"{name}: this command reads it or writes something else to it")
            self.assertEqual(json.loads(graph.read_text()), self.graph)
        self.assertEqual(self.search()[0], 0)
        before = (self.work / "s.json").read_text()
        for flag in ("--trace", "--save"):
            self.refused(self.execute(2, self.work / "s.json", flag, self.work / "s.json"), "s.json: ",
                         program="ffexec: ")
        self.assertEqual((self.work / "s.json").read_text(), before)

        # another spelling
        self.refused(self.execute(2, "s.json", "--save", "./s.json"), "./s.json: this command reads it",
                     program="ffexec: ")
        self.refused(self.execute(2, "s.json", "--save", "c", "--trace", "./c"), "./c: this command reads it",
                     program="ffexec: ")
        self.assertEqual((self.work / "s.json").read_text(), before)
        image = self.write("image.npy", "data")
        self.refused(self.execute(2, "s.json", "--data", ".", "--save", "image.npy"),
                     "image.npy: this command reads it", program="ffexec: ")
        self.assertEqual(image.read_text(), "data")

    def test_outputs_that_cannot_be_written(self):
        self.assertEqual(self.search()[0], 0)
        for flag in ("--save", "--trace"):  # told before a training that would not end
            self.refused(self.execute(2, self.work / "s.json", flag, "no/x", iterations=10**9),
                         "no/x: there is no folder \"no\"", program="ffexec: ")
        (self.work / "s.json").unlink()
        self.refused(self.search(GRAPH, TOPOLOGY, "--trace", self.work / "no/t.json"), "there is no folder")
        self.refused(self.search(GRAPH, TOPOLOGY, "--report", self.work), "is a directory")
        (self.work / "link").symlink_to("nowhere")
        self.refused(self.search(GRAPH, TOPOLOGY, "--report", self.work / "link"),
                     "link: is a link to what is not there")
        self.assertTrue((self.work / "link").is_symlink())
        self.assertFalse((self.work / "s.json").exists())

    def test_a_full_disk_leaves_the_old_strategy(self):
        small = self.work / "small"
        small.mkdir()
        if not shutil.which("mount"):
            self.skipTest("there is no mount program here")
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", small],
                                               capture_output=True, check=False).returncode:
            self.skipTest("a tiny tmpfs cannot be mounted here")
        try:
            (small / "s.json").write_text("old")
            code, stdout, stderr = run(BUILD / "ffsearch", "--graph", GRAPH, "--topo",
                                       ROOT / "topologies/p100-4x4.json", "--algorithm", "data-parallel",
                                       "--out", small / "s.json", cwd=self.work)
            self.assertEqual((code, stdout), (3, ""))
            self.assertEqual(stderr.strip(),
                             f"ffsearch: {small}/s.json: cannot write: No space left on device; nothing was changed")
            self.assertEqual((small / "s.json").read_text(), "old")
            self.assertEqual(os.listdir(small), ["s.json"])
        finally:
            subprocess.run(["umount", small], check=True)

    def test_an_interrupted_search_writes_its_best(self):
        with subprocess.Popen([BUILD / "ffsearch", "--graph", GRAPH, "--topo", TOPOLOGY, "--cost", "analytic",
                               "--budget", "10m", "--json", "--out",
                               self.work / "s.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            time.sleep(1.5)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, stderr), (130, ""))
        self.assertGreater(json.loads(stdout)["proposals"], 0)
        self.assertEqual(run(BUILD / "ffsearch", "simulate", "--strategy", self.work / "s.json", "--cost", "analytic",
                             cwd=self.work)[0], 0)

    def test_an_interruption_does_not_wait_for_what_follows_the_strategy(self):
        os.mkfifo(self.work / "trace")  # nobody reads it: the trace is never complete
        with subprocess.Popen([BUILD / "ffsearch", "--graph", GRAPH, "--topo", TOPOLOGY, "--cost", "analytic",
                               "--algorithm", "data-parallel", "--trace", self.work / "trace", "--out",
                               self.work / "s.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            while not (self.work / "s.json").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, stdout), (130, ""))
        self.assertEqual(stderr, f"ffsearch: interrupted while writing; {self.work}/s.json is complete, other files "
                         "may be missing\n")
        self.assertEqual(run(BUILD / "ffsearch", "simulate", "--strategy", self.work / "s.json", "--cost", "analytic",
                             cwd=self.work)[0], 0)

    def test_an_interrupted_measurement_says_so(self):
        with subprocess.Popen([BUILD / "ffsearch", "--graph", ROOT / "graphs/alexnet.json", "--topo", TOPOLOGY,
                               "--batch", "64", "--cost", "measure", "--out",
                               self.work / "s.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, stdout), (130, ""))
        # While one kernel runs for longer than a second, the program ends within it.
        self.assertRegex(stderr, "^ffsearch: interrupted (while measuring kernels, )?before any strategy was found; "
                         "nothing was written\n$")
        self.assertFalse((self.work / "s.json").exists())

    def test_a_search_for_settings_that_ends_before_it_has_any(self):
        """By an interruption, and by its budget."""
        command = (BUILD / "ffsearch", "plan", "--graph", ROOT / "graphs/mixtral-8x22b.json", "--topo",
                   ROOT / "topologies/dgx-a100-8.json", "--precision", "bf16", "--optimizer", "adamw")
        with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            time.sleep(1.5)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, stdout), (130, ""))
        self.assertRegex(stderr, "^ffsearch: interrupted( before a plan was found .*; nothing was written)?\n$")
        self.refused(run(*command, "--budget", "10ms", cwd=self.work),
                     "the budget ended before a plan was found (shapes estimated: ",
                     "give a longer --budget, or what is known of the plan: --settings")

    def test_an_interrupted_profile_speaks_of_kernels(self):
        with subprocess.Popen([BUILD / "ffsearch", "profile", "--graph", ROOT / "graphs/alexnet.json", "--topo",
                               TOPOLOGY, "--batch", "64", "--out", self.work / "p.json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            stderr = process.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(process.returncode, 130)
        self.assertNotIn("strategy", stderr)

    def test_a_killed_rank_ends_the_job(self):
        self.assertEqual(self.search()[0], 0)
        with subprocess.Popen(["mpirun", "-n", "2", BUILD / "ffexec", "--strategy", self.work / "s.json",
                               "--iterations", "100000000"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            ranks = []
            while len(ranks) < 2:
                self.assertIsNone(process.poll())
                time.sleep(0.2)
                ranks = subprocess.run(["pgrep", "-P", str(process.pid), "-x", "ffexec"], capture_output=True,
                                       text=True, check=False).stdout.split()
            time.sleep(2)
            os.kill(int(ranks[1]), signal.SIGKILL)
            stderr = process.communicate(timeout=LIMIT_S)[1]
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("killed", stderr.lower())


class Reproducible(unittest.TestCase):
    def test_same_seed_same_strategy_for_any_number_of_threads(self):
        with tempfile.TemporaryDirectory() as folder:
            results = []
            for name, threads, simulator in (("a", 1, "delta"), ("b", 1, "delta"), ("c", 2, "delta"), ("d", 2, "full")):
                code, stdout, stderr = run(BUILD / "ffsearch", "--graph", GRAPH, "--topo",
                                           ROOT / "topologies/p100-4x4.json", "--seed", 5, "--proposals", 1000,
                                           "--chains", 4, "--threads", threads, "--simulator", simulator, "--json",
                                           "--out", f"{folder}/{name}", cwd=folder)
                self.assertEqual((code, stderr), (0, ""))
                result = json.loads(stdout)
                self.assertLessEqual(result["predicted_us"], result["baselines"]["data-parallel"])
                self.assertGreaterEqual(result["predicted_us"], result["lower_bound_us"])
                results.append((result["chain_hash"], result["predicted_us"],
                                pathlib.Path(f"{folder}/{name}").read_text()))
            self.assertEqual(len(set(results)), 1)

    def test_a_profile_keeps_to_its_device_model(self):
        topology = json.loads((ROOT / "topologies/local-cpu-2.json").read_text())
        topology["device_models"]["other"] = topology["device_models"]["cpu"]
        topology["devices"][1]["model"] = "other"
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "t.json").write_text(json.dumps(topology))
            profile = (BUILD / "ffsearch", "profile", "--graph", GRAPH, "--topo", "t.json", "--batch", 2, "--out",
                       "p.json")
            code, _, stderr = run(*profile, cwd=folder)
            self.assertEqual((code, stderr), (1, "ffsearch: t.json: this machine has devices of several models; choose "
                                              "one with --device-model; known: cpu, other\n"))
            self.assertIn("for device model cpu", run(*profile, "--device-model", "cpu", cwd=folder)[1])
            before = pathlib.Path(folder, "p.json").read_text()
            self.assertIn("measured 0 kernels", run(*profile, cwd=folder)[1])  # goes on with the file's
            code, _, stderr = run(*profile, "--device-model", "other", cwd=folder)
            self.assertEqual((code, stderr),
                             (1, "ffsearch: p.json: is the profile of device model \"cpu\", not of \"other\"; give "
                              "another name\n"))
            self.assertEqual(pathlib.Path(folder, "p.json").read_text(), before)
            self.assertEqual(run(*profile[:-1], "/dev/full", "--device-model", "cpu", cwd=folder)[0], 3)  # is not read

    def test_a_profile_is_written_resumed_and_enough(self):
        with tempfile.TemporaryDirectory() as folder:
            common = ("--graph", GRAPH, "--topo", ROOT / "topologies/local-cpu-1.json")
            profile = ("profile", *common, "--out", f"{folder}/p.json")
            self.assertIn("measured ", run(BUILD / "ffsearch", *profile, cwd=folder)[1])
            self.assertIn("measured 0 kernels", run(BUILD / "ffsearch", *profile, cwd=folder)[1])
            code, stdout, _ = run(BUILD / "ffsearch", *common, "--cost", "profile", "--profile", f"{folder}/p.json",
                                  "--proposals", 20, "--json", "--out", f"{folder}/s.json", cwd=folder)
            self.assertEqual(code, 0)
            costs = json.loads(stdout)["costs"]
            self.assertGreater(costs["profile"], 0)
            self.assertEqual(costs["measured"] + costs["analytic"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
