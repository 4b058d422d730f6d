#!/usr/bin/python3
"""Plans by settings (ffsearch simulate --settings): what they mean for transformers, that ffexec trains them with the
losses of one device, and what is refused.
Usage: settings_test.py BUILD_DIR"""

import csv
import fnmatch
import json
import re
import subprocess
import sys
import time
import unittest
import zipfile

from settings_case import BUILD, FAMILIES, ROOT, SettingsCase


class Settings(SettingsCase):
    def test_every_family_is_split_as_the_settings_say(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                self.make_graph(family)
                found = self.simulate("tp=2,pp=2,micro_batch=2")
                self.assertEqual(found["note"], "tp=2,pp=2,vp=1,dp=2,micro_batch=2,sharding=none,recompute=none")
                self.assertEqual(found["micro_batches"], 4)
                graph = json.loads((self.work / "g.json").read_text())
                plan = self.configurations(graph)
                attention = [op["name"] for op in graph["operators"] if op["type"] == "multi_head_attention"]
                self.assertEqual([plan[name]["devices"] for name in attention], [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2)
                for name in attention:
                    self.assertEqual(plan[name]["degrees"], {"sample": 2, "head": 2})
                loss = next(op["name"] for op in graph["operators"] if "cross_entropy" in op["type"])
                self.assertEqual(plan[loss]["devices"], [4, 5, 6, 7])
                again = json.loads(self.program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost",
                                                "analytic", "--json"))
                self.assertEqual(again["predicted_us"], found["predicted_us"])

    def configurations(self, graph):
        """By operator: degrees above 1 and devices."""
        explained = json.loads(self.program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost",
                                            "analytic", "--out", "t.json", "--json"))
        self.assertGreater(explained["predicted_us"], 0)
        plan = json.loads((self.work / "t.json").read_text())["configurations"]
        found = {}
        for entry in plan if isinstance(plan, list) else plan.items():
            names, configuration = (entry["operators"], entry) if isinstance(entry, dict) else entry
            for op in graph["operators"]:
                if op["name"] not in found and fits(op["name"], names):
                    found[op["name"]] = {"degrees": {key: degree for key, degree in configuration["degrees"].items()
                                                     if degree > 1},
                                         "devices": numbers(configuration["devices"])}
        return found

    def test_interleaved_chunks(self):
        self.make_graph("llama")
        self.simulate("pp=2,vp=2,micro_batch=1")
        graph = json.loads((self.work / "g.json").read_text())
        plan = self.configurations(graph)
        attention = [op["name"] for op in graph["operators"] if op["type"] == "multi_head_attention"]
        self.assertEqual([plan[name]["devices"] for name in attention], [[0, 1, 2, 3], [4, 5, 6, 7]] * 2)

    def test_embedding_and_loss_count_as_layers(self):
        """Chunks in which the first and the last one have a layer less, as Megatron-LM's arguments, and back."""
        self.make_graph("llama", batch=32, num_hidden_layers=6)
        both = "--account-for-embedding-in-pipeline-split\n--account-for-loss-in-pipeline-split\n"
        for settings, expected in (("pp=2,vp=2,micro_batch=2", "--num-layers-per-virtual-pipeline-stage 2\n"),
                                   ("pp=4,micro_batch=4", "--pipeline-model-parallel-size 4\n")):
            with self.subTest(settings=settings):
                note = self.simulate(settings)["note"]
                found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for",
                                                "megatron", "--cost", "analytic", "--json"))
                self.assertEqual(found["not_there"], [])
                self.assertIn(both, found["text"])
                self.assertIn(expected, found["text"])
                again = json.loads(self.program(
                    BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo", ROOT / "topologies/p100-2x4.json",
                    "--megatron", found["text"], "--cost", "analytic", "--precision", "fp32", "--json"))
                self.assertEqual(again["note"], f"{note},framework=megatron")
        self.make_graph("llama", batch=32, num_hidden_layers=7)
        note = self.simulate("pp=4,micro_batch=4,layers=1:2:2:2")["note"]
        found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for", "megatron",
                                        "--cost", "analytic", "--json"))
        self.assertIn("--account-for-embedding-in-pipeline-split", found["text"])
        self.assertNotIn("--account-for-loss-in-pipeline-split", found["text"])
        for arguments, message in (
                ("--pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split "
                 "--account-for-embedding-in-pipeline-split", "9 layers, with embedding or loss, are not divided by 4"),
                ("--account-for-embedding-in-pipeline-split --pipeline-model-parallel-size 4 "
                 "--num-layers-per-virtual-pipeline-stage 3",
                 "the 8 layers, with embedding or loss, are not divisible")):
            with self.subTest(arguments=arguments):
                error = self.program(BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                                     ROOT / "topologies/p100-2x4.json", "--cost", "analytic", "--megatron", arguments,
                                     code=1)
                self.assertIn(message, error)

    def test_parameter_servers_instead_of_reductions_after_backward(self):
        self.make_graph("llama", batch=32)
        self.assertFalse(self.simulate("pp=2,micro_batch=2")["overlap_grad_reduce"])
        simulate = (BUILD / "ffsearch", "simulate", "--cost", "analytic", "--json", "--strategy")
        self.program(*simulate, "s.json", "--synchronization", "parameter-server", "--out", "t.json")
        self.assertTrue(json.loads(self.program(*simulate, "t.json"))["overlap_grad_reduce"])

    def test_what_is_not_possible_after_a_search_is_an_answer(self):
        self.make_graph("llama", batch=32)
        plan = (BUILD / "ffsearch", "plan", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json",
                "--settings", "dp=8", "--top", 1)
        text = self.program(*plan, "--what-if", "batch 13", "--what-if", "memory x2", "--out", "s.json")
        self.assertIn("what if batch 13: none of the first plans is possible: ", text)
        self.assertIn("what if memory x2: the first plan takes", text)
        self.assertIn("written to s.json", text)
        for flags, message in ((("--what-if", "batch many"), "found \"many\""),
                               (("--why", "tpp"), "is none of the settings that a search compares; did you mean"),
                               (("--why", "tp=x"), "found \"x\", expected a number"),
                               (("--why", "tp=2,pp=2"), "expected a setting, or one of its values"),
                               (("--why", "sharding=zero1"), "expected one of none, optimizer, gradients")):
            begin = time.monotonic()
            self.assertIn(message, self.program(*plan, *flags, "--out", "t.json", code=1))
            self.assertLess(time.monotonic() - begin, 5)
        self.assertFalse((self.work / "t.json").exists())
        for settings, message in (("layers=2:2,pp=4", "layers: found numbers for 2 chunks"),
                                  ("vp=12,pp=4", "pp x vp = 48")):
            error = self.program(*plan[:-4], "--settings", settings, code=1)
            self.assertIn("no settings are possible: ", error)
            self.assertIn(message, error)

    def test_plan_chooses_context_parallelism(self):
        """One long sample and more devices than its heads: the length is split, and that is faster than stages."""
        (self.work / "config.json").write_text(json.dumps(
            {"model_type": "llama", "vocab_size": 32000, "num_hidden_layers": 4, "hidden_size": 1024,
             "num_attention_heads": 8, "intermediate_size": 4096, "max_position_embeddings": 65536}))
        self.program(BUILD / "ffsearch", "import", "config.json", "--sequence", 65536, "--batch", 1, "--out", "g.json")
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 2, "--out", "t.json",
                     "--quiet")
        flags = ("--graph", "g.json", "--topo", "t.json", "--cost", "analytic", "--precision", "bf16", "--optimizer",
                 "adamw", "--json")

        def planned(settings):
            found = json.loads(self.program(BUILD / "ffsearch", "plan", *flags, "--settings", settings, "--top", 1))
            return found["plans"][0]
        best, stages = planned("framework=megatron"), planned("framework=megatron,cp=1")
        self.assertRegex(best["settings"], r",cp=16,")
        self.assertNotIn("cp=", stages["settings"])
        self.assertLess(best["predicted_us"], stages["predicted_us"])
        again = json.loads(self.program(BUILD / "ffsearch", "simulate", *flags, "--settings", best["settings"]))
        self.assertEqual(again["predicted_us"], best["predicted_us"])

    def test_embedding_and_loss_train_in_chunks_of_their_own(self):
        for kind in ("gpt2", "llama"):
            self.make_graph(kind)
            self.simulate("micro_batch=16", topology="topologies/local-cpu-1.json")
            flags = ("--iterations", 3, "--lr", 0.01, "--json")
            expected = json.loads(self.program("mpirun", "-n", 1, BUILD / "ffexec", "--strategy", "s.json", *flags))
            for settings in ("pp=4,micro_batch=4,layers=0:2:2:0", "tp=2,pp=2,micro_batch=4,layers=0:4",
                             "pp=2,vp=2,micro_batch=2,layers=0:2:2:0,recompute=full",
                             "pp=4,micro_batch=4,layers=2:1:1:0,sharding=optimizer"):
                with self.subTest(kind=kind, settings=settings):
                    found = self.simulate(settings, topology="topologies/local-cpu-4.json")
                    trained = json.loads(self.program("mpirun", "-n", 4, BUILD / "ffexec", "--strategy", "s.json",
                                                      *flags))
                    self.assertEqual(trained["memory_bytes"], found["memory_bytes"])
                    for ours, theirs in zip(trained["losses"], expected["losses"], strict=True):
                        self.assertAlmostEqual(ours, theirs, delta=2e-4 * abs(theirs))

    def test_experts(self):
        (self.work / "config.json").write_text(json.dumps(
            {"model_type": "mixtral", "vocab_size": 96, "num_hidden_layers": 2, "hidden_size": 32,
             "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "num_local_experts": 4}))
        self.program(BUILD / "ffsearch", "import", "config.json", "--sequence", 16, "--batch", 8, "--out", "g.json")
        one = self.simulate("tp=1,micro_batch=8", topology="topologies/local-cpu-1.json")
        flags = ("--iterations", 3, "--lr", 0.01, "--json")
        expected = json.loads(self.program("mpirun", "-n", 1, BUILD / "ffexec", "--strategy", "s.json", *flags))
        for settings in ("ep=4,micro_batch=1", "tp=2,ep=2,micro_batch=2", "pp=2,ep=2,micro_batch=1,recompute=full",
                         "tp=2,micro_batch=2,ep=2,etp=1", "tp=2,micro_batch=2,ep=4,etp=1",
                         "tp=4,micro_batch=4,ep=2,etp=2", "tp=2,micro_batch=2,etp=1",
                         "tp=4,micro_batch=4,ep=2,etp=1", "micro_batch=2,cp=2,ep=4",
                         "tp=2,micro_batch=4,cp=2,ep=2,etp=2", "tp=2,micro_batch=4,cp=2,ep=4,etp=1"):
            with self.subTest(settings=settings):
                found = self.simulate(settings, topology="topologies/local-cpu-4.json")
                for setting in settings.split(","):
                    self.assertIn(setting, found["note"])
                self.assertLess(max(found["memory_bytes"]), max(one["memory_bytes"]))
                trained = json.loads(self.program("mpirun", "-n", 4, BUILD / "ffexec", "--strategy", "s.json", *flags))
                self.assertEqual(trained["memory_bytes"], found["memory_bytes"])
                for ours, theirs in zip(trained["losses"], expected["losses"], strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=2e-4 * abs(theirs))
                exported = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for",
                                                   "megatron", "--cost", "analytic", "--json"))
                self.assertEqual(exported["settings"], found["note"])
        for settings, message in (("ep=3", "ep=3 does not divide the 4 experts of operator"),
                                  ("ep=8", "ep=8 does not divide the 4 experts of operator"),
                                  ("tp=4,ep=4,etp=3", "etp=3 does not divide tp=4"),
                                  ("tp=4,ep=4", "ep=4,etp=4: 16 devices would have all experts")):
            self.assertIn(message, self.simulate(settings, code=1))
        for graph, settings, message in (
                ("g.json", "ep=3", 'ep=3 does not divide the 4 experts of the graph "mixtral"'),
                ("g.json", "tp=2,etp=3", "etp=3 does not divide tp=2"),
                ("g.json", "framework=fsdp,sharding=parameters,shard_group=3",
                 "and shard_group=3 the ranks that have the same parameters"),
                (ROOT / "graphs/gpt2-small.json", "etp=1", 'etp: the graph "gpt2-small" has no experts')):
            error = self.program(BUILD / "ffsearch", "plan", "--graph", graph, "--topo",
                                 ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--settings", settings,
                                 code=1)
            self.assertIn(message, error)
        found = json.loads(self.program(BUILD / "ffsearch", "plan", "--graph", "g.json", "--topo",
                                        ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--settings",
                                        "etp=1,tp=2", "--json", "--top", 3))
        for plan in found["plans"]:
            self.assertRegex(plan["settings"], "tp=2,.*(etp=1|sharding)")
            self.assertNotIn("etp=2", plan["settings"])
        on = ("--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--json")
        for framework, text, settings in (
                ("--megatron", "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
                               "--expert-tensor-parallel-size 1 --sequence-parallel", "ep=4,etp=1"),
                ("--megatron", "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 --sequence-parallel",
                 "ep=4,etp=2"),
                ("--megatron", "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 --sequence-parallel",
                 "etp=1"),
                ("--torchtitan", "tensor_parallel_degree = 2\nexpert_parallel_degree = 4\n", "ep=4,etp=1"),
                ("--torchtitan", "tensor_parallel_degree = 2\nexpert_parallel_degree = 4\n"
                                 "expert_tensor_parallel_degree = 2\n", "ep=4,etp=2")):
            if framework == "--torchtitan":
                (self.work / "run.toml").write_text(f"[training]\nlocal_batch_size = 1\n[parallelism]\n{text}")
                text = "run.toml"
            found = json.loads(self.program(BUILD / "ffsearch", "simulate", *on, framework, text))
            self.assertIn(f",{settings},sharding", found["note"])
            exported = json.loads(self.program(BUILD / "ffsearch", "plan", *on, "--settings", found["note"], "--for",
                                               framework.strip("-")))
            self.assertIn(("--expert-tensor-parallel-size " if framework == "--megatron" else
                           "expert_tensor_parallel_degree = ") + settings[-1], exported["text"])

    def test_context_parallelism(self):
        self.make_graph("mistral")
        found = self.simulate("tp=2,cp=2,micro_batch=2")
        self.assertEqual(found["note"], "tp=2,pp=1,vp=1,dp=2,micro_batch=2,cp=2,sharding=none,recompute=none")
        graph = json.loads((self.work / "g.json").read_text())
        plan = self.configurations(graph)
        expected = {"multi_head_attention": {"sample": 2, "length": 2, "head": 2},
                    "rms_norm": {"sample": 2, "length": 4}}
        for op in graph["operators"]:
            if op["name"] in plan and op["type"] in expected:
                with self.subTest(operator=op["name"]):
                    self.assertEqual(plan[op["name"]]["devices"], list(range(8)))  # tp varies fastest, then cp
                    self.assertEqual(plan[op["name"]]["degrees"], expected[op["type"]])
        self.assertIn("layer4.attention", plan)
        for settings in ("cp=32,dp=1", "cp=32"):
            self.assertIn("tp x cp x pp = 32 does not divide the 8 devices", self.simulate(settings, code=1))
        one = self.simulate("cp=1,micro_batch=2,tp=2,framework=megatron")
        two = self.simulate("cp=2,micro_batch=2,tp=2,framework=megatron")
        self.assertLess(max(two["memory_bytes"]), max(one["memory_bytes"]))
        (self.work / "config.json").write_text(json.dumps(
            {"model_type": "llama", "vocab_size": 96, **FAMILIES["llama"]}))
        self.program(BUILD / "ffsearch", "import", "config.json", "--sequence", 4, "--batch", 8, "--out", "g.json")
        self.assertIn("has only 4 positions", self.simulate("cp=8", code=1))

    def test_ffexec_trains_them(self):
        self.make_graph("gpt2", batch=8)
        one = self.simulate("tp=1", topology="topologies/local-cpu-1.json")
        self.assertEqual(one["micro_batches"], 1)
        flags = ("--iterations", 3, "--lr", 0.01, "--json")
        expected = json.loads(self.program("mpirun", "-n", 1, BUILD / "ffexec", "--strategy", "s.json", *flags))
        for settings in ("tp=2,pp=2,micro_batch=2,recompute=full", "pp=2,micro_batch=1,sharding=parameters",
                         "tp=2,sharding=gradients,micro_batch=2", "pp=2,vp=2,micro_batch=1,sharding=optimizer",
                         "cp=4,micro_batch=4", "tp=2,cp=2,micro_batch=2,recompute=full",
                         "pp=2,cp=2,micro_batch=2,sharding=parameters",
                         "stage_dp=2:1:1,micro_batch=1", "stage_dp=1:1:2,micro_batch=2,recompute=full,layers=0:3:1",
                         "stage_dp=1:2:1,micro_batch=1,sharding=parameters"):
            with self.subTest(settings=settings):
                found = self.simulate(settings, topology="topologies/local-cpu-4.json")
                trained = json.loads(self.program("mpirun", "-n", 4, BUILD / "ffexec", "--strategy", "s.json", *flags))
                self.assertEqual(trained["memory_bytes"], found["memory_bytes"])
                for ours, theirs in zip(trained["losses"], expected["losses"], strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=2e-4 * abs(theirs))

    def test_stages_of_different_width(self):
        self.make_graph("gpt2")
        found = self.simulate("stage_dp=2:1,tp=2,micro_batch=2", topology="topologies/k80-1x4.json", code=1)
        self.assertIn("stage_dp=2:1: with 2 devices a group these are 6 devices, the topology has 4", found)
        found = self.simulate("stage_dp=4:2:2,micro_batch=2,sharding=optimizer")
        self.assertIn("pp=3,vp=1,dp=4,micro_batch=2,stage_dp=4:2:2", found["note"])
        again = json.loads(self.program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost", "analytic",
                                        "--json"))
        self.assertEqual(again["predicted_us"], found["predicted_us"])
        exported = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for", "megatron",
                                           "--cost", "analytic", "--json"))
        self.assertIn("pp=2,vp=1,dp=4", exported["settings"])
        self.assertIn("stage_dp=4:2:2: the stages of a framework have equally many devices", exported["not_there"])
        on = ("--graph", "g.json", "--topo", ROOT / "topologies/p100-2x4.json", "--cost", "analytic")
        plans = json.loads(self.program(BUILD / "ffsearch", "plan", *on, "--settings", "stage_dp=2:1:1", "--json"))
        self.assertIn("tp=2,pp=3,vp=1,dp=2,", plans["plans"][0]["settings"])
        error = self.program(BUILD / "ffsearch", "plan", *on, "--settings", "stage_dp=2:1:1", "--for", "megatron",
                             code=1)
        self.assertIn("--for megatron: its stages have equally many devices", error)
        error = self.program(BUILD / "ffsearch", "plan", *on, "--settings", "framework=fsdp", "--for", "megatron",
                             code=1)
        self.assertIn("--for megatron: --settings has framework=fsdp, whose plans are for another framework", error)
        explained = self.program(BUILD / "ffsearch", "explain", "--graph", "g.json", "--topo",
                                 ROOT / "topologies/p100-2x4.json", "--settings", "stage_dp=1:1:4:2,micro_batch=2",
                                 "--cost", "analytic")
        self.assertIn("without stage_dp", explained)

    def test_memory_of_settings_is_that_of_their_file(self):
        """With one micro-batch too, transfers have buffers on demand where preallocated ones do not fit."""
        self.make_graph("llama", batch=64)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 1, "--out", "t.json")
        on = ("--graph", "g.json", "--topo", "t.json", "--cost", "analytic", "--json", "--settings",
              "tp=2,micro_batch=16,sharding=gradients")
        before = json.loads(self.program(BUILD / "ffsearch", "simulate", *on))
        file = json.loads((self.work / "t.json").read_text())
        for model in file["device_models"].values():
            model["memory_bytes"] = max(before["memory_bytes"]) - 1
        (self.work / "t.json").write_text(json.dumps(file))
        small = json.loads(self.program(BUILD / "ffsearch", "simulate", *on))
        self.assertLess(max(small["memory_bytes"]), max(before["memory_bytes"]))
        written = json.loads(self.program(BUILD / "ffsearch", "simulate", *on, "--out", "s.json"))
        self.assertEqual(small["memory_bytes"], written["memory_bytes"])

    def test_large_plans_are_saved_and_read_from_some_of_their_devices(self):
        self.make_graph("llama", batch=4096)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 4, "--out", "t.json",
                     "--quiet")
        # 16 micro-batches of 56 operators on 32 devices have 28,672 parts, 256 ones 458,752.
        for micro_batch, some in ((16, False), (1, True)):
            settings = f"tp=2,pp=1,micro_batch={micro_batch},sharding=optimizer"
            predicted = self.simulate(settings, topology=self.work / "t.json")
            written = json.loads((self.work / "s.json").read_text())
            self.assertEqual(written["schedule"], "1f1b")
            self.assertNotIn("issue_order", written)
            self.assertEqual(written["provenance"]["predicted_us"], predicted["predicted_us"])
            again = json.loads(self.program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--out",
                                            "again.json", "--cost", "analytic", "--json"))
            for found in (predicted, again):
                self.assertEqual("simulated_devices" in found, some)
            for key in ("predicted_us", "memory_bytes", "collectives", "compute_us", "fits_memory"):
                self.assertEqual(again[key], predicted[key], key)
            rewritten = json.loads((self.work / "again.json").read_text())
            for key in ("configurations", "schedule", "sharding", "micro_batches"):
                self.assertEqual(rewritten[key], written[key])
            exported = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for",
                                               "megatron", "--cost", "analytic", "--json"))
            self.assertTrue(exported["exact"])
            self.assertEqual([exported[key] for key in ("predicted_us", "settings_predicted_us")],
                             [predicted["predicted_us"]] * 2)

    def explained(self, *words):
        return json.loads(self.program(BUILD / "ffsearch", *words, "--cost", "analytic", "--json"))

    def test_settings_are_explained_from_some_devices_as_from_all(self):
        self.make_graph("llama", batch=64)
        for settings in ("tp=2,pp=2,micro_batch=1", "tp=4,pp=2,vp=2,micro_batch=2,sharding=optimizer",
                         "tp=2,pp=1,micro_batch=2,sharding=optimizer,recompute=full",
                         "tp=2,cp=2,pp=2,micro_batch=2,sharding=optimizer,framework=megatron"):
            predicted = self.simulate(settings, topology="topologies/dgx-a100-2.json")
            found = self.explained("explain", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-2.json",
                                   "--settings", settings, "--what-if", "batch 128", "--what-if", "memory x0.5")
            self.assertLess(found["simulated_devices"], 16)
            self.assertEqual(found["predicted_us"], predicted["predicted_us"])
            self.assertAlmostEqual(sum(found["critical_path"]["kinds"].values()), found["predicted_us"], places=2)
            self.assertEqual(sum(found["memory"]["kinds"].values()), found["memory"]["bytes"])
            self.assertGreaterEqual(min(found["memory"]["kinds"].values()), 0)
            if "framework" in settings:  # files do not keep its conventions
                continue
            of_all = self.explained("explain", "--strategy", "s.json")
            self.assertEqual(found["memory"]["kinds"], of_all["memory"]["kinds"])
            self.assertEqual(found["memory"]["bytes"], of_all["memory"]["bytes"])
            self.assertEqual(found["predicted_us"], of_all["predicted_us"])
            self.assertEqual(found["critical_path"]["kinds"], of_all["critical_path"]["kinds"])
            self.assertGreater(len(found["changed_settings"]), 5)
            for changed in found["changed_settings"]:
                again = self.simulate(changed["settings"], topology="topologies/dgx-a100-2.json")
                self.assertAlmostEqual(changed["predicted_us"] / again["predicted_us"], 1, delta=0.002)
                self.assertAlmostEqual(changed["change_us"], changed["predicted_us"] - found["predicted_us"], places=2)
            twice = self.simulate(settings, "--batch", 128, topology="topologies/dgx-a100-2.json")
            self.assertAlmostEqual(found["what_if"][0]["predicted_us"] / twice["predicted_us"], 1, delta=0.002)
            self.assertAlmostEqual(found["what_if"][1]["memory_share"],
                                   2 * found["memory"]["bytes"] / found["memory"]["capacity_bytes"], places=6)
        text = self.program(BUILD / "ffsearch", "explain", "--graph", "g.json", "--topo",
                            ROOT / "topologies/dgx-a100-2.json", "--settings", settings, "--limit", 3)
        self.assertIn(" of 16 devices; the others do the same as one of these\n", text)
        self.assertIn(" more settings (--limit)\n", text)

    def test_large_plans_are_explained_and_compared_by_their_settings(self):
        self.make_graph("llama", batch=32768)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 4, "--out", "t.json",
                     "--quiet")
        plans = {"a": "tp=2,pp=2,micro_batch=1,sharding=optimizer", "b": "tp=4,pp=2,micro_batch=2,sharding=none"}
        for name, settings in plans.items():
            self.simulate(settings, topology=self.work / "t.json")
            (self.work / "s.json").rename(self.work / (name + ".json"))
        found = self.explained("explain", "--strategy", "a.json")
        self.assertEqual(found["settings"], "tp=2,pp=2,vp=1,dp=8,micro_batch=1,sharding=optimizer,recompute=none")
        self.assertEqual(len(found["stages"]), 2)
        self.assertNotIn("decisions", found)
        self.assertIn("explained_micro_batches", found)  # of 4,096
        part = self.explained("explain", "--strategy", "a.json", "--micro-batches", 8)
        self.assertEqual(part["explained_micro_batches"], 8)
        self.assertEqual(part["predicted_us"], found["predicted_us"])
        difference = self.explained("diff", "a.json", "b.json")
        self.assertEqual([one["setting"] for one in difference["differences"]],
                         ["micro_batch=2", "sharding=none", "tp=4"])
        for one in difference["differences"]:
            again = self.simulate(one["settings"], topology=self.work / "t.json")
            self.assertAlmostEqual(one["predicted_us"] / again["predicted_us"], 1, delta=0.002)
        self.assertEqual(self.explained("diff", "a.json", "a.json")["differences"], [])

    def test_traces_of_large_plans_have_the_simulated_devices(self):
        self.make_graph("llama", batch=4096)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 4, "--out", "t.json",
                     "--quiet")
        settings = "tp=2,pp=2,micro_batch=2,sharding=optimizer"
        predicted = self.simulate(settings, "--trace", "trace.json", topology=self.work / "t.json")
        events = json.loads((self.work / "trace.json").read_text())["traceEvents"]
        rows = {event["tid"]: event["args"]["name"] for event in events
                if event["name"] == "thread_name" and event["pid"] == 0}
        computing = {event["tid"] for event in events if event["ph"] == "X" and event["pid"] == 0}
        self.assertEqual(set(rows), computing)
        self.assertEqual(len(rows), predicted["simulated_devices"])
        stands_for = [re.search(r" and (\d+) that do the same$", name) for name in rows.values()]
        self.assertEqual(sum(1 + (int(found[1]) if found else 0) for found in stands_for), 32)
        end = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
        self.assertAlmostEqual(end, predicted["predicted_us"], delta=1)

    def test_searches_for_large_plans_simulate_some_of_their_devices(self):
        found = json.loads(self.program(BUILD / "ffsearch", "--graph", ROOT / "graphs/gpt-1.7b.json", "--topo",
                                        ROOT / "topologies/dgx-a100-8.json", "--batch", 512, "--micro-batches", 8,
                                        "--precision", "bf16", "--cost", "analytic", "--out", "s.json", "--json"))
        self.assertLess(found["simulated_devices"], 64)
        self.assertIn("no chains", found["note"])
        again = json.loads(self.program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost", "analytic",
                                        "--json"))
        self.assertEqual(again["predicted_us"], found["predicted_us"])

    def test_equal_groups_are_simulated_once(self):
        self.make_graph("llama", batch=64)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 4, "--out", "t.json",
                     "--quiet")
        command = (BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo", "t.json", "--settings",
                   "tp=2,pp=2,micro_batch=2,sharding=gradients", "--cost", "analytic", "--json")
        once = json.loads(self.program(*command))
        self.assertEqual(once["simulated_devices"], 4)
        every = json.loads(self.program(*command, "--trace", "trace.json"))
        self.assertNotIn("simulated_devices", every)
        for key in ("predicted_us", "memory_bytes", "transfer_bytes", "synchronization_bytes", "compute_us", "costs",
                    "fits_memory"):
            self.assertEqual(once[key], every[key], key)

    def test_further_micro_batches_repeat_the_first_ones(self):
        self.make_graph("llama", batch=64)
        for settings, devices in (("tp=1,pp=1,micro_batch=1,sharding=optimizer", 1),
                                  ("tp=2,pp=2,micro_batch=1,sharding=optimizer", 4),
                                  ("tp=1,pp=2,micro_batch=1,framework=megatron", 2),
                                  ("tp=2,cp=2,micro_batch=1,framework=megatron", 2),
                                  ("tp=2,pp=2,micro_batch=1,framework=megatron,sharding=optimizer", 4),
                                  ("tp=2,pp=1,micro_batch=1,recompute=full,framework=deepspeed", 2),
                                  ("tp=2,pp=1,micro_batch=1,sharding=parameters,framework=fsdp", 2)):
            command = (BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                       ROOT / "topologies/dgx-a100-1.json", "--settings", settings, "--cost", "analytic", "--json")
            few = json.loads(self.program(*command))
            every = json.loads(self.program(*command, "--trace", "trace.json"))
            self.assertEqual(few["simulated_devices"], devices, settings)
            self.assertLess(few["simulated_micro_batches"], few["micro_batches"])
            self.assertNotIn("simulated_micro_batches", every)
            self.assertIsNone(few["predicted_fifo_us"])
            for key in ("predicted_us", "transfer_bytes", "synchronization_bytes", "compute_us", "collectives", "costs",
                        "fits_memory", "micro_batches", "baselines"):
                self.assertEqual(few[key], every[key], (settings, key))
            for of_few, of_all in zip(few["memory_bytes"], every["memory_bytes"]):
                self.assertLess(abs(of_few / of_all - 1), 0.025, settings)  # other gaps between buffers

    def test_precision_of_settings_is_that_of_the_plan(self):
        self.make_graph("gpt2")
        on = ("--topo", ROOT / "topologies/dgx-a100-1.json")
        found = self.simulate("tp=2,precision=bf16", topology="topologies/dgx-a100-1.json")
        self.assertEqual(found["precision"], "bf16")
        self.assertEqual(self.simulate("tp=2", *("--precision", "bf16"), topology="topologies/dgx-a100-1.json"), found)
        self.program(BUILD / "ffsearch", "plan", "--graph", "g.json", *on, "--settings", "precision=bf16", "--top", 1,
                     "--out", "p.json")
        self.assertEqual(json.loads((self.work / "p.json").read_text())["precision"], "bf16")
        self.assertEqual(self.program(BUILD / "ffsearch", "plan", "--graph", "g.json", *on, "--settings",
                                      "precision=fp8", code=1),
                         'ffsearch: --settings: precision: found "fp8", expected one of fp32, tf32, bf16\n')

    def test_device_models_follow_from_the_microbenchmarks(self):
        self.program(sys.executable, ROOT / "scripts/device_models.py", "--check")

    def test_score(self):
        """Rows made by hand: one that runs, one of a longer pipeline, one that the settings cannot say."""
        run = {"source_file": "own.csv", "gpu": "A100 SXM", "gpu_mem_gb": 80, "gpus": 8, "framework": "Megatron",
               "model": "m", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "gated_mlp": 1,
               "vocab": 512, "seq": 128, "gbs": 64, "mbs": 1, "tp": 2, "pp": 2, "vp": 1, "cp": 1, "zero": 1,
               "recompute": "none", "attention": "flash", "precision": "bf16", "status": "ok", "step_time_s": 1,
               "usable_untuned": "yes", "internode_gbps_per_node": "", "ep": "", "tokens_per_s_per_gpu": "",
               "peak_mem_gb": "", "experts": "", "experts_per_token": "", "etp": "", "launch_blocking": ""}
        rows = ({"id": "a", "framework": "FSDP", "gated_mlp": 0, "mbs": 2, "tp": 1, "pp": 1, "zero": 3,
                 "recompute": "full", "step_time_s": 0.01, "peak_mem_gb": 1},
                {"id": "b", "step_time_s": "", "tokens_per_s_per_gpu": 1000},
                {"id": "c", "ep": 2}, {"id": "d", "usable_untuned": "no"},
                {"id": "e", "ep": 4, "experts": 4, "experts_per_token": 2, "etp": 1},
                {"id": "f", "launch_blocking": "on"})
        with open(self.work / "runs.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("id", *run))
            writer.writeheader()
            writer.writerows({**run, **row} for row in rows)
        text = self.program(sys.executable, ROOT / "scripts/score.py", BUILD / "ffsearch", "runs.csv", "--json",
                            "o.json")
        self.assertIn("6 rows, 5 usable, 4 predicted", text)
        self.assertIn("left out: 1 rows: ep above 1", text)
        found = json.loads((self.work / "o.json").read_text(encoding="utf-8"))
        self.assertEqual([one["id"] for one in found["rows"] if "predicted_s" in one],
                         ["a", "b", "e", "f"])
        line = found["summary"]["own.csv A100"]
        errors = [one["predicted_s"] / one["measured_s"] - 1 for one in found["rows"] if "predicted_s" in one]
        self.assertAlmostEqual(line["bias"], sum(errors) / 4)
        self.assertGreater(found["rows"][-1]["predicted_s"], 1.2 * found["rows"][1]["predicted_s"])  # blocking
        self.assertAlmostEqual(found["rows"][1]["measured_s"], 64 * 128 / 1000 / 8)

        # A row that cannot be read is left out, and says why; others are spelled in other ways.
        rows = ({"id": "a", "layers": "four"}, {"id": "b", "gpu": ""}, {"id": "c", "gpu": "H100 PCIe"},
                {"id": "d", "gpu": "A100-SXM4-80GB", "status": "OK", "zero": "ZeRO-1", "precision": "BF16"},
                {"id": "e", "step_time_s": "?"}, {"id": "f", "recompute": "off", "zero": "none"},
                {"id": "g", "gpus": "0"}, {"id": "h", "zero": "3 over x"}, {"id": "i", "step_time_s": "-2"},
                {"id": "j", "gbs": "64.0", "gated_mlp": "yes", "usable_untuned": " yes"},
                {"id": "k", "framework": ""}, {"id": "l", "framework": "own", "zero": "hybrid", "status": "failed"},
                {"id": "m", "step_time_s": "1", "tokens_per_s_per_gpu": "1", "status": ""},
                {"id": "n", "gbs": "63", "mbs": "8"})
        with open(self.work / "runs.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("id", *run))
            writer.writeheader()
            writer.writerows({**run, **row} for row in rows)
        score = (sys.executable, ROOT / "scripts/score.py", BUILD / "ffsearch", "runs.csv", "--rows")
        text = self.program(*score)
        self.assertIn("14 rows, 14 usable, 5 predicted", text)
        self.assertIn("fits or not: 4 rows, 4 ran", text)  # a failure is neither
        for name, reason in (("a", "layers is 'four', not a number"), ("b", "no preset of 'no GPU'"),
                             ("c", "no preset of 'H100 PCIe'"), ("e", "step_time_s is '?', not a number"),
                             ("g", "gpus is '0', not a whole number from 1"), ("h", "zero is 'x', not a number"),
                             ("i", "step_time_s is '-2', below 0 or not finite"), ("k", "framework is not stated"),
                             ("n", "--settings: ")):
            self.assertIn(f"\n{name}: left out: {reason}", "\n" + text)
            self.assertIn(f"left out: 1 rows: {reason}", text)
        self.assertIn("note: 1 rows: framework 'own' is taken as FSDP\n", text)
        self.assertRegex(text, r"note: 1 rows: tokens_per_s_per_gpu makes \S+ s, step_time_s is 1 s, which is compared")
        (self.work / "runs.csv").write_text("id,gpu\n1,A100\n", encoding="utf-8")
        done = subprocess.run(score, cwd=self.work, capture_output=True, text=True)
        self.assertIn("runs.csv: has no column source_file, gpu_mem_gb", done.stderr)
        self.assertEqual(done.returncode, 1)
        done = subprocess.run((*score[:-2], "nothing.csv"), cwd=self.work, capture_output=True, text=True)
        self.assertIn("nothing.csv: cannot be read", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_fp32_on_devices_that_are_faster_in_bf16_is_said(self):
        self.make_graph("llama")
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 1, "--out", "t.json")
        flags = ("simulate", "--graph", "g.json", "--topo", "t.json", "--settings", "tp=2,micro_batch=1", "--cost",
                 "analytic")
        self.assertRegex(self.program(BUILD / "ffsearch", *flags),
                         r"precision +fp32: products at 19.5 TFLOP/s, in bf16 at 312\n")
        self.assertRegex(self.program(BUILD / "ffsearch", *flags, "--precision", "bf16"), r"precision +bf16\n")
        plan = ("plan", *flags[1:5], "--top", 1, "--settings", "tp=2")
        said = "precision            fp32: products at 19.5 TFLOP/s, in bf16 at 312 (--precision bf16)\n"
        self.assertIn(said, self.program(BUILD / "ffsearch", *plan))
        self.assertNotIn("precision  ", self.program(BUILD / "ffsearch", *plan, "--precision", "bf16"))

    def test_published_layouts_are_read(self):
        """A workbook as of Hagemann et al. 2023: a layout that ran, one without memory, one of other attention."""
        names = ("Trial ID", "World Size", "Average Step Time", "activation_checkpointing_type", "kernel",
                 "micro_batch_size", "model_parallel_size", "pipe_parallel_size")
        table = (("title",), names,
                 ("1", "64", "31.05", "disabled", "flash_attention2 + RMS kernel", "1", "1", "2"),
                 ("2", "64", "OOM Error", "every_layer", "flash_attentionv1.0.8", "8", "2", "1"),
                 ("3", "64", "50", "disabled", "torch", "1", "2", "2"))
        texts = [text for row in table for text in row]
        cells, number = "", 0
        for row in table:
            cells += "<row>"
            for _ in row:
                cells += f'<c r="A1" t="s"><v>{number}</v></c>'
                number += 1
            cells += "</row>"
        kind = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
        (self.work / "tables").mkdir()
        with zipfile.ZipFile(self.work / "tables/llama_13B_bfloat16_64_GPUs_all_runs.xlsx", "w") as book:
            book.writestr("xl/worksheets/sheet1.xml", f"<worksheet {kind}><sheetData>{cells}</sheetData></worksheet>")
            book.writestr("xl/sharedStrings.xml",
                          f"<sst {kind}>" + "".join(f"<si><t>{text}</t></si>" for text in texts) + "</sst>")
        self.program(sys.executable, ROOT / "scripts/published_layouts.py", "tables", "runs.csv")
        text = self.program(sys.executable, ROOT / "scripts/score.py", BUILD / "ffsearch", "runs.csv", "--json",
                            "o.json", "--only", "runs-1")
        self.assertIn("1 rows, 1 usable, 1 predicted", text)
        with open(self.work / "runs.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        columns = ("status", "usable_untuned", "stage_layers", "attention")
        self.assertEqual([tuple(row[column] for column in columns) for row in rows],
                         [("ok", "yes", "21:19", "flash2"), ("oom", "yes", "", "flash1"), ("ok", "no", "21:19", "")])
        self.assertEqual([row["recompute"] for row in rows], ["none", "full", "none"])
        found = json.loads((self.work / "o.json").read_text(encoding="utf-8"))["rows"][0]
        self.assertEqual(found["measured_s"], 31.05)
        self.assertGreater(found["predicted_s"], 20)
        self.assertLess(found["predicted_s"], 45)

    def test_what_cannot_be_is_one_message(self):
        self.make_graph("gpt2")
        for settings, message in (
                ("tp=3", "tp x pp = 3 does not divide the 8 devices"),
                ("pp=8", "pp x vp = 8: there are only 4 layers"),
                ("tp=8", "tp=8 does not divide the 4 heads of operator"),
                ("tp=2,dp=3", "dp=3: 8 devices and tp x pp = 2 make it 4"),
                ("micro_batch=3", "micro_batch=3 does not divide the 2 samples of each data-parallel group"),
                ("tp=2,sequence_parallel=off", "sequence_parallel=off with tp above 1"),
                ("cp=3", "tp x cp x pp = 3 does not divide the 8 devices"),
                ("cp=two", 'cp: found "two", expected a number'),
                ("cp=2,dp=8", "dp=8: 8 devices and tp x cp x pp = 2 make it 4"),
                ("ep=2", 'ep=2: the graph "gpt2" has no experts'),
                ("pp=2,layers=4", "layers: found numbers for 1 chunks, expected pp x vp = 2"),
                ("pp=2,layers=1:2", "layers: the numbers add up to 3, the model has 4 layers"),
                ("pp=4,layers=2:0:2:0", "layers: found 0 between other chunks"),
                ("recompute_layers=1", "recompute_layers: says how many layers of a chunk"),
                ("tpp=2", 'unknown key "tpp"; did you mean "tp"?'),
                ("tp", '"tp" is not KEY=VALUE'),
                ("tp=2,tp=4", '"tp" is given twice'),
                ("tp=x", 'tp: found "x", expected a number'),
                ("sharding=all", 'sharding: found "all", expected one of none, optimizer, gradients, parameters'),
                ("precision=fp16", 'precision: found "fp16", expected one of fp32, tf32, bf16'),
                ("loss=fused", "loss=fused: says that a framework has one kernel for the loss"),
                ("recompute=full,recompute_layers=5", "recompute_layers=5: no chunk has more than 4 layers"),
                ("pp=2,recompute=full,recompute_layers=3", "recompute_layers=3: no chunk has more than 2 layers"),
                ("recompute=some", 'found "some", expected one of none, norms, elementwise, selective, full'),
                ("recompute=norms,framework=fsdp", "recompute=norms: layers compute norms again with"),
                ("recompute=elementwise,framework=megatron", "recompute=elementwise: is for framework=none"),
                ("vp=2", "vp: chunks of layers need stages")):
            with self.subTest(settings=settings):
                error = self.simulate(settings, code=1)
                self.assertIn(message, error)
                self.assertEqual(error.count("--settings: "), 1, error)
        error = self.simulate("tp=2", graph=ROOT / "graphs/lenet.json", code=1)
        self.assertIn("has no multi_head_attention", error)
        self.make_graph("mistral")
        self.assertIn("tp=4 does not divide the 2 key-value heads of operator", self.simulate("tp=4", code=1))
        for flags, message in (
                (("--settings", ""), '--settings: found "", expected settings such as tp=8'),
                (("--megatron", ""), '--megatron: found "", expected arguments such as --tensor-model-parallel-size'),
                (("--torchtitan", ""), '--torchtitan: found "", expected a file name'),
                (("--settings", "tp=2", "--recompute", "full"), "--recompute: goes with --strategy; give recompute="),
                (("--settings", "tp=2", "--sharding", "optimizer"), "--sharding: goes with --strategy; give sharding="),
                (("--megatron", "--bf16", "--recompute", "none"), "--recompute: goes with --strategy; give it in")):
            with self.subTest(flags=flags):
                error = self.program(BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                                     ROOT / "topologies/p100-2x4.json", *flags, code=2)
                self.assertTrue(error.startswith(message), error)
        error = self.program(BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                             ROOT / "topologies/p100-2x4.json", "--settings", "tp=2,sharding=optimizer",
                             "--synchronization", "all-reduce", code=1)
        self.assertIn("--synchronization: the settings shard state", error)
        self.program(BUILD / "ffsearch", "simulate", "--json", code=2)


def fits(name, names):
    """Does a key or list of a strategy file's configurations name the operator?"""
    for pattern in names if isinstance(names, list) else [word.strip() for word in names.split(",")]:
        inside = re.search(r"\[([^\]]*)\]", pattern)
        if not inside:
            if fnmatch.fnmatch(name, pattern):
                return True
            continue
        rest = re.fullmatch(re.escape(pattern[:inside.start()]) + r"(\d+)" + re.escape(pattern[inside.end():]), name)
        if rest and int(rest[1]) in numbers([inside[1]]):
            return True
    return False


def numbers(ranges):
    """[0, 1, "4-7", "1-3:2"] as numbers (docs/formats.md, Ranges; without sums)."""
    found = []
    for one in ranges if isinstance(ranges, list) else [ranges]:
        for part in str(one).split(","):
            part, _, step = part.strip().partition(":")
            begin, _, end = part.partition("-")
            found.extend(range(int(begin), int(end or begin) + 1, int(step or 1)))
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
