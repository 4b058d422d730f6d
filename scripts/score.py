#!/usr/bin/env python3
"""Compares predictions of `ffsearch simulate --settings` with published training runs.

Usage: scripts/score.py FFSEARCH RUNS.csv [--json OUT] [--plot OUT.png] [--only TEXT] [--rows]
                        [--jobs N]

RUNS.csv has a run in each row: id, source_file, gpu, gpu_mem_gb, gpus, internode_gbps_per_node, framework, model,
layers, hidden, heads, kv_heads, ffn, gated_mlp, vocab, seq, gbs, mbs, tp, pp, vp, cp, zero, recompute, attention,
precision, status (ok, oom), step_time_s, tokens_per_s_per_gpu, peak_mem_gb, usable_untuned; and may have reduce,
overlap_grad_reduce, tp_comm_overlap, tp_grad_overlap, loss, compile, norm_fusion, rope_fusion and swiglu_fusion, which
take precedence over what is known of a framework; stage_layers (8:9:8: of each stage or chunk, else as even as can
be); of rows of Megatron-LM in fp8, fp8 (on; weights: they are in fp8, too); and of mixtures of experts, whose ffn is
that of an expert, experts, experts_per_token, ep, etp and head_dim.
Rows whose usable_untuned is neither "yes" nor says "score the best over them" are left out, and those that the
settings cannot say, which are counted by reason. mbs or vp "?", and with "score the best over them" what is empty of
mbs, vp and recompute: not published; predicted with what `ffsearch plan` finds to be the fastest. An empty gated_mlp is
that of the model's family (Llama, Mistral, Qwen, ...), an empty status "ok" where a time or a rate is stated, another
status than ok and oom neither. A framework of another name than those that are known is taken as FSDP, which is said.

Devices and network are `ffsearch topology --preset` with the row's network; nothing is fitted to the rows. A row
without a network rate has the preset's. Models are of the row's sizes: GPT-2 (without dropout), with a gated MLP Llama,
with grouped queries and no gated MLP StarCoder2 without biases, with experts Qwen 3's mixture.

Prints, for each source and GPU: errors of the time of a step (predicted over measured, less 1), Kendall's tau and
regret within groups of rows that differ in their settings alone, errors of memory, and which plans fit.
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading

UNKNOWN = "?"
SHARDING = {"": "none", "0": "none", "1": "optimizer", "2": "gradients", "3": "parameters"}
PRESETS = {"a100": "dgx-a100-80gb", "a800": "dgx-a800", "h100": "dgx-h100", "h800": "dgx-h800", "h200": "hgx-h200"}
REQUIRED = ("id", "source_file", "gpu", "gpu_mem_gb", "gpus", "framework", "model", "layers", "hidden", "heads", "ffn",
            "vocab", "seq", "gbs", "precision", "status", "usable_untuned")
YES, NO = ("1", "on", "yes", "true"), ("0", "off", "no", "false")
STATUSES = {"ok": "ok", "success": "ok", "ran": "ok", "fits": "ok", "oom": "oom", "out of memory": "oom"}
GATED_FAMILIES = ("llama", "mistral", "mixtral", "qwen", "gemma", "internlm", "baichuan", "deepseek", "olmo", "phi-3")
FSDP_NAMES = ("fsdp", "torchtitan", "pytorch", "automodel", "hsdp")

OF_ROWS = ("etp", "reduce", "overlap_grad_reduce", "tp_comm_overlap", "tp_grad_overlap", "loss", "compile",
           "norm_fusion", "rope_fusion", "swiglu_fusion", "launch_blocking")

# How a plot calls them; others by their file.
SOURCES = {"bigscience-bloom-a100": "BLOOM", "internevo-a100": "InternEvo", "llm-foundry-mpt-fsdp": "llm-foundry",
           "small-tables": "smaller tables"}


class NotSaid(Exception):
    """The settings cannot say what the row says."""


def normalised(row):
    """Without spaces around values, and what is one of some words in one spelling; a short row has empty values."""
    row = {key: (value or "").strip() for key, value in row.items() if key is not None}
    words = {key: row[key].lower() for key in ("zero", "sequence_parallel", "recompute", "precision", "status",
                                               "usable_untuned", "gated_mlp") if row.get(key)}
    if words.get("recompute") in (*NO, *YES):
        words["recompute"] = "none" if words["recompute"] in NO else "full"
    ran = row.get("step_time_s") or row.get("tokens_per_s_per_gpu")
    words["status"] = STATUSES.get(words.get("status", "ok" if ran else ""), "")
    return {**row, **words}


def number(row, key, default=None):
    """From 0; whole where it is written as such, or with nothing but zeros behind the point."""
    text = row.get(key, "")
    if text == "" and default is not None:
        return default
    if text == "":
        raise NotSaid(f"{key} is not stated")
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise NotSaid(f"{key} is {text!r}, not a number")
    if not 0 <= value < math.inf:
        raise NotSaid(f"{key} is {text!r}, below 0 or not finite")
    return int(value) if value == int(value) else value


def count(row, key, default=None):
    """A whole number from 1."""
    value = number(row, key, default)
    if not isinstance(value, int) or value < 1:
        raise NotSaid(f"{key} is {row.get(key)!r}, not a whole number from 1")
    return value


def has_gated_mlp(row):
    stated = row.get("gated_mlp", "")
    if stated not in ("", *YES, *NO):
        raise NotSaid(f"gated_mlp is {stated!r}, neither yes nor no")
    return stated in YES or (not stated and any(name in row["model"].lower() for name in GATED_FAMILIES))


def config_of(row):
    sizes = {"hidden": count(row, "hidden"), "layers": count(row, "layers"), "heads": count(row, "heads"),
             "ffn": count(row, "ffn"), "vocab": count(row, "vocab"), "seq": count(row, "seq")}
    if row.get("experts"):
        heads = count(row, "heads")
        return {"model_type": "qwen3_moe", "hidden_size": sizes["hidden"], "intermediate_size": sizes["ffn"],
                "moe_intermediate_size": sizes["ffn"], "num_experts": count(row, "experts"),
                "num_experts_per_tok": count(row, "experts_per_token"), "norm_topk_prob": True,
                "num_hidden_layers": sizes["layers"], "num_attention_heads": heads,
                "num_key_value_heads": count(row, "kv_heads", heads), "vocab_size": sizes["vocab"],
                "head_dim": count(row, "head_dim", sizes["hidden"] // heads),
                "max_position_embeddings": sizes["seq"], "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    if has_gated_mlp(row):
        return {"model_type": "llama", "hidden_size": sizes["hidden"], "intermediate_size": sizes["ffn"],
                "num_hidden_layers": sizes["layers"], "num_attention_heads": sizes["heads"],
                "num_key_value_heads": count(row, "kv_heads", sizes["heads"]), "vocab_size": sizes["vocab"],
                "max_position_embeddings": sizes["seq"], "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
                "attention_bias": "internevo" in row["source_file"]}  # bias=True of MHA in InternEvo's model
    if count(row, "kv_heads", sizes["heads"]) != sizes["heads"]:
        return {"model_type": "starcoder2", "hidden_size": sizes["hidden"], "intermediate_size": sizes["ffn"],
                "num_hidden_layers": sizes["layers"], "num_attention_heads": sizes["heads"],
                "num_key_value_heads": count(row, "kv_heads"), "vocab_size": sizes["vocab"],
                "max_position_embeddings": sizes["seq"], "tie_word_embeddings": False, "use_bias": False,
                "hidden_act": "relu"}
    return {"model_type": "gpt2", "n_embd": sizes["hidden"], "n_inner": sizes["ffn"], "n_layer": sizes["layers"],
            "n_head": sizes["heads"], "vocab_size": sizes["vocab"], "n_positions": sizes["seq"], "resid_pdrop": 0.0,
            "embd_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


def attention_of(row):
    """Kernels of attention. "flash" alone does not say which generation; what the sources' own repositories say:

    InternEvo's runs of July 2023 required flash-attention 1.0.5 (doc/en/install.md of that month). llm-foundry's
    benchmarks took attn_impl=triton, the first generation's algorithm written in Triton. In January 2024 they were
    repeated on 128 H100 and more with flash-attn 2.4.2, but 13b and 30b again with triton
    (scripts/train/benchmarking/submit_benchmarks.py and sweep.py); there attn_impl=flash gathers and scatters padded
    sequences.
    """
    text, source = row.get("attention", ""), row["source_file"]
    if text.startswith("unfused"):
        return "stored"
    if "llm-foundry" in source:
        triton = "triton" in text or number(row, "gpus") < 128 or row["model"] in ("mpt-13b", "mpt-30b")
        return "triton" if triton else "varlen"
    return ("triton" if "triton" in text else "flash1" if "internevo" in source or text == "flash1" else
            "cudnn" if "cuDNN" in text else "flash2")


def fused_loss_of(row):
    """llm-foundry's loss_fn is fused_crossentropy unless it is changed, and InternEvo's FlashGPTLMLoss takes the same
    kernel, of flash-attn, which writes the gradients in the logits' place."""
    return any(name in row["source_file"] for name in ("llm-foundry", "internevo"))


def on_megatron(row):
    """Megatron-LM, or NeMo, which is on Megatron-Core (but for Automodel, which is FSDP)."""
    framework = row.get("framework", "").lower()
    return "megatron" in framework or ("nemo" in framework and "automodel" not in framework)


def best_is_scored(row):
    """Whether the row is to be scored by the fastest of what it does not state."""
    return "score the best over them" in row["usable_untuned"]


def is_free(row, key):
    """Whether the fastest value is to be found."""
    return row.get(key) == UNKNOWN or (best_is_scored(row) and row.get(key, "") == "")


def is_recent_nemo(row):
    """On H100: the recipes of NeMo's performance tables reduce gradients in bf16 (grad_reduce_in_fp32 = False in
    scripts/performance/helpers.py; before it grad_sync_dtype of its distributed optimizer)."""
    return "nemo" in row.get("framework", "").lower() and on_megatron(row) and row["gpu"].startswith("H100")


def overlaps_collectives(row):
    """Whether gradients are reduced while backward computes, weights are gathered while forward does, and what tensor
    parallelism exchanges runs behind products: in NeMo's recipes for H100 (overlap_grad_reduce and overlap_param_gather
    in nemo/collections/llm/recipes and tp_comm_overlap of MegatronCommOverlapCallback; before them overlap_grad_sync,
    overlap_param_sync and ub_tp_comm_overlap), and in the runs of Megatron-Core (its README: --overlap-grad-reduce,
    --overlap-param-gather, --tp-comm-overlap)."""
    return is_recent_nemo(row) or row.get("framework", "").startswith("Megatron-Core")


def reduction_of(row):
    """In which type gradients are reduced, of sources whose repositories say otherwise than f32.

    mixed_precision PURE of Composer is bf16. DEFAULT is f32 from Composer 0.16.4 of 11 October 2023 on, and before left
    it to PyTorch, which takes bf16. The benchmarks with DEFAULT were published on 19 October 2023 (with Composer 0.16.3
    or 0.16.4, which is not said: taken as f32) and in January 2024. fms-fsdp's policy bfSixteen is bf16. Megatron-LM
    adds up and reduces gradients in f32 with bf16, else in the type of training (arguments.py,
    accumulate_allreduce_grads_in_fp32). DeepSpeed's pipelines in bf16 have its BF16_Optimizer, which keeps gradients in
    f32 and reduces these.
    """
    framework = row.get("framework", "")
    if "deepspeed" in framework.lower() and row["precision"] == "bf16":
        return "f32"
    if is_recent_nemo(row):
        return "bf16"
    if framework == "Megatron-LM" and row["precision"] == "fp16":
        return "bf16"  # of two bytes, too
    return "bf16" if "FSDP PURE" in framework or "fms-fsdp" in framework else None


def stops_early(row):
    """Whether recomputation ends where backward has no use for more, as PyTorch's does since 2.1. llm-foundry's rows
    with PURE are of May 2023, when its setup.py had torch==1.13.1."""
    return "FSDP PURE" not in row.get("framework", "")


def is_torchtitan_of_2024(row):
    """Its runs on A100: configuration files of that time (train_configs, 24 April 2024) have compile = false, and for
    8b and 13b norms in one kernel of its own (fused_rmsnorm), for 70b a sequence of kernels (rmsnorm)."""
    return "torchtitan" in row.get("framework", "") and row["gpu"].startswith("A100")


def runs_deepspeed(row):
    """A table of a gist says so in its notes."""
    return "deepspeed" in (row.get("framework", "") + row.get("note", "")).lower()


def runs_scaling(row):
    return row.get("framework", "").lower() == "scaling"


def compiled(row):
    """Whether torch.compile makes the kernels; fms-fsdp's and torchtitan's tables say so. DeepSpeed and Scaling run
    PyTorch's layers as they are, Megatron-LM's with kernels of Apex."""
    note = row.get("note", "")
    eager = (runs_deepspeed(row) and not on_megatron(row)) or runs_scaling(row)
    return "no compile" not in note and "eager" not in note and not is_torchtitan_of_2024(row) and not eager


def recomputation_of(row):
    """Settings. torchtitan has selective recomputation by operator, and of every so many layers, by default every other
    (selective_ac_option, "op" and "2"): as many as the first half of them, which takes as long."""
    recompute = row.get("recompute", "")
    torchtitan = "torchtitan" in row.get("framework", "").lower()
    if torchtitan and recompute == "selective op":
        return {"recompute": "selective"}
    if torchtitan and recompute == "selective layer" and row.get("pp", "") in ("", "1"):
        return {"recompute": "full", "recompute_layers": number(row, "layers") // 2}
    if best_is_scored(row) and recompute in ("", "not stated"):
        return {}
    if recompute not in ("none", "full", "selective"):
        raise NotSaid(f"recompute {recompute!r}")
    if recompute == "selective" and not on_megatron(row):
        raise NotSaid("selective recomputation of some layers")
    return {"recompute": recompute}


def blocks_launches(row):
    """BLOOM's project set CUDA_LAUNCH_BLOCKING=1, as its jobs hung without (train/tr11-176B-ml of
    bigscience-workshop/bigscience, README.md and chronicles-prequel.md)."""
    return row.get("source_file", "").startswith("bigscience-bloom")


def sharding_of(row):
    """What is sharded, and among how many ranks: 0 for all. "hybrid 3": those of a node; "3 over 16"."""
    text = re.sub(r"\(.*\)", "", row.get("zero", ""))  # without remarks
    words = text.replace("zero-", "").replace("none", "0").split()
    hybrid = words[:1] == ["hybrid"]
    stage, *over = (words[1:] or ["3"]) if hybrid else (words or [""])
    if stage not in SHARDING or (over and (over[0] != "over" or len(over) != 2)):
        raise NotSaid(f"sharding {row['zero']!r}")
    if hybrid:
        gpus, tensor = count(row, "gpus"), count(row, "tp", 1)
        group = min(8, gpus) // tensor
        return SHARDING[stage], group if group < gpus // tensor // count(row, "pp", 1) else 0
    return SHARDING[stage], 0 if over[1:] in ([], ["all"]) else count({"zero": over[1]}, "zero")


def is_known(framework):
    return (on_megatron({"framework": framework}) or framework.lower() == "scaling" or
            any(name in framework.lower() for name in ("deepspeed", "internevo", "llm-foundry", *FSDP_NAMES)))


def framework_of(row):
    """Whose conventions the prediction has; FSDP's where the name says nothing (is_known)."""
    framework = row["framework"].lower()
    if not framework:
        raise NotSaid("framework is not stated")
    return ("deepspeed" if runs_deepspeed(row) else "internevo" if "internevo" in framework else
            "scaling" if runs_scaling(row) else "megatron" if on_megatron(row) else
            "composer" if "llm-foundry" in framework else "fsdp")


def settings_of(row):
    stage, shard_group = sharding_of(row)
    fp8 = row.get("precision") == "fp8"
    if row.get("precision") not in ("bf16", "fp16") and not (fp8 and on_megatron(row)):
        raise NotSaid(f"precision {row['precision']!r}")
    if row.get("ep", "") not in ("", "1") and not row.get("experts"):
        raise NotSaid("ep above 1, and no numbers of experts")
    parts = {"tp": count(row, "tp", 1), "pp": count(row, "pp", 1), "cp": count(row, "cp", 1),
             "ep": count(row, "ep", 1), "sharding": stage, **recomputation_of(row)}
    if not is_free(row, "vp"):
        parts["vp"] = count(row, "vp", 1)
    if not is_free(row, "mbs"):
        parts["micro_batch"] = count(row, "mbs")
    parts["attention"] = attention_of(row)
    if fused_loss_of(row):
        parts["loss"] = "fused"
    parts["framework"] = framework_of(row)
    if parts["framework"] == "megatron":  # off by default, and before 2023 always: plans may choose it
        parts["overlap_grad_reduce"] = row.get("overlap_grad_reduce") or ("on" if overlaps_collectives(row) else "off")
        if overlaps_collectives(row) and parts["tp"] > 1:
            parts["tp_comm_overlap"] = "on"
        parts["overlap_param_gather"] = (parts["overlap_grad_reduce"] if parts["sharding"] == "optimizer" else "off")
    if fp8:
        parts["fp8"] = row.get("fp8") or "on"
    if shard_group:
        parts["shard_group"] = shard_group
    if reduction_of(row):
        parts["reduce"] = reduction_of(row)
    if not compiled(row):
        parts["compile"] = "off"
    if is_torchtitan_of_2024(row) and "70b" not in row["model"]:
        parts["norm_fusion"] = "on"
    if parts.get("recompute") == "full" and not stops_early(row):
        parts["early_stop"] = "off"
    if (parts["tp"] > 1 and row.get("sequence_parallel") in NO and
            parts["framework"] in ("megatron", "deepspeed", "scaling")):
        parts["sequence_parallel"] = "off"
    if blocks_launches(row):
        parts["launch_blocking"] = "on"
    if row.get("stage_layers"):
        parts["layers"] = row["stage_layers"]
    parts.update({key: row[key] for key in OF_ROWS if row.get(key)})
    return ",".join(f"{key}={value}" for key, value in parts.items())


def preset_of(row):
    gpus = count(row, "gpus")
    said = "a800" if row.get("note", "").startswith("A800") else row.get("gpu", "").lower()
    gpu = re.match("[a-z]+[0-9]*", said)
    if not gpu or gpu[0] not in PRESETS or "pcie" in said or "nvl" in said:
        raise NotSaid(f"no preset of {row.get('gpu') or 'no GPU'!r}")
    name = PRESETS[gpu[0]]
    if gpu[0] == "a100" and row.get("gpu_mem_gb") == "40":
        name = "dgx-a100-40gb"
    per_node = min(gpus, 8)
    if gpus % per_node != 0:
        raise NotSaid(f"{gpus} GPUs")
    flags = ["--preset", name, "--nodes", str(gpus // per_node), "--gpus-per-node", str(per_node)]
    if row.get("internode_gbps_per_node") and gpus > per_node:
        flags += ["--network-gb-per-s", f"{number(row, 'internode_gbps_per_node') / 8 / per_node:g}"]
    return flags


def time_of_rate(row):
    rate = number(row, "tokens_per_s_per_gpu", 0)
    return count(row, "gbs") * count(row, "seq") / rate / count(row, "gpus") if rate else None


def measured_s(row):
    return number(row, "step_time_s", 0) or time_of_rate(row)


def contradiction(row):
    """Between the time and the rate that a row states; "" where there is none of 5 % or more."""
    time, by_rate = number(row, "step_time_s", 0), time_of_rate(row)
    if not time or not by_rate or abs(by_rate / time - 1) < 0.05:
        return ""
    return f"tokens_per_s_per_gpu makes {by_rate:.4g} s, step_time_s is {time:.4g} s, which is compared"


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line and " note: " not in line]
        raise NotSaid((lines or ["no message"])[0].removeprefix("ffsearch: ")[:160])
    return done.stdout


class Predictions:
    """Of rows, with graph and topology files in a directory of their own."""

    def __init__(self, ffsearch, directory):
        self.ffsearch, self.directory = ffsearch, pathlib.Path(directory)
        self.making = threading.Lock()  # several rows are predicted at once, and may want the same file

    def made(self, kind, key, make):
        path = self.directory / f"{kind}-{abs(hash(key)):x}.json"
        with self.making:
            if not path.exists():
                make(path)
        return path

    def graph(self, row):
        config, batch = json.dumps(config_of(row)), count(row, "gbs")

        def make(path):
            source = path.with_suffix(".config.json")
            source.write_text(config, encoding="utf-8")
            run([self.ffsearch, "import", source, "--sequence", str(count(row, "seq")), "--batch", str(batch),
                 "--out", path, "--quiet"])
        return self.made("graph", (config, batch, row["seq"]), make)

    def topology(self, row):
        flags = preset_of(row)
        return self.made("topology", tuple(flags),
                         lambda path: run([self.ffsearch, "topology", *flags, "--out", path, "--quiet"]))

    def predicted_by(self, command, row, *flags):
        return json.loads(run([self.ffsearch, command, "--graph", self.graph(row), "--topo", self.topology(row),
                               "--settings", settings_of(row), "--cost", "analytic", "--precision", "bf16",
                               "--optimizer", "adamw", *flags, "--json"]))

    def fastest(self, row):
        plan = self.predicted_by("plan", row, "--top", "1")["plans"][0]
        return {"predicted_us": plan["predicted_us"], "memory_bytes": [plan["memory_bytes"]], "baselines": {}}

    def predict(self, row):
        if is_free(row, "mbs") or is_free(row, "vp"):
            return self.fastest(row)
        return self.predicted_by("simulate", row)

    def of(self, row):
        # Of 96 GB: HBM2e, limited to 500 W, which no preset is (torchtitan's tables).
        gpu = (row["gpu"].split() or ["?"])[0] + (" 96GB" if row.get("gpu_mem_gb") == "96" else "")
        result = {"id": row["id"], "source": row["source_file"], "gpu": gpu}
        try:
            result.update(capacity_gb=number(row, "gpu_mem_gb", 0), status=row["status"], measured_s=measured_s(row),
                          measured_gb=number(row, "peak_mem_gb", 0) or None, note=contradiction(row))
            result["group"] = "|".join([row[key] for key in ("source_file", "framework", "gpu", "gpu_mem_gb", "gpus",
                                                             "model", "seq")])
            predicted = self.predict(row)
            result["tokens"] = count(row, "gbs") * count(row, "seq")
        except NotSaid as reason:
            return {**result, "left_out": str(reason)}
        if framework_of(row) == "fsdp" and not is_known(row["framework"]):
            result["note"] = f"framework {row['framework']!r} is taken as FSDP"
        result["predicted_s"] = predicted["predicted_us"] / 1e6
        result["predicted_gb"] = max(predicted["memory_bytes"]) / 1e9
        result["baseline"] = predicted["baselines"]
        return result


def kendall(pairs):
    """Concordant and discordant pairs of (predicted, measured)."""
    concordant = discordant = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            sign = (a - c) * (b - d)
            concordant += sign > 0
            discordant += sign < 0
    return concordant, discordant


def order_of(results):
    """Kendall's tau over all pairs within groups, and the regret of each group's predicted best."""
    groups = collections.defaultdict(list)
    for one in results:
        groups[one["group"]].append(one)
    concordant = discordant = 0
    regrets = []
    for members in groups.values():
        if len(members) < 2:
            continue
        speeds = [(one["tokens"] / one["predicted_s"], one["tokens"] / one["measured_s"]) for one in members]
        up, down = kendall(speeds)
        concordant, discordant = concordant + up, discordant + down
        picked = max(speeds)[1]
        regrets.append(max(measured for _, measured in speeds) / picked - 1)
    pairs = concordant + discordant
    return ((concordant - discordant) / pairs if pairs else None,
            statistics.mean(regrets) if regrets else None, len(regrets))


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def summary(results):
    timed = [one for one in results if one.get("predicted_s") and one["measured_s"]]
    line = {"rows": len(timed)}
    if timed:
        errors = [one["predicted_s"] / one["measured_s"] - 1 for one in timed]
        sizes = [abs(error) for error in errors]
        tau, regret, groups = order_of(timed)
        line.update(mean=statistics.mean(sizes), median=statistics.median(sizes), p90=quantile(sizes, 0.9),
                    worst=max(sizes), bias=statistics.mean(errors), tau=tau, regret=regret, groups=groups)
    memory = [one["predicted_gb"] / one["measured_gb"] - 1 for one in results
              if one.get("predicted_gb") and one["measured_gb"]]
    if memory:
        line.update(memory_rows=len(memory), memory_mean=statistics.mean(abs(error) for error in memory),
                    memory_bias=statistics.mean(memory))
    return line


def fits(results):
    judged = [(one["predicted_gb"] <= one["capacity_gb"], one["status"] == "ok") for one in results
              if one.get("predicted_gb") and one["capacity_gb"] and one["status"]]
    true = sum(predicted and ran for predicted, ran in judged)
    said, did = sum(predicted for predicted, _ in judged), sum(ran for _, ran in judged)
    return {"rows": len(judged), "ran": did, "precision": true / said if said else None,
            "recall": true / did if did else None}


def table(results):
    print("| runs | GPU | rows | mean | median | p90 | worst | bias | tau | regret (groups) | memory: rows, mean, bias "
          "|")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    by = collections.defaultdict(list)
    for one in results:
        by[one["source"], one["gpu"]].append(one)
        by["all", one["gpu"]].append(one)
    lines = {}
    for (source, gpu), some in sorted(by.items(), key=lambda item: (item[0][0] == "all", item[0])):
        line = lines[f"{source} {gpu}"] = summary(some)
        if not line["rows"] and "memory_rows" not in line:
            continue
        tau = line.get("tau")
        memory = (f"{line['memory_rows']}, {percent(line['memory_mean'])}, {percent(line['memory_bias'])}"
                  if "memory_rows" in line else "-")
        print(f"| {source.removesuffix('.csv')} | {gpu} | {line['rows']} | "
              + " | ".join(percent(line.get(key)) for key in ("mean", "median", "p90", "worst", "bias"))
              + f" | {'-' if tau is None else format(tau, '.2f')} | {percent(line.get('regret'))} "
              + f"({line.get('groups', 0)}) | {memory} |")
    return lines


def plot(results, path):
    """Predicted and measured times, a mark for each source and GPU."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "reproduction"))
    import style
    style.apply(pyplot)
    figure, axes = pyplot.subplots(figsize=(style.WIDTH, 7.5))
    by = collections.defaultdict(list)
    for one in results:
        if one.get("predicted_s") and one["measured_s"]:
            source = one["source"].removesuffix(".csv")
            by[f"{SOURCES.get(source, source)}, {one['gpu']}"].append((one["measured_s"], one["predicted_s"]))
    for number, (name, points) in enumerate(sorted(by.items())):
        axes.plot(*zip(*points), style.MARKERS[number % len(style.MARKERS)], markersize=5, alpha=0.8,
                  color=style.COLOURS[number % 4], label=f"{name} ({len(points)})")
    ends = [min(m for points in by.values() for m, _ in points), max(m for points in by.values() for m, _ in points)]
    axes.plot(ends, ends, color="black", linewidth=1, label="predicted = measured")
    axes.set(xscale="log", yscale="log", xlabel="measured iteration, s", ylabel="predicted iteration, s")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ffsearch")
    parser.add_argument("runs")
    parser.add_argument("--json", help="file to write with every prediction")
    parser.add_argument("--plot", help="picture to write; needs matplotlib")
    parser.add_argument("--only", default="", help="rows whose id contains this")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--jobs", type=int, default=1, help="predictions at a time")
    return parser.parse_args()


def rows_of(path, only):
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(line for line in file if not line.startswith("#"))
            missing = [column for column in REQUIRED if column not in (reader.fieldnames or ())]
            rows = [] if missing else [normalised(row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        sys.exit(f"{path}: cannot be read: {error}")
    if missing:
        sys.exit(f"{path}: has no column {', '.join(missing)}")
    return [row for row in rows if only in row["id"]]


def print_rows(results):
    for one in results:
        if "left_out" in one:
            print(f"{one['id']}: left out: {one['left_out']}")
        elif one["measured_s"]:
            print(f"{one['id']} {one['group']}: predicted {one['predicted_s']:.4f} s, measured "
                  f"{one['measured_s']:.4f} s, {percent(one['predicted_s'] / one['measured_s'] - 1)}")


def main():
    options = parsed()
    rows = rows_of(options.runs, options.only)
    usable = [row for row in rows if row["usable_untuned"] in YES or best_is_scored(row)]
    if not usable:
        sys.exit(f"{options.runs}: no usable row")
    with tempfile.TemporaryDirectory() as directory:
        predictions = Predictions(pathlib.Path(options.ffsearch).resolve(), directory)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(predictions.of, usable))
    if options.rows:
        print_rows(results)
    print(f"{len(rows)} rows, {len(usable)} usable, {sum('left_out' not in one for one in results)} predicted\n")
    lines = table(results)
    judged = fits(results)
    print(f"\nfits or not: {judged['rows']} rows, {judged['ran']} ran; precision {percent(judged['precision'])}, "
          f"recall {percent(judged['recall'])}")
    for reason, times in collections.Counter(one["left_out"] for one in results if "left_out" in one).most_common():
        print(f"left out: {times} rows: {reason}")
    for note, times in collections.Counter(one["note"] for one in results if one.get("note")).most_common():
        print(f"note: {times} rows: {note}")
    if options.plot:
        plot(results, options.plot)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"summary": lines, "fits": judged, "rows": results}, indent=1)
                                              + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
