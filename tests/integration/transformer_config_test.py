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
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64, "attn_pdrop": 0},
    "gpt_neox": {**SMALL, "hidden_act": "gelu", "rotary_pct": 0.5},
    "llama": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "rope_theta": 500000.0},
    "mistral": {**SMALL, "num_key_value_heads": 2, "hidden_act": "silu", "sliding_window": None},
    "phi": {**SMALL, "hidden_act": "gelu_new"},
    "qwen2": {**SMALL, "num_key_value_heads": 1, "hidden_act": "silu", "tie_word_embeddings": True},
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
                done = self.run_program(BUILD / "ffsearch", "import", "config.json", "--sequence", 64, "--batch", 4,
                                        "--out", "g.json", "--json")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(json.loads(done.stdout)["layers"], 2)
                done = self.run_program(BUILD / "ffsearch", "--graph", "g.json", "--topo",
                                        ROOT / "topologies/local-cpu-2.json", "--cost", "analytic", "--algorithm",
                                        "megatron", "--optimizer", "adamw", "--out", "s.json", "--quiet")
                self.assertEqual(done.returncode, 0, done.stderr)
                done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--iterations",
                                        20, "--lr", 0.01, "--verify", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                losses = json.loads(done.stdout)["losses"]
                self.assertLess(losses[-1], losses[0])

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

    def test_a_family_that_is_not_known(self):
        self.write("llama")
        config = json.loads((self.work / "config.json").read_text())
        (self.work / "config.json").write_text(json.dumps({**config, "model_type": "mixtral"}))
        done = self.run_program(BUILD / "ffsearch", "import", "config.json", "--sequence", 8, "--batch", 4, "--out",
                                "g.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn('config.json: /model_type: found "mixtral"', done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
