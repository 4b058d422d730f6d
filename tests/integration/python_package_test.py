#!/usr/bin/env python3
"""The Python package without PyTorch: graphs, topologies, plans, training, errors, Ctrl-C, installation. Usage:
python_package_test.py BUILD_DIRECTORY."""
import ast
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import zipfile
from contextlib import redirect_stderr

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scripts" / "python"
sys.path.insert(0, str(PACKAGE))
BUILD = os.path.abspath(sys.argv.pop(1))
os.environ["FFSEARCH_BIN"] = BUILD
import ffsearch  # noqa: E402
from ffsearch import programs  # noqa: E402

TWO = "local-cpu-2"


def lenet_plan(**flags):
    return ffsearch.search(ffsearch.Graph.named("lenet"), ffsearch.Topology.named(TWO), seed=1,
                           **{"cost": "analytic", "proposals": 300, **flags})


def in_python(code, **environment):
    """A script with the package in a process of its own."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1",
                                 **environment})


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def refused(self, call, kind=ffsearch.InputError, code=None):
        with self.assertRaises(kind) as raised:
            call()
        self.assertEqual(raised.exception.message, str(raised.exception))
        if code is not None:
            self.assertEqual(raised.exception.exit_code, code)
        return str(raised.exception)


class Files(Case):
    def test_graphs(self):
        graph = ffsearch.Graph.named("lenet")
        self.assertEqual(repr(graph), f"<Graph lenet: {len(graph.operators)} operators, batch 64>")
        self.assertEqual([(each.name, each.shape, each.dtype) for each in graph.inputs],
                         [("image", (64, 1, 28, 28), "f32"), ("label", (64,), "i32")])
        self.assertIn("conv1", graph.operators)
        graph.save(self.folder / "g.json")
        again = ffsearch.Graph.load(self.folder / "g.json")
        self.assertEqual(again.data, graph.data)
        self.assertIsNone(again.weights)
        (self.folder / "g.safetensors").write_bytes(b"weights")
        self.assertEqual(ffsearch.Graph.load(self.folder / "g.json").weights, (self.folder / "g.safetensors").resolve())
        again.save(self.folder / "h.json")
        self.assertFalse((self.folder / "h.safetensors").exists())
        steps = ffsearch.Graph.named("rnnlm-2step").inputs
        self.assertEqual([(each.name, each.shape) for each in steps], [("token", (64, 2)), ("label", (64, 2))])

    def test_a_changed_file_does_not_change_what_was_loaded(self):
        shutil.copy(ROOT / "graphs/lenet.json", self.folder / "g.json")
        graph = ffsearch.Graph.load(self.folder / "g.json")
        (self.folder / "g.json").write_text("{}")
        self.assertEqual(graph.name, "lenet")
        self.assertIn("predicted_us", ffsearch.search(graph, ffsearch.Topology.named(TWO), cost="analytic",
                                                      algorithm="data-parallel").prediction.raw)

    def test_the_optimizer_of_a_graph(self):
        graph = ffsearch.Graph.named("lenet")
        self.assertIsNone(graph.optimizer)
        adam = graph.with_optimizer({"type": "adamw", "learning_rate": 0.01, "clip_norm": 1})
        self.assertEqual(adam.optimizer["clip_norm"], 1)
        topology = ffsearch.Topology.named(TWO)
        sizes = [ffsearch.search(each, topology, algorithm="data-parallel", cost="analytic").memory_bytes[0]
                 for each in (graph, graph.with_optimizer("adam"))]
        self.assertGreater(sizes[1], sizes[0])
        self.assertIn('/optimizer/type', self.refused(
            lambda: ffsearch.search(graph.with_optimizer("adamx"), topology), code=1))

    def test_topologies(self):
        self.assertEqual(ffsearch.Topology.named(TWO).devices, ("cpu0", "cpu1"))
        preset = ffsearch.Topology.preset("dgx-h100", nodes=2, gpus_per_node=4)
        self.assertEqual(len(preset.devices), 8)
        self.assertEqual(preset.devices[-1], "node1.gpu3")
        here = ffsearch.Topology.detect(cpu_ranks=3)
        self.assertEqual(len(here.devices), 3)
        here.save(self.folder / "t.json")
        self.assertEqual(ffsearch.Topology.load(self.folder / "t.json").data, here.data)
        self.assertEqual(len(ffsearch.Topology.calibrate(2).devices), 2)

    def test_device_names_are_those_of_the_programs(self):
        for name in ("dgx-a100-2", "p100-2x4", "k80-1x4"):
            topology = ffsearch.Topology.named(name)
            graph = ffsearch.Graph.named("lenet")
            plan = ffsearch.search(graph, topology, algorithm="single-device", cost="analytic", batch=64)
            self.assertEqual(plan.devices, topology.devices)
            self.assertEqual(len(plan.memory_bytes), len(topology.devices))
            edited = plan.edit(f"fc1: whole on device {topology.devices[-1]}", cost="analytic")
            self.assertEqual(edited.changes[0].after.devices, (len(topology.devices) - 1,))

    def test_wrong_files(self):
        self.assertEqual(self.refused(lambda: ffsearch.Graph.load("/nowhere.json")),
                         "/nowhere.json: No such file or directory")
        (self.folder / "x.json").write_text("[1, 2]")
        self.assertEqual(self.refused(lambda: ffsearch.Topology.load(self.folder / "x.json")),
                         f'{self.folder}/x.json: /format: found null, expected "fftopology/1"')
        (self.folder / "x.json").write_text("{")
        self.assertTrue(self.refused(lambda: ffsearch.Plan.load(self.folder / "x.json")).startswith(
            f"{self.folder}/x.json: is not JSON: "))
        self.assertTrue(self.refused(lambda: ffsearch.Graph.named("lenett")).startswith(
            'there are no graphs "lenett"; known: alexnet, '))
        text = json.loads((ROOT / "graphs/lenet.json").read_text())
        text["operators"][0]["attributes"]["kernal"] = 3
        (self.folder / "x.json").write_text(json.dumps(text))
        graph = ffsearch.Graph.load(self.folder / "x.json")
        self.assertEqual(self.refused(lambda: ffsearch.search(graph, ffsearch.Topology.named(TWO)), code=1),
                         f'{self.folder}/x.json: /operators/0/attributes/kernal: unknown attribute of conv2d; did you '
                         'mean "kernel"?')

    def test_a_language_models_configuration(self):
        configuration = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 32,
                         "vocab_size": 100, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
        (self.folder / "config.json").write_text(json.dumps(configuration))
        graph = ffsearch.Graph.from_config(self.folder / "config.json", batch=8, sequence=16)
        self.assertEqual(graph.inputs[0].shape, (8, 16))
        self.assertIsNone(graph.weights)


class Plans(Case):
    def test_a_plan(self):
        plan = lenet_plan()
        self.assertAlmostEqual(plan.predicted_ms, plan.prediction.raw["predicted_us"] / 1000)
        self.assertAlmostEqual(plan.samples_per_s, 64 / plan.predicted_ms * 1000)
        self.assertEqual(len(plan.memory_bytes), 2)
        self.assertGreaterEqual(min(plan.baselines.values()), plan.prediction.predicted_fifo_ms)
        self.assertIn("data-parallel", plan.baselines)
        self.assertEqual((plan.statistics.seed, plan.statistics.algorithm), (1, "mcmc"))
        self.assertFalse(plan.interrupted)
        self.assertEqual(plan.devices, ("cpu0", "cpu1"))
        self.assertEqual(plan.graph.operators, ffsearch.Graph.named("lenet").operators)
        self.assertEqual(plan.topology.data["links"], ffsearch.Topology.named(TWO).data["links"])
        self.assertEqual(lenet_plan().statistics.chain_hash, plan.statistics.chain_hash)
        self.assertRegex(repr(plan), r"^<Plan lenet on local-cpu-2 \(2 devices\): [0-9.]+ ms, data parallelism [0-9.]+ "
                                     r"ms>$")

    def test_saved_and_loaded(self):
        plan = lenet_plan()
        plan.save(self.folder / "p.json", trace=self.folder / "trace.json")
        again = ffsearch.Plan.load(self.folder / "p.json", cost="analytic")
        self.assertNotIn("ms", repr(again))
        self.assertAlmostEqual(again.predicted_ms, plan.predicted_ms)
        self.assertEqual(list(again.baselines), ["data-parallel"])
        self.assertIsNone(again.statistics)
        self.assertIn("traceEvents", json.loads((self.folder / "trace.json").read_text()))
        self.assertEqual(self.refused(lambda: ffsearch.Plan.load(self.folder / "p.json", costs="analytic")),
                         'unknown argument "costs"; known: cost, profile')

    def test_costs_stay_with_the_plan(self):
        plan = lenet_plan(cost="profile", profile=ROOT / "profiles")
        for each in (plan, plan.edit("fc1: whole on 0")):
            self.assertEqual(each.prediction.costs["analytic"] + each.prediction.costs["measured"], 0)
        self.assertAlmostEqual(plan.simulate().predicted_ms, plan.predicted_ms)
        self.assertGreater(plan.simulate(cost="analytic").costs["analytic"], 0)

    def test_on_another_topology(self):
        plan = lenet_plan()
        slow = json.loads((ROOT / "topologies" / f"{TWO}.json").read_text())
        for link in slow["links"]:
            link["bandwidth_gb_per_s"] = 0.01
        (self.folder / "slow.json").write_text(json.dumps(slow))
        self.assertGreater(plan.simulate(topology=ffsearch.Topology.load(self.folder / "slow.json")).predicted_ms,
                           plan.predicted_ms)

    def test_explained(self):
        explanation = lenet_plan().explain(what_if=("batch 128", "memory x2"), limit=2)
        self.assertEqual([each.what_if for each in explanation.what_if], ["batch 128", "memory x2"])
        self.assertAlmostEqual(explanation.what_if[1].change_ms, 0)
        self.assertAlmostEqual(sum(explanation.kinds.values()), explanation.predicted_ms, places=2)
        self.assertAlmostEqual(sum(piece.ms for piece in explanation.critical_path), explanation.predicted_ms, places=2)
        self.assertGreater(explanation.data_parallel_ms, 0)
        self.assertIn("critical path", str(explanation))
        self.assertIn("<pre>", explanation._repr_html_())
        self.assertEqual(len(lenet_plan().explain(what_if="batch 128").what_if), 1)

    def test_edited_and_compared(self):
        plan = lenet_plan(algorithm="data-parallel", proposals=None)
        edited = plan.edit("fc*: channel 2", "conv1: whole on device 1")
        self.assertEqual([(each.what, each.after.degrees, each.after.devices) for each in edited.changes],
                         [("conv1", {}, (1,)), ("fc[1-3]", {"channel": 2}, (0, 1))])
        self.assertEqual(plan.edit("fc1: channel 2").data["configurations"],
                         plan.edit("fc1: channel 2 on 0-1").data["configurations"])
        diff = plan.diff(edited)
        self.assertAlmostEqual(diff.a_ms, plan.prediction.predicted_ms)
        self.assertEqual(diff.settings, ())
        self.assertEqual({each.what for each in diff.differences}, {"conv1", "fc[1-3]"})
        self.assertIn(f"4 of {len(plan.graph.operators)} operators differ", str(diff))
        self.assertEqual(self.refused(lambda: plan.edit("fcx: channel 2"), code=1),
                         'edit "fcx: channel 2 on 0-1": in "fcx": unknown operator "fcx"; did you mean "fc1"?')

    def test_a_transformer(self):
        graph, topology = ffsearch.Graph.named("gpt2-small"), ffsearch.Topology.named("dgx-a100-1")
        found = ffsearch.plan_settings(graph, topology, settings={"tp": 2}, top=2, framework="megatron",
                                       cost="analytic")
        self.assertEqual(len(found.plans), 2)
        self.assertEqual(found.best.values["tp"], "2")
        self.assertLessEqual(found.best.predicted_ms, found.plans[1].predicted_ms)
        self.assertIn("--tensor-model-parallel-size 2", found.text)
        plan = ffsearch.search(graph, topology, algorithm="megatron", cost="analytic")
        exported = plan.export("torchtitan")
        self.assertIn("tensor_parallel_degree", str(exported))
        self.assertEqual(exported.framework, "torchtitan")
        self.assertAlmostEqual(exported.predicted_ms, plan.prediction.predicted_fifo_ms, places=1)

    def test_all_algorithms(self):
        found = ffsearch.compare(ffsearch.Graph.named("lenet"), ffsearch.Topology.named(TWO), proposals=50,
                                 cost="analytic")
        self.assertIn("transformers", found["megatron"])
        self.assertGreater(found["data-parallel"].predicted_ms, 0)

    def test_measured_kernels(self):
        ffsearch.profile(ffsearch.Graph.named("lenet"), ffsearch.Topology.named("local-cpu-1"),
                         self.folder / "profile.json", batch=2)
        self.assertEqual(json.loads((self.folder / "profile.json").read_text())["format"], "ffprofile/1")

    def test_kernels_are_measured_once(self):
        graph, topology = ffsearch.Graph.named("lenet"), ffsearch.Topology.named("local-cpu-1")
        plan = ffsearch.search(graph, topology, batch=2, proposals=10)
        self.assertEqual((plan.prediction.costs["measured"], plan.prediction.costs["analytic"]), (0, 0))
        self.assertEqual(plan.simulate().predicted_ms, plan.predicted_ms)
        again = ffsearch.search(graph, topology, batch=2, proposals=10)
        self.assertEqual(again.predicted_ms, plan.predicted_ms)
        elsewhere = ffsearch.search(graph, ffsearch.Topology.named("p100-1x4"), proposals=10)
        self.assertEqual((elsewhere.prediction.costs["measured"], elsewhere.prediction.costs["profile"]), (0, 0))

    def test_in_a_notebook(self):
        plan = lenet_plan()
        page = plan.html(self.folder / "plan.html")
        self.assertEqual((self.folder / "plan.html").read_text(), page)
        shown = plan._repr_html_()
        self.assertTrue(shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;'))
        self.assertIn(plan.name, page)
        os.environ["FFSEARCH_BIN"] = "/nowhere"
        try:
            self.assertIn("has no program ffsearch", plan._repr_html_())
        finally:
            os.environ["FFSEARCH_BIN"] = BUILD

    def test_annotations(self):
        fixed = {"format": "ffannotations/1", "annotations": [{"operators": "fc1", "split": {"channel": 2}}]}
        plan = lenet_plan(annotations=fixed)
        self.assertEqual(plan.edit("fc1: whole on 0").changes[0].before.degrees, {"channel": 2})
        fixed["annotation"] = fixed.pop("annotations")
        self.assertTrue(self.refused(lambda: lenet_plan(annotations=fixed), code=1).startswith(
            "annotations.json: /annotation: unknown key of annotations"))


class Running(Case):
    def test_flags(self):
        self.assertEqual(programs.flags_of({"micro_batches": "auto", "check_local": True, "budget": None,
                                            "quiet": False, "recompute": ["a*", "b"], "background": ("x", "y"),
                                            "seed": 0}),
                         ["--micro-batches", "auto", "--check-local", "--recompute", "a*,b", "--background", "x",
                          "--background", "y", "--seed", "0"])
        message = self.refused(lambda: lenet_plan(micro_batchez=3), code=2)
        self.assertEqual(message, "The following arguments were not expected: 3 --micro-batchez")
        self.assertIn("found a str where a Graph is expected", self.refused(
            lambda: ffsearch.search("lenet.json", ffsearch.Topology.named(TWO))))

    def test_where_programs_are(self):
        self.assertEqual(ffsearch.find_program("ffexec"), f"{BUILD}/ffexec")
        before = dict(os.environ)
        try:
            os.environ["FFSEARCH_BIN"] = str(self.folder)
            self.assertEqual(self.refused(lambda: ffsearch.find_program("ffsearch"), ffsearch.ProgramNotFound),
                             f"{self.folder}: has no program ffsearch; FFSEARCH_BIN must name the folder with ffsearch "
                             "and ffexec")
            del os.environ["FFSEARCH_BIN"]
            os.environ["PATH"] = f"{self.folder}:{BUILD}"
            self.assertEqual(ffsearch.find_program("ffsearch"), f"{BUILD}/ffsearch")
            copy = self.folder / "lib/python3/dist-packages"
            shutil.copytree(PACKAGE / "ffsearch", copy / "ffsearch")
            (self.folder / "bin").mkdir()
            (self.folder / "bin/ffsearch").symlink_to(f"{BUILD}/ffsearch")
            where = in_python("import ffsearch; print(ffsearch.find_program('ffsearch'))", PYTHONPATH=str(copy),
                              PATH="/usr/bin", FFSEARCH_BIN="").communicate()
            self.assertEqual(where, (f"{self.folder}/bin/ffsearch\n", ""))
            (self.folder / "bin/ffsearch").unlink()
            said = in_python("import ffsearch; ffsearch.find_program('ffsearch')", PYTHONPATH=str(copy),
                             PATH="/usr/bin", FFSEARCH_BIN="").communicate()[1]
            self.assertIn(f"ProgramNotFound: ffsearch is neither in PATH nor in a build folder next to {copy}/ffsearch:"
                          " install it", said)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def fake(self, script):
        path = self.folder / "program"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return [str(path)]

    def test_messages(self):
        dashes = "-" * 74
        script = f"""cat >&2 <<'END'
ffexec: note: one thing
ffexec: /tmp/x/p.json: is wrong
give another one
{dashes}
Primary job  terminated normally, but 1 process returned
{dashes}
END
exit 1"""
        with self.assertRaises(ffsearch.InputError) as raised:
            programs.run(self.fake(script), shown={"/tmp/x/": ""})
        self.assertEqual(raised.exception.message, "p.json: is wrong\ngive another one")
        for code, kind in ((1, ffsearch.InputError), (2, ffsearch.InputError), (3, ffsearch.MachineError),
                           (134, ffsearch.MachineError)):
            with self.assertRaises(kind) as raised:
                programs.run(self.fake(f"exit {code}"))
            error = raised.exception
            self.assertEqual((error.exit_code, error.message),
                             (code, f"ended with exit code {code}, without a message"))
            self.assertEqual(error.command, (str(self.folder / "program"),))
        self.assertEqual(self.refused(lambda: programs.run(self.fake("kill -9 $$")), ffsearch.MachineError),
                         "ended by signal 9")
        self.assertEqual(programs.run(self.fake("echo 'ffsearch: note: busy' >&2; echo result")).notes, ("busy",))

    def test_a_program_that_leaves_another_behind(self):
        begin = time.monotonic()
        self.assertEqual(programs.run(self.fake("sleep 60 & echo done")).output, "done\n")
        self.assertLess(time.monotonic() - begin, 50)

    def test_progress(self):
        lines = []
        script = r"""[ -t 2 ] && printf '\r   1.0 s  one\r   2.0 s  two  \r\033[K' >&2
echo 'ffsearch: note: n' >&2; echo '{}'"""
        done = programs.run(self.fake(script), progress=lines.append, terminal=True)
        self.assertEqual((lines, done.notes), (["1.0 s  one", "2.0 s  two"], ("n",)))
        stderr = io.StringIO()
        with redirect_stderr(stderr):
            programs.run(self.fake(script), progress=True, terminal=True)
        self.assertTrue(stderr.getvalue().startswith("\r   1.0 s  one\r   2.0 s  two"))
        lines.clear()
        ffsearch.search(ffsearch.Graph.named("alexnet"), ffsearch.Topology.named("p100-2x4"), budget=2, cost="analytic",
                        progress=lines.append)
        self.assertTrue(any("proposals" in line for line in lines), lines)
        lines.clear()
        lenet_plan().train(iterations=20, progress=lines.append)
        self.assertRegex(lines[-1], "^iteration 20 of 20: loss ")

    def test_nothing_is_imported_that_is_not_needed(self):
        code = "import sys, ffsearch; print([m for m in ('torch', 'numpy', 'pty') if m in sys.modules])"
        self.assertEqual(in_python(code).communicate()[0], "[]\n")

    def test_temporary_files_are_removed(self):
        code = """
            import ffsearch
            graph = ffsearch.Graph.named("lenet").with_optimizer("adam")
            plan = ffsearch.search(graph, ffsearch.Topology.detect(cpu_ranks=1), proposals=10, cost="analytic")
            del graph
            plan.train(iterations=1)
            plan.edit("fc1: whole on 0").explain()
        """
        process = in_python(code, TMPDIR=str(self.folder))
        _, errors = process.communicate()
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.startswith("ffsearch-")], [])


class Training(Case):
    def arrays(self, samples=128):
        import numpy
        random = numpy.random.RandomState(0)
        return {"image": random.rand(samples, 1, 28, 28), "label": random.randint(0, 10, samples)}

    def test_training(self):
        plan = lenet_plan()
        run = plan.train(self.arrays(), epochs=2, lr=0.05, evaluate=self.arrays(100), ranks=2,
                         save=self.folder / "c.safetensors", trace=self.folder / "trace.json")
        self.assertEqual((run.iterations, len(run.losses), len(run.epoch_losses), run.ranks), (4, 4, 2, 2))
        self.assertLess(run.epoch_losses[1], run.epoch_losses[0])
        self.assertEqual(run.checkpoint, self.folder / "c.safetensors")
        self.assertTrue(run.checkpoint.exists())
        self.assertGreater(run.measured_ms, 0)
        self.assertAlmostEqual(run.predicted_ms, plan.predicted_ms)
        self.assertTrue(0 <= run.evaluation.top1 <= 1)
        self.assertEqual(len(run.memory_bytes), 2)
        self.assertIn("measured", plan.html(measured=self.folder / "trace.json"))
        whole = plan.train(self.arrays(), iterations=6, lr=0.05)
        self.assertEqual(plan.train(self.arrays(), iterations=2, lr=0.05, start=run).losses, whole.losses[4:])
        self.assertLess(plan.train(iterations=3, verify=True).max_relative_error, 1e-4)
        self.assertRegex(repr(run), "^<TrainingRun 4 iterations on 2 ranks: loss .* ms predicted>$")

    def test_data(self):
        plan, arrays = lenet_plan(), self.arrays()
        expected = plan.train(arrays, iterations=2).losses
        self.assertEqual(plan.train(tuple(arrays.values()), iterations=2).losses, expected)
        ffsearch.write_data(arrays, plan.graph, self.folder / "data")
        self.assertEqual(plan.train(self.folder / "data", iterations=2).losses, expected)
        samples = list(zip(arrays["image"], arrays["label"]))

        class Dataset:
            def __len__(self):
                return len(samples)

            def __getitem__(self, i):
                return samples[i]

        self.assertEqual(plan.train(Dataset(), iterations=2).losses, expected)
        images, label = arrays.values()
        for data, message in (
                ({"image": images}, 'data: there is no array for "label"; the graph\'s inputs are image, label'),
                ({"image": images, "label": label, "x": label},
                 'data: there is no input "x"; the graph\'s inputs are image, label'),
                ((images,), "data: found 1 arrays, expected 2: image, label"),
                (images, "data: found a ndarray; expected a dictionary of arrays by the names of the graph's inputs "
                         "(image, label), a tuple of arrays in this order, a dataset of such samples, or a folder of "
                         ".npy files"),
                ((images[:, 0], label), 'data of "image": found shape [128, 28, 28], expected [samples, 1, 28, 28]'),
                ((images, label[:-1]), "data: arrays have different numbers of samples: image 128, label 127"),
                ((images, label.astype(float)),
                 'data of "label": found float64, expected whole numbers (i32)'),
                ((images, label + 2**40), 'data of "label": numbers are beyond 32 bits')):
            self.assertEqual(self.refused(lambda data=data: plan.train(data, iterations=1)), message)
        self.assertIn("label", self.refused(lambda: plan.train((images, label + 5), iterations=2), code=1))

    def test_refused(self):
        plan = lenet_plan()
        self.assertEqual(self.refused(lambda: plan.train(ranks=3)),
                         "the plan is for 2 devices (cpu0, cpu1), not for 3 ranks: search on a topology of 3")
        self.assertEqual(self.refused(lambda: plan.train("/nowhere"), code=1),
                         "/nowhere: is not a directory, expected one with a .npy file for each input of the graph")
        self.assertEqual(self.refused(lambda: plan.train(mpirun=("no-mpirun",)), ffsearch.ProgramNotFound),
                         "no-mpirun is not in PATH: training needs Open MPI (package openmpi-bin)")


class Interrupted(Case):
    def interrupted(self, code, marker="begun"):
        """Ctrl-C once the script has printed the marker on stderr; returns what it then prints."""
        # What was started in the background of a shell ignores Ctrl-C.
        listening = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        process = in_python(listening + textwrap.dedent(code))
        while marker not in process.stderr.readline():
            self.assertIsNone(process.poll(), process.stderr)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        return out

    def test_a_search(self):
        out = self.interrupted("""
            import sys, ffsearch
            said = []
            def progress(line):
                if "proposals" in line and not said:
                    said.append(print("begun", file=sys.stderr, flush=True))
            plan = ffsearch.search(ffsearch.Graph.named("alexnet"), ffsearch.Topology.named("p100-2x4"), budget="10m",
                                   proposals=10**9, cost="analytic", progress=progress)
            print(plan.interrupted, plan.predicted_ms > 0, repr(plan).endswith("interrupted>"))
        """)
        self.assertEqual(out, "True True True\n")

    def test_training(self):
        out = self.interrupted("""
            import sys, ffsearch
            plan = ffsearch.search(ffsearch.Graph.named("lenet"), ffsearch.Topology.named("local-cpu-2"), proposals=10,
                                   cost="analytic")
            said = []
            def progress(line):
                if not said:
                    said.append(print("begun", file=sys.stderr, flush=True))
            run = plan.train(iterations=3000, progress=progress)
            print(run.interrupted, 0 < run.iterations < 3000, run.checkpoint.exists())
            again = plan.train(iterations=1, start=run)
            print(again.iterations, again.losses[0] < run.losses[0])
        """)
        self.assertEqual(out, "True True True\n1 True\n")


class Installation(Case):
    def test_the_sources(self):
        for path in [*sorted((PACKAGE / "ffsearch").glob("*.py")), PACKAGE / "build_wheel.py"]:
            ast.parse(path.read_text(), feature_version=(3, 9))
        self.assertEqual(re.search(r"project\(ffsearch VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1],
                         ffsearch.__version__)
        self.assertEqual(sorted(ffsearch.__all__), ffsearch.__all__)

    def test_every_public_name_is_explained(self):
        """In its docstring, and on the page of the package."""
        page = (ROOT / "docs/python-reference.md").read_text()
        for name in ffsearch.__all__:
            value = getattr(ffsearch, name)
            self.assertTrue(value.__doc__, name)
            self.assertTrue(f"`{name}" in page, f"docs/python-reference.md has no `{name}`")
            if not isinstance(value, type):
                continue
            for field in getattr(value, "__dataclass_fields__", ()):
                if field not in ("raw", "text", "owner") or name == "Export":
                    self.assertIn(f"        {field}", value.__doc__, f"{name}.{field}")
            for member, function in vars(value).items():
                if not member.startswith("_") and (callable(function) or isinstance(function, (property, classmethod))):
                    documented = getattr(function, "__func__", function).__doc__
                    self.assertTrue(documented or member == "of", f"{name}.{member}")
                    if documented and name in ("Graph", "Topology", "Plan"):
                        self.assertTrue(re.search(rf"[`.]{member}\b", page),
                                        f"docs/python-reference.md has no {name}.{member}")

    def test_a_wheel(self):
        sys.path.insert(0, str(PACKAGE))
        import build_wheel
        wheel = zipfile.ZipFile(self.folder / build_wheel.build_wheel(self.folder))
        names = wheel.namelist()
        for path in (PACKAGE / "ffsearch").iterdir():
            if path.name != "__pycache__":
                self.assertIn(f"ffsearch/{path.name}", names)
        self.assertEqual(len(wheel.read("ffsearch-0.1.0.dist-info/RECORD").decode().splitlines()), len(names))
        self.assertTrue((self.folder / build_wheel.build_sdist(self.folder)).exists())

    def test_pip_without_a_network(self):
        if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
            self.skipTest("pip is not installed")
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--quiet", "--no-compile",
                               "--target", self.folder / "there", PACKAGE], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        code = "import ffsearch; print(ffsearch.__file__); print(len(ffsearch.Topology.detect(cpu_ranks=2).devices))"
        out = in_python(code, PYTHONPATH=str(self.folder / "there")).communicate()[0]
        self.assertEqual(out, f"{self.folder}/there/ffsearch/__init__.py\n2\n")


if __name__ == "__main__":
    if not shutil.which("mpirun"):
        print("skipped: no mpirun")
        sys.exit(77)
    unittest.main(verbosity=2)
