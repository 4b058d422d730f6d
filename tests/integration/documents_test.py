#!/usr/bin/python3
"""The documents against the source: links resolve, each page says for whom it is, the map of the source names what is
there, the reference explains each flag of the two programs and each field of their JSON. Usage:
documents_test.py [BUILD_DIR]; without it, flags and fields are not looked at."""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

from mpi_environment import mpi_environment  # noqa: E402
from wrap_markdown import too_long  # noqa: E402
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "profiles/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = ("common", "search", "executor", "tests", "scripts")


def flags(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


class Documents(unittest.TestCase):
    def test_lines_wrap_at_120_columns(self):
        for document in DOCUMENTS:
            for number, columns in too_long(document.read_text()):
                self.fail(f"{document.relative_to(ROOT)}:{number}: {columns} columns; run scripts/wrap_markdown.py")

    def test_each_page_says_of_what_kind_and_for_whom_it_is(self):
        kinds = "Overview|Index|Tutorial|How-to|Reference|Explanation|Results"
        for document in DOCUMENTS:
            if document.name not in ("CHANGELOG.md", "CONTRIBUTING.md"):
                beginning = " ".join(document.read_text().split("\n\n")[1].split())
                self.assertRegex(beginning, rf"^({kinds}), for .*\. (\*\*[^*]+\*\* )?After reading ",
                                 document.relative_to(ROOT))

    def test_pages_use_the_terms_of_the_field(self):
        words = ("share of a sum", "shares of a sum", "in vain", "as ready", "roomy", "what binds", "all the while",
                 "comes and goes", "what it would take", "samples a device")
        for document in DOCUMENTS:
            if document.name not in ("CHANGELOG.md", "design-notes.md"):
                text = " ".join(document.read_text().lower().split())
                found = [word for word in words if re.search(rf"\b{word}\b", text)]
                self.assertEqual(found, [], document.relative_to(ROOT))

    def test_links_resolve(self):
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
                if not target.startswith("http"):
                    self.assertTrue((document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}")

    def test_scripts_of_commands_can_be_run(self):
        for document in DOCUMENTS:
            for script in re.findall(r"^ *(scripts/[\w/]+\.(?:py|sh))", document.read_text(), re.MULTILINE):
                self.assertTrue(os.access(ROOT / script, os.X_OK), f"{document.relative_to(ROOT)}: {script}")
        for script in (ROOT / "scripts").glob("*.*"):
            if script.is_file() and script.read_bytes().startswith(b"#!"):
                self.assertTrue(os.access(script, os.X_OK), f"{script.name} has an interpreter and cannot be run")

    def test_links_to_sections_resolve(self):
        def anchor(heading):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"[`*]", "", heading))
            return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")

        def anchors(document):
            text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
            return {anchor(heading) for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)}

        known = {document.resolve(): anchors(document) for document in DOCUMENTS}
        for document in DOCUMENTS:
            for page, section in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text()):
                target = (document.parent / page if page else document).resolve()
                if target in known:
                    self.assertIn(section, known[target], f"{document.relative_to(ROOT)}: {page}#{section}")

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

    def test_the_reference_names_every_flag(self):
        if BUILD is None:
            self.skipTest("no build folder given")
        page = (ROOT / "docs/reference.md").read_text()
        sections = {title: body for title, body in re.findall(r"^## `?([^`\n]+)`?\n(.*?)(?=^## |\Z)", page,
                                                              re.MULTILINE | re.DOTALL)}
        shared = {"Search flags": "#search-flags", "Cost flags": "#cost-flags"}

        def help_of(command):
            program, *words = command.split()
            return subprocess.run([BUILD / program, *words, "--help"], capture_output=True, text=True, timeout=60,
                                  check=True).stdout

        subcommands = re.findall(r"^  ([a-z]+)  ", help_of("ffsearch").split("Subcommands:")[1], re.MULTILINE)
        self.assertIn("simulate", subcommands)
        for command in ("ffsearch", *(f"ffsearch {name}" for name in subcommands), "ffexec"):
            self.assertIn(command, sections, "docs/reference.md has no section of it")
            body = sections[command] + "".join(sections[title] for title, link in shared.items()
                                               if link in sections[command])
            # A flag is explained by a row of a table that begins with it.
            explained = {flag for row in re.findall(r"^\| ((?:`--[^|]*?`(?:, )?)+) \|", body.replace("\\|", "/"),
                                                    re.MULTILINE) for flag in flags(row)}
            known = {flag for line in help_of(command).splitlines() if re.match(r"\s+(-\w,)?--", line)
                     for flag in flags(line.strip().split()[0])}
            self.assertEqual(known - explained - {"--help", "--version"}, set(),
                             f"flags of {command} without a row in docs/reference.md")
            self.assertEqual(explained - known, set(), f"in docs/reference.md, but no flags of {command}")

    def test_the_page_of_json_has_every_field(self):
        if BUILD is None:
            self.skipTest("no build folder given")
        page = (ROOT / "docs/json-output.md").read_text()
        sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
        explained = {title: {field for row in re.findall(r"^\| (`[^|]*`) \|", body, re.MULTILINE)
                             for field in re.findall(r"`([^`]+)`", row)} for title, body in sections.items()}
        with tempfile.TemporaryDirectory() as work:
            for title, seen in json_of_every_command(pathlib.Path(work)):
                for field in fields(seen):
                    # A key that a map has at any place may be called NAME.
                    parts = field.split(".")
                    forms = {".".join("NAME" if index in places else part for index, part in enumerate(parts))
                             for count in range(3) for places in itertools.combinations(range(len(parts)), count)}
                    self.assertTrue(forms & explained[title],
                                    f"docs/json-output.md, {title}: no row of {field}")


def fields(value, name=""):
    """The fields of a JSON value: a.b, a[].b; an empty object has none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            # Names of links, buffers and kinds may have dots, which are no steps.
            yield from fields(inner, (name + "." if name else "") + key.replace(".", "_"))
    elif isinstance(value, list):
        if value and not any(isinstance(inner, dict) for inner in value):
            yield name + "[]"
        for inner in value:
            if isinstance(inner, dict):
                yield from fields(inner, name + "[]")
    else:
        yield name


def json_of_every_command(work):
    """(section of docs/json-output.md, what a command prints) for each command and what adds fields to it."""
    def run(program, *arguments, launcher=()):
        done = subprocess.run([*launcher, BUILD / program, *map(str, arguments), "--json"], capture_output=True,
                              text=True, timeout=300, check=False, env=mpi_environment())
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return json.loads(done.stdout)

    problem = ("--graph", ROOT / "graphs/lenet.json", "--topo", ROOT / "topologies/local-cpu-2.json", "--cost",
               "analytic", "--proposals", 200)
    plan, other = work / "plan.json", work / "other.json"
    yield "Search", run("ffsearch", *problem, "--check-local", "--out", plan)
    for algorithm in ("optcnn", "exhaustive", "reinforce", "sub-cluster", "data-parallel"):
        yield "Search", run("ffsearch", *problem, "--algorithm", algorithm, "--out", other)
    annotations = work / "annotations.json"
    annotations.write_text(json.dumps({"format": "ffannotations/1", "annotations": [
        {"operators": "fc1", "split": {"channel": 2}}]}))
    yield "Search", run("ffsearch", *problem, "--annotations", annotations, "--out", work / "annotated.json")
    yield "Search", run("ffsearch", "simulate", "--strategy", plan, "--background", other, "--cost", "analytic",
                        "--explain-costs")
    compared = run("ffsearch", "compare", *problem)
    for result in compared["algorithms"].values():
        yield ("Compare", {"algorithms": {"NAME": result}}) if "not_applicable" in result else ("Search", result)
    yield "Explain", run("ffsearch", "explain", "--strategy", plan, "--cost", "analytic", "--what-if", "batch 32")
    full = json.loads(other.read_text())  # data parallelism, on devices with too little memory
    full["topology"]["device_models"]["cpu"]["memory_bytes"] = 1200000
    (work / "full.json").write_text(json.dumps(full))
    yield "Explain", run("ffsearch", "explain", "--strategy", work / "full.json", "--cost", "analytic")
    yield "Edit", run("ffsearch", "edit", "--strategy", plan, "fc1: whole on 0", "--cost", "analytic")
    transformer = work / "transformer.json"
    run("ffsearch", "simulate", "--graph", ROOT / "graphs/llama-tiny.json", "--topo",
        ROOT / "topologies/local-cpu-2.json", "--settings", "tp=2", "--cost", "analytic", "--out", transformer)
    yield "Export", run("ffsearch", "export", "--strategy", transformer, "--for", "megatron", "--cost", "analytic")
    yield "Plan", run("ffsearch", "plan", "--graph", ROOT / "graphs/llama-tiny.json", "--topo",
                      ROOT / "topologies/local-cpu-2.json", "--cost", "analytic", "--top", 2, "--for", "megatron",
                      "--why", "tp", "--stages", "--what-if", "memory x0.9", "--largest-batch")
    yield "Search", run("ffsearch", "simulate", "--graph", ROOT / "graphs/llama-tiny.json", "--topo",
                        ROOT / "topologies/local-cpu-2.json", "--megatron", "--lr 1", "--cost", "analytic")
    (work / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
                                                  "vocab_size": 50, "n_positions": 64}))
    yield "Import", run("ffsearch", "import", work / "config.json", "--sequence", 8, "--batch", 4, "--out",
                        work / "imported.json")
    yield "Diff", run("ffsearch", "diff", plan, other, "--cost", "analytic")
    mpirun = ("mpirun", "-n", 2)
    yield "Train", run("ffexec", "--strategy", plan, "--iterations", 3, "--verify", launcher=map(str, mpirun))


if __name__ == "__main__":
    unittest.main(verbosity=2)
