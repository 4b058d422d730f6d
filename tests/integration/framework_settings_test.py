#!/usr/bin/python3
"""Settings of training frameworks: plans for them, their arguments and files written and read (ffsearch export, plan
--for, simulate --megatron and --torchtitan), and strategy files that keep them.
Usage: framework_settings_test.py BUILD_DIR"""

import json
import subprocess
import unittest

from settings_case import BUILD, ROOT, SettingsCase


class FrameworkSettings(SettingsCase):
    def exported_exactly(self, settings, framework):
        note = self.simulate(settings)["note"]
        found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for", framework,
                                        "--cost", "analytic", "--json"))
        self.assertEqual(found["settings"], note)
        self.assertTrue(found["exact"], found["not_there"])
        return found

    def test_export_gives_settings_back(self):
        self.make_graph("llama")
        for settings, framework, expected in (
                ("tp=2,pp=2,micro_batch=2", "megatron", "--pipeline-model-parallel-size 2"),
                ("pp=2,vp=2,micro_batch=1", "megatron", "--num-layers-per-virtual-pipeline-stage 1"),
                ("tp=4,sharding=optimizer,recompute=full", "megatron", "--use-distributed-optimizer"),
                ("pp=4,micro_batch=1,sharding=parameters", "torchtitan", "data_parallel_shard_degree = 2"),
                ("tp=2,cp=2,micro_batch=2", "megatron", "--context-parallel-size 2"),
                ("pp=2,cp=4,sharding=parameters", "torchtitan", "context_parallel_degree = 4"),
                ("tp=2,sharding=parameters,recompute=full", "torchtitan", 'mode = "full"'),
                ("tp=1,micro_batch=1,sharding=gradients", "deepspeed", '"stage": 2')):
            with self.subTest(settings=settings, framework=framework):
                found = self.exported_exactly(settings, framework)
                self.assertIn(expected, found["text"])
                self.assertEqual(found["settings_predicted_us"], found["predicted_us"])

    def test_export_lists_what_a_framework_does_not_say(self):
        self.make_graph("llama")
        for settings, framework, expected in (
                ("pp=2,vp=2,micro_batch=1,layers=1:1:2:0", "deepspeed", ["pp=2", "layers=1:1:2:0", "vp=2"]),
                ("tp=1,micro_batch=1,sharding=optimizer,launch_blocking=on,framework=deepspeed", "deepspeed",
                 ["launch_blocking=on: an environment variable"]),
                ("tp=2,micro_batch=1,sharding=optimizer,launch_blocking=on,framework=megatron", "megatron",
                 ["launch_blocking=on: an environment variable"]),
                ("pp=2,cp=2,micro_batch=1", "torchtitan", ["sharding: torchtitan shards parameters"]),
                ("tp=2,micro_batch=2", "torchtitan", ["sharding: torchtitan's replicas (DDP) go with no other"]),
                ("tp=2,pp=2,micro_batch=2,recompute=norms", "megatron",
                 ["recompute=norms: Megatron-LM's norms are part of the product"]),
                ("micro_batch=1,sharding=parameters,recompute=full,recompute_layers=2", "torchtitan",
                 ["recompute_layers=2: torchtitan computes as many layers of a stage again, but layer 2 of every 2"]),
                ("micro_batch=1,sharding=parameters,recompute=full,recompute_layers=3", "torchtitan",
                 ["recompute_layers=3: torchtitan computes all layers again, none, or every so many"])):
            with self.subTest(settings=settings, framework=framework):
                self.simulate(settings)
                found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for",
                                                framework, "--cost", "analytic", "--json"))
                self.assertEqual(len(found["not_there"]), len(expected), found["not_there"])
                for one, start in zip(found["not_there"], expected):
                    self.assertTrue(one.startswith(start), one)
        self.simulate("tp=1,micro_batch=1,sharding=optimizer", topology="topologies/dgx-a100-1.json")
        text = self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for", "deepspeed", "--cost",
                            "analytic", "--precision", "bf16")
        config = json.loads(text[:text.index("\nsettings")])
        self.assertEqual(config["bf16"], {"enabled": True})
        self.assertEqual(config["zero_optimization"], {"stage": 1, "overlap_comm": True})

    def test_frameworks_in_fp32_are_noted(self):
        self.make_graph("llama")
        for out in ((), ("--out", "s.json")):
            done = subprocess.run(
                (BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json",
                 "--settings", "tp=2,framework=megatron", "--cost", "analytic", *out), cwd=self.work,
                capture_output=True, text=True)
            self.assertIn("its conventions are those of training in bf16; times and memory in fp32", done.stderr)
            self.assertEqual(done.stderr.count("note: s.json: predicted at"), 1 if out else 0)

    def test_frameworks_arguments_are_read_back(self):
        """Settings, as the framework's arguments, as settings again."""
        self.make_graph("llama", batch=32)
        for settings, framework in (
                ("tp=2,pp=2,micro_batch=2,sharding=optimizer", "megatron"),
                ("pp=2,vp=2,micro_batch=1,recompute=full", "megatron"),
                ("pp=2,micro_batch=2,layers=1:3,recompute=full,recompute_layers=1", "megatron"),
                ("pp=4,micro_batch=2,layers=0:2:2:0", "megatron"),
                ("pp=2,micro_batch=2,layers=0:4", "megatron"),
                ("tp=4,pp=2,micro_batch=4", "megatron"),
                ("tp=2,pp=2,micro_batch=2,sharding=parameters", "megatron"),
                ("tp=2,pp=2,cp=2,micro_batch=4,sharding=optimizer", "megatron"),
                ("tp=2,cp=2,micro_batch=2,sharding=parameters", "torchtitan"),
                ("tp=1,micro_batch=2,sharding=parameters,recompute=full", "torchtitan"),
                ("tp=2,pp=2,vp=2,micro_batch=1,sharding=parameters", "torchtitan"),
                ("tp=2,micro_batch=2,sharding=parameters,recompute=selective", "torchtitan"),
                ("pp=4,micro_batch=2,sharding=parameters", "torchtitan"),
                ("pp=2,micro_batch=2,sharding=parameters,layers=1:3", "torchtitan"),
                ("pp=2,vp=2,micro_batch=1,sharding=parameters,layers=1:1:2:0", "torchtitan")):
            with self.subTest(settings=settings, framework=framework):
                found = self.exported_exactly(settings, framework)
                (self.work / "run.toml").write_text(found["text"])
                arguments = ("--megatron", found["text"]) if framework == "megatron" else ("--torchtitan", "run.toml")
                again = json.loads(self.program(
                    BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo", ROOT / "topologies/p100-2x4.json",
                    *arguments, "--cost", "analytic", "--precision", "fp32", "--json"))
                conventions = "megatron" if framework == "megatron" else "fsdp"
                self.assertEqual(again["note"], f"{found['settings']},framework={conventions}")

    def test_plans_for_a_framework_follow_its_conventions(self):
        self.make_graph("llama", batch=32)
        plan = ("plan", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json", "--optimizer", "adamw",
                "--top", 2, "--json")
        def settings(*flags):
            found = json.loads(self.program(BUILD / "ffsearch", *plan, *flags))
            return [one["settings"] for one in found["plans"]]
        for framework, conventions in (("megatron", "megatron"), ("torchtitan", "fsdp"), ("deepspeed", "deepspeed")):
            for one in settings("--precision", "bf16", "--for", framework):
                self.assertIn(f",framework={conventions}", one)
        for flags in (("--precision", "bf16"), ("--for", "megatron"),
                      ("--precision", "bf16", "--for", "megatron", "--settings", "framework=none")):
            for one in settings(*flags):
                self.assertNotIn("framework", one)

    def test_plans_for_a_framework_take_its_settings(self):
        """--for implies the framework of what --settings pin."""
        self.make_graph("llama", batch=32)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-h100", "--out", "t.json")
        plan = (BUILD / "ffsearch", "plan", "--graph", "g.json", "--topo", "t.json", "--optimizer", "adamw", "--top", 1)
        for framework, settings in (
                ("megatron", "reduce=bf16"), ("megatron", "launch_blocking=on"), ("megatron", "fp8=on"),
                ("megatron", "sharding=optimizer,overlap_grad_reduce=on,overlap_param_gather=on"),
                ("megatron", "tp=2,tp_comm_overlap=on"), ("megatron", "norm_fusion=off"),
                ("megatron", "tp=2,sequence_parallel=off"), ("torchtitan", "compile=off"),
                ("torchtitan", "early_stop=off,recompute=full"), ("torchtitan", "shard_group=2,sharding=parameters"),
                ("deepspeed", "reduce=f32")):
            for precision in ("bf16", "fp32"):
                if precision == "fp32" and "fp8" in settings:
                    continue
                with self.subTest(framework=framework, settings=settings, precision=precision):
                    found = json.loads(self.program(*plan, "--precision", precision, "--for", framework, "--settings",
                                                    settings, "--json"))["plans"][0]["settings"].split(",")
                    self.assertIn("framework=" + ("fsdp" if framework == "torchtitan" else framework), found)
                    for setting in settings.split(","):
                        self.assertIn(setting, found)
        for settings, message in (
                ("recompute=elementwise", "recompute=elementwise: is for framework=none, no setting of megatron"),
                ("framework=none,reduce=bf16", "reduce: says in which type"), ("tpp=2", 'unknown key "tpp"')):
            error = self.program(*plan, "--precision", "bf16", "--for", "megatron", "--settings", settings, code=1)
            self.assertTrue(error.startswith(f"ffsearch: --settings: {message}"), error)

    def test_exported_plans_come_back_with_their_predictions(self):
        """Five plans for each framework, by `export` of a strategy file and by `plan --for`: the text alone gives the
        same settings, precision, predicted time and memory."""
        self.make_graph("llama", batch=32)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-h100", "--nodes", 1, "--out", "t.json")
        on = ("--graph", "g.json", "--topo", "t.json", "--cost", "analytic", "--json")
        plans = {
            "megatron": (("tp=2,pp=2,micro_batch=2,sharding=optimizer", "bf16"),
                         ("pp=2,vp=2,micro_batch=1,recompute=full", "fp32"),
                         ("pp=2,micro_batch=2,layers=1:3,recompute=full,recompute_layers=1", "bf16"),
                         ("tp=4,micro_batch=4,overlap_grad_reduce=off", "bf16"),
                         ("tp=2,pp=2,micro_batch=2,sharding=gradients", "bf16"),
                         ("tp=2,pp=2,cp=2,micro_batch=4,sharding=optimizer", "fp32")),
            "torchtitan": (("tp=2,cp=2,micro_batch=2,sharding=parameters", "bf16"),
                           ("tp=1,micro_batch=2,sharding=parameters,recompute=full", "fp32"),
                           ("tp=2,pp=2,vp=2,micro_batch=1,sharding=parameters", "bf16"),
                           ("pp=4,micro_batch=2,sharding=parameters", "bf16"),
                           ("tp=2,micro_batch=2,sharding=parameters,recompute=selective", "bf16"),
                           ("tp=4,micro_batch=4,sharding=parameters", "fp32"))}
        # Which kernels there are is not in a strategy file, but plans say it.
        more = {"megatron": (("tp=2,sequence_parallel=off,micro_batch=2", "bf16"),
                             ("tp=2,pp=2,micro_batch=1,attention=stored,recompute=selective,loss=fused", "bf16"),
                             ("tp=2,attention=stored,micro_batch=4,loss=fused", "fp32"),
                             ("tp=2,pp=2,micro_batch=2,sharding=optimizer,reduce=bf16", "bf16"),
                             ("tp=2,micro_batch=2,sharding=optimizer,overlap_grad_reduce=on,overlap_param_gather=on",
                              "bf16"),
                             ("tp=4,micro_batch=4,tp_comm_overlap=on", "bf16"),
                             ("tp=2,pp=2,micro_batch=2,fp8=on", "bf16"),
                             ("tp=2,micro_batch=2,sharding=optimizer,fp8=weights", "bf16"),
                             ("tp=2,micro_batch=2,sharding=optimizer,shard_group=2", "bf16"),
                             ("tp=1,cp=2,micro_batch=2,sharding=parameters,shard_group=4", "bf16"),
                             ("tp=2,micro_batch=2,rope_fusion=off,swiglu_fusion=off", "bf16"),
                             ("tp=2,micro_batch=2,attention=flash2", "bf16"),
                             ("tp=2,micro_batch=2,attention=cudnn,tp_grad_overlap=off,sequence_parallel=off", "bf16")),
                "torchtitan": (("tp=2,micro_batch=2,sharding=parameters,shard_group=2", "bf16"),
                               ("tp=1,cp=2,micro_batch=2,sharding=parameters,shard_group=4", "fp32"))}
        for framework, conventions in (("megatron", "megatron"), ("torchtitan", "fsdp")):
            for settings, precision in plans[framework] + more[framework]:
                flags = ("--precision", precision, "--optimizer", "adamw")
                given = json.loads(self.program(BUILD / "ffsearch", "simulate", *on, *flags, "--settings",
                                                f"{settings},framework={conventions}"))
                note = given["note"]
                if "overlap_grad_reduce" not in note:  # plan chooses it where it is not given
                    by_default = "on" if ",pp=1," in note and conventions == "fsdp" else "off"
                    note += f",overlap_grad_reduce={by_default}"
                texts = [json.loads(self.program(BUILD / "ffsearch", "plan", *on, *flags, "--settings", note, "--for",
                                                 framework))]
                if (settings, precision) in plans[framework]:
                    self.program(BUILD / "ffsearch", "simulate", *on, *flags, "--settings", settings, "--out", "s.json")
                    texts.append(json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for",
                                                         framework, "--cost", "analytic", "--json")))
                for exported in texts:
                    with self.subTest(settings=settings, framework=framework, text=exported["text"]):
                        self.assertEqual(exported["not_there"], [])
                        (self.work / "run.toml").write_text(exported["text"])
                        arguments = (("--megatron", exported["text"]) if framework == "megatron" else
                                     ("--torchtitan", "run.toml"))
                        again = json.loads(self.program(BUILD / "ffsearch", "simulate", *on, *arguments))
                        for key in ("note", "precision", "predicted_us", "memory_bytes"):
                            self.assertEqual(again[key], given[key], key)

    def test_megatron_arguments(self):
        self.make_graph("llama")

        def simulate(arguments, code=0):
            return self.program(BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                                ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--json", "--megatron",
                                arguments, code=code)
        found = json.loads(simulate("--tensor-model-parallel-size=2 --pipeline-model-parallel-size 2 --bf16 "
                                    "--num-layers 4 --hidden-size 32 --seq-length 16 --sequence-parallel "
                                    "--micro-batch-size 2 \\\n"
                                    "--lr 1e-4 --swiglu --use-distributed-optimizer --global-batch-size 32"))
        self.assertEqual(found["note"], "tp=2,pp=2,vp=1,dp=2,micro_batch=2,sharding=optimizer,recompute=none,"
                                        "framework=megatron")
        self.assertEqual(found["micro_batches"], 8)
        self.assertEqual(found["precision"], "bf16")
        self.assertEqual(found["ignored_arguments"], ["--lr", "--swiglu"])
        found = json.loads(simulate("--bf16 --recompute-granularity selective --recompute-modules layernorm"))
        self.assertIn(",recompute=none,", found["note"])
        memory = {}
        for momentum in ("", "--sgd-momentum 0", "--sgd-momentum 0.9"):
            found = json.loads(simulate(f"--bf16 --optimizer sgd {momentum}"))
            memory[momentum] = max(found["memory_bytes"])
            self.assertNotIn("ignored_arguments", found)
        self.assertEqual(memory[""], memory["--sgd-momentum 0.9"])  # Megatron-LM's default
        self.assertEqual(memory["--sgd-momentum 0.9"], max(json.loads(self.program(
            BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json",
            "--cost", "analytic", "--json", "--megatron", "--bf16", "--momentum", 0.9))["memory_bytes"]))
        self.assertGreater(memory["--sgd-momentum 0.9"], memory["--sgd-momentum 0"])
        self.assertEqual(json.loads(simulate("--sgd-momentum 0.9"))["ignored_arguments"], ["--sgd-momentum"])
        for arguments, message in (
                ("--tensor-model-paralel-size 2", 'unknown flag "--tensor-model-paralel-size"; did you mean '
                                                  '"--tensor-model-parallel-size"?'),
                ("--flux 2", 'unknown flag "--flux"; understood are --account-for-embedding-in-'),
                ("--tensor-model-parallel-size", "found 0 values, expected 1"),
                ("--tensor-model-parallel-size two", 'found "two", expected a whole number from 1'),
                ("tp 2", 'found "tp", expected a flag'),
                ("--optimizer sgd --sgd-momentum much", 'found "much", expected a number from 0 to 1'),
                ("--num-layers 5", '--num-layers 5: the graph "llama" has 4 layers'),
                ("--context-parallel-size 3", "tp x cp x pp = 3 does not divide the 8 devices"),
                ("--expert-model-parallel-size 2", 'ep=2: the graph "llama" has no experts'),
                ("--recompute-num-layers 2", "need --recompute-granularity full"),
                ("--recompute-modules layernorm", "--recompute-modules needs --recompute-granularity selective"),
                ("--recompute-granularity selective --recompute-modules mlp", "expected core_attn or layernorm"),
                ("--recompute-granularity selective --recompute-modules core_attn layernorm",
                 'found "core_attn layernorm", expected core_attn or layernorm'),
                ("--num-attention-heads 5", '--num-attention-heads 5: the graph "llama" has 4 heads'),
                ("--num-query-groups 3", "key-value heads"), ("--kv-channels 3", "channels of a head"),
                ("--ffn-hidden-size 5", "channels in its MLP"), ("--vocab-size 100000", "words"),
                ("--num-experts 8 --moe-router-topk 2", '--num-experts 8: the graph "llama" has none'),
                ("--bf16 --fp16", "--bf16 and --fp16 exclude each other"),
                ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 12",
                 "vp=2: framework=megatron has rounds of as many micro-batches as stages, and pp=2 does not divide "
                 "the 3 micro-batches"),
                ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2",
                 "leaves 2 layers to 3 stages"),
                ("--num-virtual-stages-per-pipeline-rank 2", "needs --pipeline-model-parallel-size above 1"),
                ("--attention-backend flux", 'found "flux", expected one of auto, flash, fused, unfused, local'),
                ("--data-parallel-sharding-strategy optim", "needs --use-megatron-fsdp"),
                ("--expert-tensor-parallel-size 2", 'etp=2: the graph "llama" has no experts'),
                ("--num-distributed-optimizer-instances 2", "needs --use-distributed-optimizer or --use-megatron-fsdp"),
                ("--use-distributed-optimizer --num-distributed-optimizer-instances 3",
                 "does not divide the 8 ranks that share parameters"),
                ("--outer-dp-sharding-strategy optim", 'found "optim", expected no_shard')):
            with self.subTest(arguments=arguments):
                error = simulate(arguments, code=1)
                self.assertIn(message, error)
                self.assertEqual(error.count("--megatron: "), 1, error)

    def test_torchtitan_file(self):
        self.make_graph("llama")

        def simulate(text, code=0):
            (self.work / "run.toml").write_text(text)
            return self.program(BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                                ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--json", "--torchtitan",
                                "run.toml", code=code)
        found = json.loads(simulate("[model]\nname = \"llama3\"\n[training]  # of all\nlocal_batch_size = 2\n"
                                    "[parallelism]\ndata_parallel_shard_degree = -1\n"))
        self.assertEqual(found["note"], "tp=1,pp=1,vp=1,dp=8,micro_batch=2,sharding=parameters,recompute=full,"
                                        "recompute_layers=2,early_stop=off,compile=off,framework=fsdp")
        self.assertEqual(found["ignored_arguments"], ["model.name"])
        self.assertIn("run.toml: parallelism.tensor_paralel_degree: is not understood; did you mean "
                      '"tensor_parallel_degree"?', simulate("[parallelism]\ntensor_paralel_degree = 2\n", code=1))
        self.assertEqual(json.loads(simulate("[parallelism]\ndisable_loss_parallel = false\n"))["ignored_arguments"],
                         ["parallelism.disable_loss_parallel"])
        for stop, ends in (("", ",early_stop=off"), ("early_stop = false\n", ",early_stop=off"),
                           ("early_stop = true\n", "")):
            found = json.loads(simulate("[activation_checkpoint]\nmode = \"full\"\n" + stop))
            self.assertIn(f",recompute=full{ends},compile=off,framework=fsdp", found["note"])
        # FSDP has the ranks of context parallelism in its group.
        context = "[parallelism]\ncontext_parallel_degree = 2\ndata_parallel_shard_degree = 1\n"
        found = json.loads(simulate(context + "data_parallel_replicate_degree = 4\n"))
        self.assertIn(",cp=2,sharding=parameters,shard_group=2,", found["note"])
        for text in ("[compile]\nenable = true\n", "[training]\ncompile = true\n"):
            self.assertNotIn("compile", json.loads(simulate(text))["note"])
        for text, message in (
                ("[activation_checkpoint]\nmode = \"full\"\nearly_stop = 1\n", 'found "1", expected true, false'),
                ("[compile]\nenable = yes\n", 'compile.enable: found "yes", expected true, false'),
                ("[training]\n\x01\x02 = 1\n", "run.toml: line 2: is no text, expected key = value"),
                ("{a: 1} = 2\n", "run.toml: line 1: found \"{a: 1} = 2\", expected key = value"),
                ("[training]\nseq_len = 9\n", 'training.seq_len: 9: the graph "llama" has 16 tokens in a sample'),
                ("[training]\nlocal_batch_size\n",
                 "run.toml: line 2: found \"local_batch_size\", expected key = value"),
                ("[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 2\n",
                 "replicas x shards = 4, the devices make 8"),
                ("[activation_checkpoint]\nmode = \"some\"\n", 'found "some", expected none, selective, full'),
                ("[activation_checkpoint]\nselective_ac_option = \"some\"\n",
                 'selective_ac_option, if it is not "op": found "some", expected a whole number from 1'),
                ("[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_first_stage_less_layers = 3\n",
                 "4 layers, and 3 and 1 for the embedding and the output, leave 2 to each of the 4 chunks"),
                ("[parallelism]\npipeline_parallel_degree = 2\n"
                 "module_fqns_per_model_part = [[\"layers.0\"],\n[\"x\"]]\n",
                 'module_fqns_per_model_part: chunk 1 has "x"'),
                ("[parallelism]\npipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [[\"layers.0\"],\n",
                 'run.toml: line 3: "module_fqns_per_model_part" is a list without an end'),
                ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"ZBVZeroBubble\"\n",
                 "expected 1F1B, Interleaved1F1B")):
            with self.subTest(text=text):
                self.assertIn(message, simulate(text, code=1))

        stages = "[parallelism]\npipeline_parallel_degree = 2\n"
        for more, expected in (
                ("", "pp=2,vp=1,"),
                ("pipeline_parallel_first_stage_less_layers = 0\n", ",layers=3:1,"),  # of five, the output being one
                ('module_fqns_per_model_part = [["tok_embeddings", "layers.0"],  # few\n  ["layers.1",\n'
                 '"layers.2", "layers.3", "norm", "output"]]\n', ",layers=1:3,"),
                ('pipeline_parallel_schedule = "Interleaved1F1B"\n', "pp=2,vp=2,"),
                ('[activation_checkpoint]\nselective_ac_option = "op"\n', ",recompute=selective,"),
                ('[activation_checkpoint]\nselective_ac_option = "1"\n', ",recompute=full,early_stop=off,"),
                ('[activation_checkpoint]\nselective_ac_option = "3"\n', ",recompute=none,"),
                ('[activation_checkpoint]\nmode = "none"\n', ",recompute=none,")):
            with self.subTest(more=more):
                self.assertIn(expected, json.loads(simulate(stages + more))["note"])

        self.assertIn(".: cannot be read",
                      self.program(BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo",
                                   ROOT / "topologies/dgx-a100-1.json", "--torchtitan", ".", code=1))

    def test_context_parallelism_of_megatron_is_said(self):
        """Its exchange is that of the prediction, and its parts divide the length."""
        self.make_graph("llama")
        on = ("--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--precision",
              "bf16")
        text = self.program(BUILD / "ffsearch", "plan", *on, "--for", "megatron", "--settings", "cp=2,tp=2", "--top", 1)
        self.assertIn("--context-parallel-size 2\n--cp-comm-type all_gather\n", text)
        for flag, note in (("--cp-comm-type all_gather", None),
                           ("--cp-comm-type p2p", "--cp-comm-type p2p is predicted as all_gather"),
                           ("", "--cp-comm-type p2p, the default, is predicted as all_gather")):
            done = subprocess.run([BUILD / "ffsearch", "simulate", *on, "--megatron",
                                   "--context-parallel-size 2 " + flag], cwd=self.work, capture_output=True, text=True,
                                  check=True)
            self.assertEqual("predicted as all_gather" in done.stderr, note is not None)
            self.assertIn(note or "", done.stderr)
        wide = (*on[:2], "--topo", ROOT / "topologies/dgx-a100-2.json", *on[4:])
        for framework in ("megatron", "fsdp"):
            self.assertIn(f"framework={framework} has 32 equal parts of a sample, which do not divide the 16 positions",
                          self.program(BUILD / "ffsearch", "simulate", *wide, "--settings",
                                       f"tp=4,cp=4,framework={framework}", code=1))

    def test_export_predicts_with_the_precision_of_the_strategy(self):
        self.make_graph("llama")
        self.simulate("tp=2,micro_batch=2", "--precision", "bf16", topology="topologies/dgx-a100-1.json")
        found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "s.json", "--for", "torchtitan",
                                        "--cost", "analytic", "--json"))
        self.assertEqual(found["settings_predicted_us"], found["predicted_us"])

    def test_export_says_what_settings_cannot(self):
        self.make_graph("gpt2")
        self.simulate("tp=2,pp=2,micro_batch=2,sharding=gradients")
        self.program(BUILD / "ffsearch", "edit", "--strategy", "s.json", "layer1.attention: sample 4 on 0-3", "--cost",
                     "analytic", "--out", "t.json")
        found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "t.json", "--for", "megatron",
                                        "--cost", "analytic", "--json"))
        self.assertFalse(found["exact"])
        self.assertIn("layer1.attention", " ".join(found["not_there"]))
        self.assertIn("--data-parallel-sharding-strategy optim_grads\n", found["text"])
        self.assertNotEqual(found["settings_predicted_us"], found["predicted_us"])
        found = json.loads(self.program(BUILD / "ffsearch", "export", "--strategy", "t.json", "--for", "torchtitan",
                                        "--cost", "analytic", "--json"))
        self.assertIn("sharding=gradients", " ".join(found["not_there"]))
        self.program(BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo",
                     ROOT / "topologies/p100-1x4.json", "--cost", "analytic", "--algorithm", "data-parallel", "--out",
                     "l.json")
        error = self.program(BUILD / "ffsearch", "export", "--strategy", "l.json", "--for", "megatron", "--cost",
                             "analytic", code=1)
        self.assertIn("l.json: the graph \"lenet\" has no multi_head_attention", error)

    def test_plans_of_frameworks_are_saved_with_an_order_for_ffexec(self):
        """Whose two devices exchange by transfers, a framework's by collectives."""
        self.make_graph("gpt2", batch=8)
        for settings in ("tp=2,pp=2,micro_batch=1,framework=megatron", "tp=2,micro_batch=2,framework=fsdp"):
            with self.subTest(settings=settings):
                self.simulate(settings, topology="topologies/local-cpu-4.json")
                done = subprocess.run([BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost", "analytic"],
                                      cwd=self.work, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("; predicted here as ffexec runs it", done.stderr)
                self.assertNotIn("issue order", done.stderr)
                self.assertEqual(json.loads((self.work / "s.json").read_text())["schedule"], "1f1b")

    def test_files_of_plans_for_frameworks_keep_the_settings(self):
        """The file is predicted as ffexec runs it; export has the framework's settings and prediction."""
        self.make_graph("gpt2", batch=32)
        self.program(BUILD / "ffsearch", "topology", "--preset", "dgx-a100-80gb", "--nodes", 1, "--out", "t.json")
        on = ("--graph", "g.json", "--topo", "t.json", "--cost", "analytic", "--json", "--precision", "bf16",
              "--optimizer", "adamw")
        of_file = ("--strategy", "s.json", "--cost", "analytic", "--json")
        for settings, framework in (
                ("tp=1,micro_batch=4,sharding=optimizer,framework=megatron,overlap_grad_reduce=on,"
                 "overlap_param_gather=on", "megatron"),
                ("tp=2,micro_batch=2,sharding=optimizer,reduce=bf16,loss=fused,framework=megatron", "megatron"),
                ("tp=1,cp=2,micro_batch=2,sharding=parameters,framework=fsdp", "torchtitan")):
            with self.subTest(settings=settings):
                found = json.loads(self.program(BUILD / "ffsearch", "simulate", *on, "--settings", settings, "--out",
                                                "s.json"))
                exported = json.loads(self.program(BUILD / "ffsearch", "export", *of_file, "--for", framework))
                self.assertEqual(exported["settings"], found["note"])
                self.assertEqual(exported["settings_predicted_us"], found["predicted_us"])
                self.assertEqual(exported["not_there"], [])
                written = json.loads((self.work / "s.json").read_text())["provenance"]
                again = json.loads(self.program(BUILD / "ffsearch", "simulate", *of_file))
                self.assertEqual(written["settings"], found["note"])
                self.assertEqual(written["predicted_us"], again["predicted_us"])
                self.assertNotEqual(again["predicted_us"], found["predicted_us"])
                # Of another framework, and once edited, it is what the plan itself says.
                other = json.loads(self.program(BUILD / "ffsearch", "export", *of_file, "--for", "deepspeed"))
                self.assertNotIn("framework", other["settings"])
                file = json.loads((self.work / "s.json").read_text())
                file["configurations"][0]["devices"] = file["configurations"][0]["devices"].replace("0-7", "7-0")
                (self.work / "s.json").write_text(json.dumps(file))
                edited = json.loads(self.program(BUILD / "ffsearch", "export", *of_file, "--for", framework))
                self.assertNotIn("framework", edited["settings"])

    def test_frameworks_follow_their_conventions(self):
        self.make_graph("llama", batch=16384)
        times = {}
        for settings in ("tp=1", "tp=1,framework=fsdp", "tp=1,attention=stored"):
            found = json.loads(self.program(
                BUILD / "ffsearch", "simulate", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json",
                "--settings", settings, "--precision", "bf16", "--cost", "analytic", "--json"))
            times[settings] = found["compute_us"]
            for setting in settings.split(","):
                self.assertIn(setting, found["note"].split(","))
        self.assertGreater(times["tp=1,framework=fsdp"], times["tp=1"])
        self.assertGreater(times["tp=1,attention=stored"], times["tp=1"])

    def test_reports_predict_what_simulate_does(self):
        self.make_graph("llama", batch=32)
        for settings in ("pp=2,micro_batch=1,sharding=parameters,framework=fsdp",
                         "tp=2,micro_batch=1,sharding=parameters,framework=fsdp",
                         "tp=2,pp=2,micro_batch=1,framework=deepspeed"):
            on = ("simulate", "--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json", "--settings",
                  settings, "--precision", "bf16", "--cost", "analytic", "--json")
            found, reported = (json.loads(self.program(BUILD / "ffsearch", *on, *report))
                               for report in ((), ("--html", "report.html")))
            with self.subTest(settings=settings):
                self.assertEqual(found["predicted_us"], reported["predicted_us"])
                self.assertEqual(found["memory_bytes"], reported["memory_bytes"])

    def test_layouts_of_pipelines_are_written_and_read(self):
        self.make_graph("llama", batch=32, num_hidden_layers=6)
        on = ("--graph", "g.json", "--topo", ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--precision",
              "bf16", "--optimizer", "adamw", "--json")
        for settings, layout in (("pp=2,vp=2,layers=2:1:2:1", "Et*2|t|t*2|t,L"),
                                 ("pp=4,layers=1:1:2:2", "Et|t|t*2|t*2,L"),
                                 ("pp=4,layers=0:3:3:0", "E|t*3|t*3|L"),
                                 ("pp=2,vp=2,layers=0:2:3:1", "E|t*2|t*3|t,L")):
            settings = f"{settings},micro_batch=2,framework=megatron,overlap_grad_reduce=off"
            planned = json.loads(self.program(BUILD / "ffsearch", "plan", *on, "--settings", settings, "--for",
                                              "megatron"))
            self.assertIn(f"--pipeline-model-parallel-layout '{layout}'\n", planned["text"])
            self.assertEqual(planned["not_there"], [])
            read = json.loads(self.program(BUILD / "ffsearch", "simulate", *on, "--megatron", planned["text"]))
            self.assertEqual(read["note"], planned["plans"][0]["settings"])
            self.assertEqual(read["predicted_us"], planned["plans"][0]["predicted_us"])
        stages = "--pipeline-model-parallel-size 2 --micro-batch-size 2 --pipeline-model-parallel-layout"
        for arguments, message in (
                (f"{stages} Et*2|t,L", 'has 3 layers, the graph "llama" 6'),
                (f"{stages} Et*2|t*2|t*2,L", "has 3 parts, which the 2 stages do not divide"),
                (f"{stages} Et*2|t*4", "the loss, L, is not what the last stage ends with"),
                (f"{stages} Et*2|t*4,L --num-virtual-stages-per-pipeline-rank 2", "exclude each other"),
                ("--micro-batch-size 2 --pipeline-model-parallel-layout Et*2|t*4,L", "needs several stages")):
            with self.subTest(arguments=arguments):
                error = self.program(BUILD / "ffsearch", "simulate", *on, "--megatron", arguments, code=1)
                self.assertIn(message, error)
                self.assertEqual(error.count("\n"), 1, error)


if __name__ == "__main__":
    unittest.main(verbosity=2)
