#!/usr/bin/python3
"""Validates committed files, the examples of docs/formats.md, and any files given as arguments against docs/schema/,
and checks that the committed graphs and topologies are what their generators write.

Prints each failure and "N passed, M failed"; exits 0, 1 when something failed, 77 (skipped) without python3-jsonschema.
"""

import json
import pathlib
import re
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "scripts"))

import generate_graphs  # noqa: E402
import generate_topologies  # noqa: E402

FORMATS = ("ffgraph", "fftopology", "ffprofile", "ffstrategy", "ffannotations")


def load_validators():
    """One validator a format; references between the schemas are resolved without a network."""
    folder = REPOSITORY / "docs" / "schema"
    schemas = {(folder / f"{name}.json").as_uri(): json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
               for name in FORMATS}
    validators = {}
    for name, (uri, schema) in zip(FORMATS, schemas.items()):
        jsonschema.Draft202012Validator.check_schema(schema)
        resolver = jsonschema.RefResolver(uri, schema, store=dict(schemas))
        validators[name + "/1"] = jsonschema.Draft202012Validator(schema, resolver=resolver)
    return validators


def undescribed_properties(schema, path=""):
    """Places of properties without a description: editors show it as help."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties" and not path.endswith(("/if", "/then")):
                yield from (f"{path}/properties/{name}" for name, field in value.items() if "description" not in field)
            yield from undescribed_properties(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from undescribed_properties(value, f"{path}/{index}")


def documents():
    """(where, text, expected format or None) of everything to validate."""
    for folder, expected in (("graphs", "ffgraph/1"), ("topologies", "fftopology/1"), ("profiles", "ffprofile/1")):
        for path in sorted((REPOSITORY / folder).glob("*.json")):
            yield f"{folder}/{path.name}", path.read_text(encoding="utf-8"), expected
    text = (REPOSITORY / "docs" / "formats.md").read_text(encoding="utf-8")
    for match in re.finditer(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 2
        yield f"docs/formats.md:{line}", match.group(1), None
    for argument in sys.argv[1:]:
        yield argument, pathlib.Path(argument).read_text(encoding="utf-8"), None


def problem(validators, text, expected):
    """What is wrong with a document, or None."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        return str(error)
    name = document.get("format") if isinstance(document, dict) else None
    if name not in validators or expected not in (None, name):
        return f"format {name!r}, expected {expected or ' or '.join(validators)}"
    error = jsonschema.exceptions.best_match(validators[name].iter_errors(document))
    return error and "/" + "/".join(map(str, error.absolute_path)) + ": " + error.message


LINK = {"bandwidth_gb_per_s": 82, "latency_us": 1}

# Each must be refused: (format, what makes a valid example of docs/formats.md invalid).
MUTATIONS = [
    ("ffgraph/1", lambda d: d.update(batchsize=1)),
    ("ffgraph/1", lambda d: d["inputs"][0].update(dtype="f64")),
    ("ffgraph/1", lambda d: d["inputs"][0]["shape"].__setitem__(0, 64)),
    ("ffgraph/1", lambda d: d["operators"][0]["attributes"].update(kernal=3)),
    ("ffgraph/1", lambda d: d["operators"][0].update(type="conv3d")),
    ("ffgraph/1", lambda d: d["operators"][0]["attributes"].pop("kernel")),
    ("fftopology/1", lambda d: d["nodes"].pop("network")),
    ("fftopology/1", lambda d: d["nodes"].update(torus={"shape": [2], "attach": "host", "link": LINK})),
    ("fftopology/1", lambda d: d.pop("nodes")),
    ("fftopology/1", lambda d: d["nodes"]["links"][0].update(bandwidth_gb_per_s=0)),
    ("fftopology/1", lambda d: d["nodes"]["devices"][0].update(kind="tpu")),
    ("ffprofile/1", lambda d: d["entries"].update({"sideways conv2d": {"us": 1, "samples": 1, "iqr_over_median": 0}})),
    ("ffprofile/1", lambda d: next(iter(d["entries"].values())).pop("us")),
    ("ffstrategy/1", lambda d: d["configurations"][0].update(device=[0])),
    ("ffstrategy/1", lambda d: d["configurations"][0]["degrees"].update(sample=0)),
    ("ffstrategy/1", lambda d: d["configurations"][0].update(devices="cpu0")),
    ("ffstrategy/1", lambda d: d["configurations"][0].update(origin="guessed")),
    ("ffstrategy/1", lambda d: d["configurations"][0].pop("operators")),
    ("ffstrategy/1", lambda d: d.update(configurations={"fc1": {"degrees": {}}})),
    ("ffstrategy/1", lambda d: d["graph"].pop("operators")),
    ("ffstrategy/1", lambda d: d["issue_order"].append("fc1")),
    ("ffstrategy/1", lambda d: (d.pop("issue_order"), d.update(micro_batches=2, schedule="fifo"))),
    ("ffstrategy/1", lambda d: d.update(micro_batches=2, schedule="1f1b")),
    ("ffannotations/1", lambda d: d["annotations"][0].update(operators="loss")),
    ("ffannotations/1", lambda d: d["annotations"][0].update(replicate=True)),
    ("ffannotations/1", lambda d: d["annotations"][0].pop("split")),
    ("ffannotations/1", lambda d: d["annotations"][0]["split"].clear()),
    ("ffannotations/1", lambda d: d["annotations"][0]["split"].update(sample=0)),
    ("ffannotations/1", lambda d: d["annotations"][1].update(replicate=False)),
    ("ffannotations/1", lambda d: (d["annotations"][1].pop("replicate"),
                                   d["annotations"][1].update(split={"channel": 2}))),
    ("ffannotations/1", lambda d: d["annotations"][2]["shard"].pop("devices")),
    ("ffannotations/1", lambda d: d["annotations"][3].pop("devices")),
]

# What is said of a mistake within configurations names its place and the wrong key: (what makes the mistake, the text).
MESSAGES = [
    (lambda d: d["configurations"][0].update(device=[0]), "/configurations/0: Additional properties are not allowed "
                                                          "('device' was unexpected)"),
    (lambda d: d["configurations"][0].pop("devices"), "/configurations/0: 'devices' is a required property"),
    (lambda d: d["configurations"][0]["degrees"].update(sample="2"),
     "/configurations/0/degrees/sample: '2' is not of type 'integer'"),
    (lambda d: d["configurations"][0].update(devices=[-1]),
     "/configurations/0/devices/0: -1 is less than the minimum of 0"),
]

# Each must be accepted: (format, what changes a valid example of docs/formats.md into another that the programs write).
CHANGES = [
    ("ffstrategy/1", lambda d: d["issue_order"].extend(["norm/forward_statistics/0", "norm/forward_reduction/0",
                                                        "norm/backward_reduction/0"])),
    ("ffstrategy/1", lambda d: d["configurations"][0].update(devices="0-3 + 0-8:4 each x2,7", origin="propagated")),
    ("ffstrategy/1", lambda d: (d.pop("issue_order"), d.update(micro_batches=2, schedule="1f1b"))),
    ("ffstrategy/1", lambda d: d.update(configurations={"fc1": {"degrees": {"sample": 2}, "devices": [0, "cpu1"]}})),
    ("ffstrategy/1", lambda d: d["provenance"].update(memory_bytes=[5952, 5952])),
    ("fftopology/1", lambda d: (d["nodes"].pop("network"),
                                d["nodes"].update(torus={"shape": [1, 2], "attach": "host", "link": LINK}))),
    ("ffgraph/1", lambda d: d["inputs"][0].update(steps=40)),
    ("ffannotations/1", lambda d: d["annotations"][2]["shard"].update(devices=["cpu0", 1])),
    ("ffannotations/1", lambda d: d["annotations"][0].update(description="tokens", split={"sample": 2, "length": 2})),
]


def generated():
    """(path, text) of every file that the generators write by default."""
    for name in generate_graphs.NETWORKS:
        yield REPOSITORY / "graphs" / f"{name}.json", generate_graphs.readable_json(generate_graphs.build(name)) + "\n"
    for name in generate_topologies.COMMITTED:
        yield REPOSITORY / "topologies" / f"{name}.json", generate_graphs.readable_json(
            generate_topologies.build(name)) + "\n"


def main():
    validators = load_validators()
    passed, failures = 0, []
    examples = {}
    for where, text, expected in documents():
        found = problem(validators, text, expected)
        if found:
            failures.append(f"{where}: {found}")
        else:
            passed += 1
            if where.startswith("docs/"):
                examples.setdefault(json.loads(text)["format"], text)
    for path, text in generated():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            passed += 1
        else:
            failures.append(f"{path.parent.name}/{path.name}: not what scripts/generate_{path.parent.name}.py writes; "
                            f"run it")
    for name, validator in validators.items():
        missing = list(undescribed_properties(validator.schema))
        failures += [f"docs/schema/{name[:-2]}.json: {place} has no description" for place in missing]
        passed += not missing
        if name not in examples:
            failures.append(f"docs/formats.md: no example of {name}")
    for number, (name, mutate) in enumerate(MUTATIONS):
        if name not in examples:
            continue
        document = json.loads(examples[name])
        mutate(document)
        if problem(validators, json.dumps(document), name):
            passed += 1
        else:
            failures.append(f"docs/schema/{name[:-2]}.json: accepts mutation {number} of the example, which it should "
                            f"refuse")
    for mutate, message in MESSAGES:
        if "ffstrategy/1" in examples:
            document = json.loads(examples["ffstrategy/1"])
            mutate(document)
            found = problem(validators, json.dumps(document), "ffstrategy/1")
            if found == message:
                passed += 1
            else:
                failures.append(f"docs/schema/ffstrategy.json: says {found!r}, expected {message!r}")
    for number, (name, change) in enumerate(CHANGES):
        if name in examples:
            document = json.loads(examples[name])
            change(document)
            found = problem(validators, json.dumps(document), name)
            if found:
                failures.append(f"docs/schema/{name[:-2]}.json: refuses change {number} of the example: {found}")
            else:
                passed += 1
    for failure in failures:
        print("FAILED", failure)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
