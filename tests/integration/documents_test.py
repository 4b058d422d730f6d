#!/usr/bin/python3
"""The documents against the source: links resolve, the map of the source names what is there, the user guide names
every flag of the two programs and no other. Usage: documents_test.py [BUILD_DIR]; without it, flags are not looked
at."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "profiles/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = ("common", "search", "executor", "tests", "scripts")


def flags(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


class Documents(unittest.TestCase):
    def test_links_resolve(self):
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
                if not target.startswith("http"):
                    self.assertTrue((document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}")

    def test_the_map_names_every_folder_and_file(self):
        text = (ROOT / "docs/ARCHITECTURE.md").read_text()
        words = set(re.findall(r"[\w-]+", text))
        for top in SOURCES:
            for path in sorted((ROOT / top).rglob("*")):
                relative = path.relative_to(ROOT)
                if path.is_dir():
                    if path.name not in ("__pycache__", "cases"):
                        self.assertIn(path.name, words, f"{relative}/ is not named")
                # Operators, kernels and tests follow their folders' rules; of the others, each file is named, or begins
                # with a name and "_".
                elif path.suffix in (".h", ".cpp", ".py", ".sh") and top != "tests" and not {
                    "kernels", "operators", "reproduction", "graph_generator"} & set(path.parts):
                    stem = path.stem
                    self.assertTrue(stem in words or any(stem.startswith(word + "_") for word in words),
                                    f"{relative} is not named")
        for name in re.findall(r"([\w/-]+\.(?:sh|py|h|cpp|md))\b", text):
            if "FAMILY" not in name and name != "README.md":
                self.assertTrue(any(any((ROOT / top).rglob(pathlib.Path(name).name)) for top in SOURCES + ("docs",)),
                                f"{name} is named but not there")

    def test_manual_pages_and_completion_name_every_flag(self):
        if BUILD is None:
            self.skipTest("no build folder given")
        for program, commands in (("ffsearch", ("simulate", "edit", "compare", "profile", "topology", "explain",
                                               "diff")),
                                  ("ffexec", ())):
            def output(*arguments):
                return subprocess.run([BUILD / program, *arguments], capture_output=True, text=True, check=True,
                                      timeout=60).stdout
            manual, completion = output("--manual"), output("--completion")
            for command in ((), *((c,) for c in commands)):
                known = flags(output(*command, "--help"))
                shown = flags(manual.replace("\\-", "-").replace("\\fB", " "))
                self.assertEqual(known - shown, set(), "not in the manual page")
                completed = subprocess.run(
                    ["bash", "-c", f"{completion}\nCOMP_WORDS=({program} {' '.join(command)} --)\n"
                     f"COMP_CWORD={len(command) + 1}\n_{program}\necho ${{COMPREPLY[*]}}"],
                    capture_output=True, text=True, check=True, timeout=60).stdout.split()
                own = {flag for flag in known if f"  {flag}" in output(*command, "--help")}
                self.assertEqual(own - set(completed), set(), "not completed")
            if shutil.which("groff"):
                rendered = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=manual, capture_output=True,
                                          text=True, check=True, timeout=60)
                self.assertEqual(rendered.stderr, "")

    def test_the_version_names_the_commit(self):
        if BUILD is None:
            self.skipTest("no build folder")
        # Without git, or where it refuses another user's checkout, the build does not know the commit either.
        known = shutil.which("git") and subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True,
                                                       check=False).returncode == 0
        commit = r" \(commit [0-9a-f]{12}(, changed)?\)" if known else ""
        for program in ("ffsearch", "ffexec"):
            said = subprocess.run([BUILD / program, "--version"], capture_output=True, text=True, check=True,
                                  timeout=60).stdout
            self.assertRegex(said, rf"^{program} [0-9]+\.[0-9]+\.[0-9]+{commit}\n$")

    def test_the_user_guide_names_every_flag(self):
        if BUILD is None:
            self.skipTest("no build folder given")
        guide = (ROOT / "docs/user-guide.md").read_text()
        _, search, executor = re.split(r"^## (?:ffsearch|ffexec)$", guide, flags=re.MULTILINE)
        for part, commands in ((search, (["ffsearch"], ["ffsearch", "simulate"], ["ffsearch", "compare"],
                                         ["ffsearch", "profile"], ["ffsearch", "import"], ["ffsearch", "topology"],
                                         ["ffsearch", "explain"], ["ffsearch", "diff"],
                                         ["ffsearch", "edit"])), (executor, (["ffexec"],))):
            known = set()  # --mca is mpirun's
            for command in commands:
                known |= flags(subprocess.run([BUILD / command[0], *command[1:], "--help"], capture_output=True,
                                              text=True, check=True, timeout=60).stdout)
            self.assertEqual(known - flags(part) - {"--help", "--version"}, set(), "not in docs/user-guide.md")
            self.assertEqual(flags(part) - known - {"--mca"}, set(),
                             "in docs/user-guide.md, but unknown to the program")


if __name__ == "__main__":
    unittest.main(verbosity=2)
