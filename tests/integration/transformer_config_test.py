#!/usr/bin/python3
"""A language model from its config.json: imported, planned, trained on two ranks; flags that do not go together.
Usage: transformer_config_test.py BUILD_DIR"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
sys.path.insert(0, str(ROOT / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "vocab_size": 50, "max_position_embeddings": 64}
CONFIGS = {
    "bert": {**SMALL, "attention_probs_dropout_prob": 0},
    "mixtral": {**SMALL, "num_key_value_heads": 2, "num_local_experts": 4, "sliding_window": None},
    "deepseek": {**SMALL, "n_routed_experts": 6, "num_experts_per_tok": 3, "n_shared_experts": 2,
                 "moe_intermediate_size": 16, "first_k_dense_replace": 1},
    "olmoe": {**SMALL, "num_experts": 8},
    "qwen2_moe": {**SMALL, "num_experts": 6, "num_experts_per_tok": 4, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 48},
    "qwen3_moe": {**SMALL, "head_dim": 8, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
                  "norm_topk_prob": True, "mlp_only_layers": [0]},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 50},
    "mt5": {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4,
            "vocab_size": 50, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "phi3": {**SMALL, "hidden_act": "silu", "sliding_window": 64},
    "qwen3": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "vit": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
            "image_size": 16, "patch_size": 4, "num_labels": 10},
    "bloom": {"n_embed": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50},
    "gemma": {**SMALL, "num_key_value_heads": 2, "head_dim": 16},
    "gpt_bigcode": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64, "attn_pdrop": 0},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64, "rotary_dim": 4},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 50, "max_seq_len": 64},
    "opt": {**SMALL, "ffn_dim": 64, "activation_function": "relu"},
    "starcoder2": {**SMALL, "num_key_value_heads": 2, "use_bias": True},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64, "attn_pdrop": 0},
    "gpt_neox": {**SMALL, "hidden_act": "gelu", "rotary_pct": 0.5},
    "llama": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "rope_theta": 500000.0},
    "mistral": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "sliding_window": None},
    "phi": {**SMALL, "hidden_act": "gelu_new"},
    "qwen2": {**SMALL, "num_key_value_heads": 1, "hidden_act": "silu", "tie_word_embeddings": True},
    "gemma2": {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "final_logit_softcapping": 30.0,
               "sliding_window": 64},
    "gemma3_text": {**SMALL, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 8},
    "olmo2": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu"},
    "glm": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "attention_bias": True},
    "glm4": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "attention_bias": True},
    "cohere": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu"},
    "granite": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "embedding_multiplier": 12.0,
                "tie_word_embeddings": True},
    "internlm": {**SMALL, "hidden_act": "silu"},
    "internlm2": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "bias": False},
    "stablelm": {**SMALL, "hidden_act": "silu", "use_qkv_bias": True},
    "nemotron": {**SMALL, "num_key_value_heads": 2, "hidden_act": "relu2"},
    "smollm3": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "no_rope_layers": [1, 0]},
}


EXPERTS = "experts have places"
MASK = "the decoder's attention to itself has no causal mask"
NOTES = {"bert": "the output has no bias", "t5": MASK, "mt5": MASK, "mixtral": EXPERTS, "deepseek": EXPERTS,
         "olmoe": EXPERTS, "qwen2_moe": EXPERTS, "qwen3_moe": EXPERTS, "qwen3": "normalization of queries and keys",
         "opt": "the table of positions has two rows less", "bloom": "alibi is left out",
         "gemma": "embeddings are not multiplied", "mpt": "layer norms have biases",
         "gemma2": "embeddings are not multiplied", "gemma3_text": "embeddings are not multiplied",
         "olmo2": "normalization of queries and keys", "cohere": "layer norms have biases",
         "granite": "embedding_multiplier is left out", "smollm3": "all layers have rotary positions"}
# Sizes as in the config.json of public models, a sequence, and how many parameters their safetensors files have. Other
# families are in tests/unit/search/import/transformer_config_test.cpp.
PUBLIC = {
    "mixtral-8x7b": ({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                      "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
                      "num_local_experts": 8}, 2048, 46702792704),
    "mixtral-8x22b": ({"model_type": "mixtral", "hidden_size": 6144, "num_hidden_layers": 56,
                       "num_attention_heads": 48, "num_key_value_heads": 8, "intermediate_size": 16384,
                       "vocab_size": 32000, "num_local_experts": 8}, 2048, 140620634112),
    "deepseek-moe-16b": ({"model_type": "deepseek", "hidden_size": 2048, "num_hidden_layers": 28,
                          "num_attention_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408,
                          "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
                          "first_k_dense_replace": 1, "vocab_size": 102400}, 2048, 16375728128),
    # Without the normalization of queries and keys.
    "OLMoE-1B-7B": ({"model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
                     "num_key_value_heads": 16, "intermediate_size": 1024, "num_experts": 64,
                     "num_experts_per_tok": 8, "vocab_size": 50304}, 2048, 6919161856 - 16 * 2 * 2048),
    "Qwen1.5-MoE-A2.7B": ({"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
                           "num_attention_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
                           "shared_expert_intermediate_size": 5632, "vocab_size": 151936}, 2048, 14315784192),
    "phi-3-mini-4k": ({"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
                       "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32064,
                       "sliding_window": 2047}, 2047, 3821079552),
    # Without the normalization of queries and keys.
    "qwen3-8b": ({"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
                  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936}, 2048,
                 8190735360 - 36 * 2 * 128),
    "qwen3-0.6b": ({"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                    "num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 151936,
                    "tie_word_embeddings": True}, 2048, 596049920 - 28 * 2 * 128),
    "qwen3-32b": ({"model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64,
                   "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936}, 2048,
                  32762123264 - 64 * 2 * 128),
    "qwen3-30b-a3b": ({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
                       "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                       "intermediate_size": 6144, "moe_intermediate_size": 768, "vocab_size": 151936,
                       "norm_topk_prob": True}, 2048, 30532122624 - 48 * 2 * 128),
    "mistral-nemo": ({"model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                      "intermediate_size": 14336, "vocab_size": 131072, "sliding_window": None}, 2048, 12247782400),
    "t5-small": ({"model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
                  "vocab_size": 32128}, 512, 60506624),
    "flan-t5-base": ({"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12,
                      "num_decoder_layers": 12, "num_heads": 12, "vocab_size": 32128,
                      "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, 512, 247577856),
    # Masked words, with the layer in front of the output, without the output's bias.
    "bert-base-uncased": ({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
                           "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522}, 512,
                          109514298 - 30522),
    "vit-base-patch16-224": ({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12,
                              "num_attention_heads": 12, "intermediate_size": 3072}, 0, 86567656),
    "bloom": ({"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
               "vocab_size": 250880}, 2048, 176247271424),
    "bloom-560m": ({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
                    "vocab_size": 250880}, 2048, 559214592),
    "gpt-j-6b": ({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64,
                  "vocab_size": 50400}, 2048, 6050882784),
    "falcon-7b": ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                   "vocab_size": 65024}, 2048, 6921720704),
    "gemma-2b": ({"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8,
                  "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16384, "vocab_size": 256000}, 2048,
                 2506172416),
    "gemma-7b": ({"model_type": "gemma", "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
                  "num_key_value_heads": 16, "intermediate_size": 24576, "vocab_size": 256000}, 2048, 8537680896),
    "starcoder": ({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576,
                   "vocab_size": 49152, "n_positions": 8192}, 8192, 15517456384),
    "starcoder2-3b": ({"model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30,
                       "num_attention_heads": 24, "num_key_value_heads": 2, "intermediate_size": 12288,
                       "vocab_size": 49152, "use_bias": True}, 2048, 3030371328),
    "gemma-2-2b": ({"model_type": "gemma2", "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
                    "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "vocab_size": 256000}, 2048,
                   2614341888),
    "gemma-2-9b": ({"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16,
                    "num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000}, 2048,
                   9241705984),
    # These two without the normalization of queries and keys.
    "gemma-3-1b": ({"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
                    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912,
                    "vocab_size": 262144}, 512, 999885952 - 26 * 2 * 256),
    "OLMo-2-1124-7B": ({"model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32,
                        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 100352}, 2048,
                       7298617344 - 32 * 2 * 4096),
    "GLM-4-9B-0414": ({"model_type": "glm4", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
                       "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 13696, "vocab_size": 151552,
                       "attention_bias": True}, 2048, 9400279040),
    # And the biases of layer norms, which the model's have not.
    "c4ai-command-r-v01": ({"model_type": "cohere", "hidden_size": 8192, "num_hidden_layers": 40,
                            "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 22528,
                            "vocab_size": 256000}, 2048, 34980831232 + 41 * 8192),
    "granite-3.0-8b": ({"model_type": "granite", "hidden_size": 4096, "num_hidden_layers": 40,
                        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12800,
                        "vocab_size": 49155, "tie_word_embeddings": True}, 2048, 8170848256),
    "internlm2-7b": ({"model_type": "internlm2", "hidden_size": 4096, "num_hidden_layers": 32,
                      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
                      "vocab_size": 92544, "bias": False}, 2048, 7737708544),
    "stablelm-2-1_6b": ({"model_type": "stablelm", "hidden_size": 2048, "num_hidden_layers": 24,
                         "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 5632,
                         "vocab_size": 100352, "use_qkv_bias": True}, 2048, 1644515328),
    "SmolLM3-3B": ({"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
                    "num_key_value_heads": 4, "intermediate_size": 11008, "vocab_size": 128256}, 2048, 3075098624),
    # OPT's table has two rows for padding, which nothing reads.
    "opt-125m": ({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                  "ffn_dim": 3072, "vocab_size": 50272}, 2048, 125239296 - 2 * 768),
}


class TransformerConfig(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)

    def run_program(self, *command):
        return subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=600, check=False, env=mpi_environment())

    def write(self, family, **more):
        (self.work / "config.json").write_text(json.dumps({"model_type": family, **CONFIGS[family], **more}))

    def test_each_family_is_imported_planned_and_trained(self):
        for family in CONFIGS:
            with self.subTest(family):
                self.write(family)
                length = [] if family == "vit" else ["--sequence", 64]
                done = self.run_program(BUILD / "ffsearch", "import", "config.json", *length, "--batch", 4, "--out",
                                        "g.json", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                notes = f"^ffsearch: note: {NOTES[family]}.*\n(ffsearch: note: .*\n)*$" if family in NOTES else "^$"
                self.assertRegex(done.stderr, notes)
                self.assertEqual(json.loads(done.stdout)["layers"], 2)
                algorithm = "data-parallel" if family in ("t5", "mt5") else "megatron"
                done = self.run_program(BUILD / "ffsearch", "--graph", "g.json", "--topo",
                                        ROOT / "topologies/local-cpu-2.json", "--cost", "analytic", "--algorithm",
                                        algorithm, "--optimizer", "adamw", "--out", "s.json", "--quiet")
                self.assertEqual(done.returncode, 0, done.stderr)
                # Few: rounding changes which experts tokens choose in the end.
                done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--iterations",
                                        8, "--lr", 0.01, "--verify", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                losses = json.loads(done.stdout)["losses"]
                self.assertLess(losses[-1], losses[0])

    def test_public_models_have_their_numbers_of_parameters(self):
        for name, (config, sequence, parameters) in PUBLIC.items():
            with self.subTest(name):
                positions = {"max_position_embeddings": sequence} if sequence > 0 else {}
                (self.work / "config.json").write_text(json.dumps({**positions, **config}))
                length = ["--sequence", sequence] if sequence > 0 else []
                done = self.run_program(BUILD / "ffsearch", "import", "config.json", *length, "--batch", 1, "--out",
                                        "g.json", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(done.stdout)["parameters"], parameters)

    def test_a_committed_graph_is_what_its_config_becomes(self):
        committed = json.loads((ROOT / "graphs/mixtral-8x22b.json").read_text())
        config = {**PUBLIC["mixtral-8x22b"][0], "max_position_embeddings": 65536, "rope_theta": 1000000.0,
                  "rms_norm_eps": 1e-5, "num_experts_per_tok": 2}
        (self.work / "config.json").write_text(json.dumps(config))
        done = self.run_program(BUILD / "ffsearch", "import", "config.json", "--sequence", 4096, "--batch", 1024,
                                "--out", "g.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        imported = json.loads((self.work / "g.json").read_text())
        for key in ("batch_size", "inputs", "operators"):
            self.assertEqual(imported[key], committed[key])

    def test_flags_that_do_not_go_together(self):
        self.write("llama")
        for flags, message in (([], "--sequence: is needed for config.json"),
                               (["--sequence", 8, "--loss", "cross-entropy"], "--loss: is not for a config.json"),
                               (["--sequence", 128], "--sequence: found 128, the model has 64 positions")):
            with self.subTest(flags=flags):
                done = self.run_program(BUILD / "ffsearch", "import", "config.json", "--batch", 4, "--out", "g.json",
                                        *flags)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(message, done.stderr)
                self.assertFalse((self.work / "g.json").exists())

    def test_a_directory_with_a_config(self):
        (self.work / "model").mkdir()
        self.write("gpt2")
        (self.work / "config.json").rename(self.work / "model/config.json")
        command = (BUILD / "ffsearch", "import", "--sequence", 8, "--batch", 4, "--out", "g.json")
        done = self.run_program(*command, "model")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_program(*command, ".")
        self.assertEqual(done.returncode, 1)
        self.assertIn("./config.json: cannot open", done.stderr)

    def test_a_family_that_is_not_known(self):
        latent = ("whose multi-head latent attention is not supported: no operator has keys and values of a common low "
                  "rank")
        for family, more, message in (
                ("llama", {"model_type": "mamba"}, '/model_type: found "mamba"'),
                ("deepseek", {"model_type": "deepseek_v2"}, f'/model_type: found "deepseek_v2", {latent}\n'),
                ("deepseek", {"model_type": "deepseek_v3", "kv_lora_rank": 512},
                 f'/model_type: found "deepseek_v3", {latent}\n'),
                ("llama", {"model_type": "minicpm3", "kv_lora_rank": 256},
                 f'/model_type: found "minicpm3", {latent}\n'),
                ("llama", {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}},
                 '/model_type: found "gemma3"; its language model is known: import what "text_config" has'),
                ("t5", {"feed_forward_proj": "gated-mish"}, '/feed_forward_proj: found "gated-mish"; known: gelu, '),
                ("t5", {"feed_forward_proj": "gated-silo"},
                 '/feed_forward_proj: found "gated-silo"; did you mean "silu"?\n')):
            with self.subTest(**more):
                self.write(family, **more)
                done = self.run_program(BUILD / "ffsearch", "import", "config.json", "--sequence", 8, "--batch", 4,
                                        "--out", "g.json")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"config.json: {message}", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
