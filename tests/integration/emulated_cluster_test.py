#!/usr/bin/env python3
"""Runs ffsearch and ffexec on emulated clusters (scripts/emulated_cluster.sh). Usage: emulated_cluster_test.py
BUILD_DIRECTORY (standard library only). Skipped, with the reason, where such clusters cannot be made. No test expects
more of times than what a busy machine leaves standing."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from emulated_clusters import ROOT, cluster, skip_where_impossible  # noqa: E402

BUILD = None
SCRIPT = ROOT / "scripts/emulated_cluster.sh"


def name_of(process):
    """Of a process by number; "" where it has ended meanwhile."""
    try:
        return pathlib.Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def processes_with(text):
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and text in (process / "cmdline").read_text().replace("\0", " "):
                found.append(int(process.name))
        except OSError:
            pass
    return found


class EmulatedCluster(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_on(self, options, *arguments):
        result = cluster(*arguments, options=options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_hosts_have_names_and_run_ranks(self):
        result = self.run_on(["--hosts", "3", "--ranks-per-host", "2"], "mpirun", "hostname")
        self.assertEqual(sorted(result.stdout.split()), ["node0"] * 2 + ["node1"] * 2 + ["node2"] * 2)
        result = self.run_on(["--hosts", "2"], "bash", "-c", '"$EMULATED_CLUSTER_RUN" node1 "hostname; ip -br address"')
        self.assertIn("node1\n", result.stdout)
        self.assertIn("10.77.0.2/24", result.stdout)

    def test_links_have_the_rate_that_is_asked_for(self):
        result = self.run_on(["--hosts", "4", "--switches", "2", "--gb-per-s", "0.25", "--uplink-gb-per-s", "0.5"],
                             "tc", "qdisc", "show", "dev", "eth0")
        self.assertIn("rate 2Gbit", result.stdout)
        result = self.run_on(["--gb-per-s", "1.25"], "tc", "qdisc", "show", "dev", "eth0")
        self.assertIn("rate 10Gbit", result.stdout)

    def test_the_command_s_exit_code_and_wrong_options(self):
        self.assertEqual(cluster("bash", "-c", "exit 7").returncode, 7)
        for options, message in ((["--hosts", "0"], "--hosts: 0 is no number from 1 to 999"),
                                 (["--gb-per-s", "fast"], "--gb-per-s: fast is no positive number"),
                                 (["--switches", "3"], "--switches: 3 switches for 2 hosts"),
                                 (["--cpu-share", "2=0.5"], "--cpu-share: there is no host 2, hosts are 0 to 1"),
                                 (["--cpu-share", "half"], "--cpu-share: half is not HOST=SHARE, as 1=0.5"),
                                 (["--rate", "1"], "unknown option --rate; --help lists them, and the command "
                                                   "follows --")):
            result = cluster("true", options=options)
            self.assertEqual((result.returncode, result.stderr), (2, f"emulated_cluster.sh: {message}\n"))
        result = subprocess.run([str(SCRIPT), "--hosts", "2"], capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (2, "emulated_cluster.sh: no command; it follows --\n"))

    def test_nothing_is_left_when_it_is_killed(self):
        mark = "98765432"  # seconds, by which the command is found
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen([str(SCRIPT), "--", "sleep", mark], cwd=ROOT, stderr=subprocess.DEVNULL)
            for _ in range(200):
                if any(name_of(one) == "sleep" for one in processes_with(mark)):
                    break
                time.sleep(0.05)
            else:
                self.fail("the command never ran")
            process.send_signal(number)
            process.wait(timeout=30)
            for _ in range(200):
                if not processes_with(mark):
                    break
                time.sleep(0.05)
            self.assertEqual(processes_with(mark), [])
        names = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, timeout=60).stdout
        self.assertNotIn("node0", names)

    def test_a_slowed_host_gets_its_share_of_a_processor(self):
        count = ("import time\nbegin = time.time()\nwhile time.time() - begin < 1: pass\n"
                 "print(time.process_time())")
        result = self.run_on(["--hosts", "2", "--cpu-share", "1=0.3"], "bash", "-c",
                             f'"$EMULATED_CLUSTER_RUN" node1 /usr/bin/python3 -c "\'{count}\'"')
        self.assertLess(float(result.stdout), 0.4)

    def test_messages_and_sums_are_right_to_the_bit(self):
        for options in (["--hosts", "2"], ["--hosts", "2", "--ranks-per-host", "2"],
                        ["--hosts", "3", "--ranks-per-host", "2"], ["--hosts", "3", "--switches", "3"]):
            result = self.run_on([*options, "--gb-per-s", "1.25"], "mpirun", BUILD / "tests/test_mpi_ranks")
            self.assertRegex(result.stdout, "[0-9] ranks: all messages and sums are right")

    measured = {}  # by the cluster's options: what calibration printed, and its topology

    def calibrated(self, options, ranks):
        """Calibrates, once for each cluster, and searches; returns the topology and what was printed."""
        key = tuple(options)
        if key not in self.measured:
            result = self.run_on(options, "mpirun", BUILD / "ffexec", "--calibrate", "--out", self.path("topo.json"))
            self.measured[key] = result, pathlib.Path(self.path("topo.json")).read_bytes()
        result, text = self.measured[key]
        pathlib.Path(self.path("topo.json")).write_bytes(text)
        with open(self.path("topo.json")) as file:
            topology = json.load(file)
        self.assertEqual(len(topology["devices"]), ranks)
        found = subprocess.run([BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo",
                                self.path("topo.json"), "--cost", "analytic", "--proposals", "500", "--seed", "1",
                                "--out", self.path("found.json"), "--json"],
                               capture_output=True, text=True, timeout=240)
        self.assertEqual(found.returncode, 0, found.stderr)
        return topology, result

    def train(self, options, strategy, iterations=3):
        result = self.run_on(options, "mpirun", BUILD / "ffexec", "--strategy", strategy, "--iterations",
                             iterations, "--verify", "--json")
        trained = json.loads(result.stdout)
        self.assertIn("OMPI_MCA_btl_tcp_eager_limit=135168", trained["transport_settings"])
        self.assertTrue(trained["verified"]["passed"])
        self.assertEqual(trained["transport"], "mpi")
        return trained

    def data_parallel(self):
        subprocess.run([BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo", self.path("topo.json"),
                        "--algorithm", "data-parallel", "--cost", "analytic", "--out", self.path("data.json"),
                        "--quiet"], check=True, timeout=240, stdout=subprocess.DEVNULL)
        return self.path("data.json")

    def test_two_hosts(self):
        options = ["--hosts", "2", "--gb-per-s", "0.125"]
        topology, result = self.calibrated(options, 2)
        self.assertEqual(topology["switches"], ["network"])
        self.assertEqual([link["between"] for link in topology["links"]], [["rank0", "network"], ["rank1", "network"]])
        self.assertEqual([device["node"] for device in topology["devices"]], ["node0", "node1"])
        for link in topology["links"]:
            # Never above what the link can carry, whatever passes in a burst; a busy machine can only slow it.
            self.assertLess(link["bandwidth_gb_per_s"], 0.127)
            self.assertGreater(link["bandwidth_gb_per_s"], 0.02)
            self.assertLess(link["all_reduce_gb_per_s"], 0.127)
        self.assertRegex(result.stdout,
                         r"rank0 on node0 and rank1 on node1: messages [0-9.]+ GB/s, [0-9.]+ us \(off by")
        self.assertRegex(result.stdout, "all 2 hosts at once, 1 rank each: [0-9.]+ GB/s a host and direction")
        found = self.train(options, self.path("found.json"))
        data_parallel = self.train(options, self.data_parallel())
        self.assertAlmostEqual(found["losses"][-1], data_parallel["losses"][-1], places=4)

    def test_two_by_two(self):
        options = ["--hosts", "2", "--ranks-per-host", "2", "--gb-per-s", "0.125"]
        topology, result = self.calibrated(options, 4)
        self.assertEqual(topology["switches"], ["network", "node0.adapter", "node1.adapter"])
        ends = [link["between"] for link in topology["links"]]
        for pair in (["rank0", "rank1"], ["rank2", "rank3"], ["rank3", "node1.adapter"], ["node0.adapter", "network"]):
            self.assertIn(pair, ends)
        self.assertNotIn(["rank0", "rank2"], ends)
        rates = {tuple(link["between"]): link["bandwidth_gb_per_s"] for link in topology["links"]}
        self.assertGreater(rates["rank0", "rank1"], rates["node0.adapter", "network"])  # fast inside, slow outside
        self.assertLess(rates["node0.adapter", "network"], 0.127)  # both ranks together
        self.assertIn("2 ranks each", result.stdout)
        self.train(options, self.path("found.json"))
        self.train(options, self.data_parallel())

    def test_a_slower_host_has_a_device_model_of_its_own(self):
        options = ["--hosts", "2", "--cpu-share", "1=0.2"]  # slower even where the other host is not alone
        topology, result = self.calibrated(options, 2)
        models = [device["model"] for device in topology["devices"]]
        self.assertIn(models[0], ("cpu", "shared-cpu"), result.stderr)  # shared where the machine is busy
        self.assertEqual(models[1], "slower-cpu", result.stderr)
        slower = topology["device_models"]["slower-cpu"]
        self.assertEqual(slower["scaled_from"], "cpu")
        self.assertLess(slower["speed"], 0.75)
        self.assertRegex(result.stderr, '[Dd]evice model "slower-cpu" has the kernel times of "cpu" at this speed')
        # Three quarters of the samples for the faster one.
        strategy = json.loads(pathlib.Path(self.data_parallel()).read_text())
        for configuration in strategy["configurations"]:
            if configuration["degrees"].get("sample") == 2:
                configuration["shares"] = {"sample": [3, 1]}
        pathlib.Path(self.path("uneven.json")).write_text(json.dumps(strategy))
        self.train(options, self.path("uneven.json"))

    def test_results_are_those_of_one_host(self):
        # A strategy of pieces, slices and messages between hosts, bit for bit what shared memory gives.
        self.calibrated(["--hosts", "2", "--gb-per-s", "0.125"], 2)
        plan = self.data_parallel()
        between = self.train(["--hosts", "2", "--gb-per-s", "1.25"], plan, 5)
        inside = json.loads(self.run_on(["--hosts", "1", "--ranks-per-host", "2"], "mpirun", BUILD / "ffexec",
                                        "--strategy", plan, "--iterations", "5", "--json").stdout)
        self.assertNotIn("transport_settings", inside)
        self.assertEqual(between["losses"], inside["losses"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    skip_where_impossible()
    unittest.main(verbosity=2)
