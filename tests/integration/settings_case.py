"""What tests of plans by settings share: small transformers, and ffsearch simulate --settings."""

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

FAMILIES = {
    "gpt2": {"n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 64, "activation_function": "gelu_new"},
    "gpt_neox": {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 128,
                 "rotary_pct": 0.25, "hidden_act": "gelu", "max_position_embeddings": 64,
                 "use_parallel_residual": True},
    "llama": {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64,
              "hidden_act": "silu", "max_position_embeddings": 64},
    "mistral": {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
                "intermediate_size": 64, "hidden_act": "silu", "max_position_embeddings": 64, "sliding_window": None},
    "phi": {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 128,
            "partial_rotary_factor": 0.5, "hidden_act": "gelu_new", "max_position_embeddings": 64},
    "qwen2": {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 64, "hidden_act": "silu", "max_position_embeddings": 64},
}


class SettingsCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)

    def program(self, *command, code=0):
        done = subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=600, check=False, env=mpi_environment())
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done.stderr if code else done.stdout

    def make_graph(self, family, batch=16, **other):
        config = {"model_type": family, "vocab_size": 96, **FAMILIES[family], **other}
        (self.work / "config.json").write_text(json.dumps(config))
        self.program(BUILD / "ffsearch", "import", "config.json", "--sequence", 16, "--batch", batch, "--out", "g.json")

    def simulate(self, settings, *flags, graph="g.json", topology="topologies/p100-2x4.json", code=0):
        found = self.program(BUILD / "ffsearch", "simulate", "--graph", graph, "--topo", ROOT / topology, "--settings",
                             settings, "--cost", "analytic", "--json", "--out", "s.json", *flags, code=code)
        return found if code else json.loads(found)
