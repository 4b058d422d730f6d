#!/usr/bin/env python3
"""What becomes of a training when a rank is killed, a link is cut or a host hangs, on emulated clusters
(docs/emulated-cluster.md). Usage: failures_test.py BUILD_DIRECTORY (standard library only). Skipped, with the reason,
where such clusters cannot be made. Prints what it has seen: the table of docs/results/failures.md."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from emulated_clusters import ROOT, cluster, skip_where_impossible  # noqa: E402

BUILD = None
ITERATIONS, SAVE_EVERY = 600, 10  # of the runs that are to end by themselves
RANK_TIMEOUT_S = 6
LOST = "no sign of life from rank {} on node1 for 6 s: it hangs, or the network is cut"


# ---- within the cluster, on node0: trains, disturbs node1, and prints what happened as JSON

def on_node1(*command):
    subprocess.run([os.environ["EMULATED_CLUSTER_RUN"], "node1", " ".join(command)], check=True)


def processes(name, host):
    """Those of this name on a host: in its network namespace."""
    namespace = subprocess.run([os.environ["EMULATED_CLUSTER_RUN"], host, "readlink /proc/self/ns/net"],
                               capture_output=True, text=True, check=True).stdout.strip()
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "comm").read_text().strip() == name and \
                    os.readlink(process / "ns/net") == namespace:
                found.append(int(process.name))
        except OSError:
            pass
    return sorted(found)


def send(number, pids):
    for pid in pids:
        os.kill(pid, number)


def disturb(what):
    """Returns how to undo it."""
    ranks = processes("ffexec", "node1")
    if what == "kill":
        send(signal.SIGKILL, ranks[:1])
    elif what == "cut":
        on_node1("ip link set eth0 down")
        return lambda: on_node1("ip link set eth0 up")
    else:
        stopped = ranks[:1] if what == "freeze rank" else ranks + processes("orted", "node1")
        send(signal.SIGSTOP, stopped)
        return lambda: send(signal.SIGCONT, stopped)
    return None


def inside(what, seconds, checkpoint, output, *command):
    with open(output + ".out", "w") as out, open(output + ".err", "w") as err:
        process = subprocess.Popen(["mpirun", *command], stdout=out, stderr=err)
        while not os.path.exists(checkpoint) and process.poll() is None:
            time.sleep(0.01)
        begin = time.monotonic()
        undo = disturb(what)
        if seconds != "ever":
            time.sleep(float(seconds))
            undo()
        code = process.wait()
    ended_s = time.monotonic() - begin
    time.sleep(1)
    left = processes("ffexec", "node0")
    print(json.dumps({"exit_code": code, "seconds": ended_s, "left_on_node0": left}))


# ---- outside: the tests

class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        for ranks in (2, 4):
            subprocess.run([BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo",
                            ROOT / f"topologies/local-cpu-{ranks}.json", "--algorithm", "data-parallel", "--cost",
                            "analytic", "--out", cls.path(f"s{ranks}.json"), "--quiet"], check=True,
                           stdout=subprocess.DEVNULL)
        # What nothing disturbs: one host has the same losses to the bit (emulated_cluster_test.py).
        cls.losses = cls.train(cls.command(2, ITERATIONS))["losses"]

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def command(cls, ranks, iterations, *more):
        return [BUILD / "ffexec", "--strategy", cls.path(f"s{ranks}.json"), "--momentum", "0.9", "--iterations",
                iterations, "--json", *more]

    @staticmethod
    def train(command):
        result = cluster("mpirun", *command, options=["--hosts", "1", "--ranks-per-host", "2"])
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        return json.loads(result.stdout)

    def disturbed(self, what, seconds, ranks=2, iterations=100000000, *more):
        """(what happened, standard output, standard error) of a training that is disturbed after its first
        checkpoint."""
        checkpoint, output = self.path(self.id() + ".m"), self.path(self.id())
        command = self.command(ranks, iterations, "--save", checkpoint, "--save-every", SAVE_EVERY, *more)
        result = cluster("/usr/bin/env", "python3", __file__, "--inside", what, seconds, checkpoint, output, *command,
                         options=["--hosts", "2", "--ranks-per-host", str(ranks // 2), "--gb-per-s", "1.25"])
        self.assertEqual(result.returncode, 0, result.stderr)
        happened = json.loads(result.stdout.splitlines()[-1])
        error = pathlib.Path(output + ".err").read_text()
        said = [line for line in error.splitlines() if line.startswith(("ffexec: ", "mpirun noticed"))]
        print(f"\n{what} {seconds}: exit code {happened['exit_code']} after {happened['seconds']:.1f} s: {said}",
              flush=True)
        return happened, pathlib.Path(output + ".out").read_text(), error

    def goes_on_from_its_checkpoint(self):
        checkpoint = self.path(self.id() + ".m")
        with open(checkpoint, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        done = int(header["__metadata__"]["iterations"])
        self.assertEqual(done % SAVE_EVERY, 0)
        self.assertLess(done + 10, ITERATIONS, "the machine is so fast that ITERATIONS must grow")
        rest = self.train(self.command(2, 10, "--load", checkpoint))
        self.assertEqual(rest["losses"], self.losses[done:done + 10])
        self.assertEqual(list(pathlib.Path(self.folder.name).glob(self.id() + ".m?*")), [])  # half a file

    def ends_with_one_message(self, happened, error, code, lost_rank=1):
        messages = [line for line in error.splitlines() if line.startswith("ffexec: ") and ": note: " not in line]
        self.assertEqual(len(messages), 1, error)
        # Between two iterations there is no task.
        self.assertRegex(messages[0], r"^ffexec: rank \d on node\d: (task \S+: )?" + re.escape(LOST.format(lost_rank)))
        self.assertEqual(happened["exit_code"], code)
        self.assertLess(happened["seconds"], 2 * RANK_TIMEOUT_S + 10)
        self.assertEqual(happened["left_on_node0"], [])

    def ends_by_itself(self, what):
        happened, out, error = self.disturbed(what, "5", 2, ITERATIONS)
        self.assertEqual(happened["exit_code"], 0, error)
        self.assertEqual(json.loads(out)["losses"], self.losses)

    def test_a_killed_rank(self):
        happened, _, error = self.disturbed("kill", "ever")
        self.assertRegex(error, r"mpirun noticed that process rank 1 with PID \d+ on node node1 exited on signal 9")
        self.assertEqual(happened["exit_code"], 128 + signal.SIGKILL)
        self.assertLess(happened["seconds"], 20)
        self.assertEqual(happened["left_on_node0"], [])
        self.goes_on_from_its_checkpoint()

    def test_a_link_cut_for_5_seconds(self):
        self.ends_by_itself("cut")

    def test_a_host_that_stands_still_for_5_seconds(self):
        self.ends_by_itself("freeze")

    def test_a_link_cut_for_ever(self):
        happened, _, error = self.disturbed("cut", "ever", 2, 100000000, "--rank-timeout", RANK_TIMEOUT_S)
        self.ends_with_one_message(happened, error, -signal.SIGKILL)
        self.goes_on_from_its_checkpoint()

    def test_a_host_that_stands_still_for_ever(self):
        happened, _, error = self.disturbed("freeze", "ever", 2, 100000000, "--rank-timeout", RANK_TIMEOUT_S)
        self.ends_with_one_message(happened, error, -signal.SIGKILL)
        self.goes_on_from_its_checkpoint()

    def test_a_rank_that_stands_still_for_ever(self):
        happened, _, error = self.disturbed("freeze rank", "ever", 4, 100000000, "--rank-timeout", RANK_TIMEOUT_S)
        self.ends_with_one_message(happened, error, 3, lost_rank=2)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        sys.exit(inside(*sys.argv[2:]))
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    skip_where_impossible()
    unittest.main(verbosity=2)
