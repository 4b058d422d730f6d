"""scripts/gpu_networks.py takes the topology of the GPU that is there, by its name."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def model_of(name):
    return subprocess.run([sys.executable, ROOT / "scripts/gpu_networks.py", "model", "--gpu-name", name],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class GpuNetworksTest(unittest.TestCase):
    def test_the_topology_is_that_of_the_gpus_name(self):
        for name, model in {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H200": "h200", "NVIDIA H100 PCIe": "h100"}.items():
            self.assertEqual(model_of(name).stdout, model + "\n")
            self.assertTrue((ROOT / f"topologies/{model}-1.json").exists())

    def test_a_gpu_without_a_topology_is_refused(self):
        for name in ["NVIDIA GH200 480GB", "Tesla T4", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]:
            done = model_of(name)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f'no topology for the GPU "{name}": there are those of h100, h200; write '
                             "another one with ffsearch topology, and give it with --topology\n")

    def test_other_commands_need_programs_and_a_profile(self):
        done = subprocess.run([sys.executable, ROOT / "scripts/gpu_networks.py", "smoke"], stderr=subprocess.PIPE,
                              text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs --bin and --profile", done.stderr)


if __name__ == "__main__":
    unittest.main()
