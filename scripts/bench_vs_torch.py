#!/usr/bin/python3
"""Times training iterations of ffexec on one rank and PyTorch's on one thread: the same networks, batches and
optimizer (SGD with momentum), forward, backward and update on one synthetic batch that does not change.

    scripts/bench_vs_torch.py                                 all networks, five rounds
    scripts/bench_vs_torch.py --only alexnet lstm --rounds 9
    scripts/bench_vs_torch.py --out docs/results/vs-pytorch.md
    scripts/bench_vs_torch.py --python venv/bin/python        the PyTorch of another interpreter
    scripts/bench_vs_torch.py --device cuda --out docs/results/h200-vs-pytorch.md     on one GPU, with larger networks

The programs take turns, and a round's ratio is of measurements that follow each other; the table has medians over the
rounds. Before, the two sides must have the same number of parameters.

On a GPU both sides compute in the same precision (--precision), PyTorch with cuDNN's algorithms chosen by measurement
and without waiting for the GPU within blocks of ten iterations. --pytorch says how PyTorch runs there: eager, graph
(the whole iteration as one CUDA graph), compiled (torch.compile, with its CUDA graphs: mode "reduce-overhead") and
channels-last (images alone, as one CUDA graph, with images and weights in that memory format; it has to be the last
one). With bf16 PyTorch has torch.autocast.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import gpu_networks  # noqa: E402
from mpi_environment import mpi_environment  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
LEARNING_RATE, MOMENTUM = 1e-3, 0.9
REFERENCE_BLAS = "reference BLAS"
# name -> (what it is, kind of PyTorch model, graph file or arguments of generate_graphs.py, batch)
NETWORKS = {
    "alexnet": ("AlexNet", "images", "graphs/alexnet.json", 8),
    "resnet50": ("ResNet-50", "images", "graphs/resnet50.json", 4),
    "lstm": ("LSTM, 2 layers of 512, 20 steps", "lstm", ["rnnlm", "--width", "0.25", "--steps", "20"], 16),
    "transformer": ("Transformer, 2 layers of 512, 128 tokens", "transformer",
                    ["gpt2-small", "--width", "0.6667", "--layers", "2", "--steps", "128", "--vocabulary", "10000"], 4),
}
NETWORKS_ON_GPU = {  # in the order of their importance, should the time be up
    "gpt2-small": ("GPT-2 small", "transformer", "graphs/gpt2-small.json", 8),
    "resnet50": ("ResNet-50", "images", "graphs/resnet50.json", 64),
    "alexnet": ("AlexNet", "images", "graphs/alexnet.json", 256),
    "rnnlm": ("RNNLM", "lstm", "graphs/rnnlm.json", 64),
    "nmt": ("NMT", "translation", "graphs/nmt.json", 64),
    "inception_v3": ("Inception-v3", "images", "graphs/inception_v3.json", 64),
    "resnet101": ("ResNet-101", "images", "graphs/resnet101.json", 64),
}


# ---- PyTorch's side, in a process of its own: one JSON object on stdout

def pair(value):
    return tuple(value) if isinstance(value, list) else (value, value)


def image_model(torch, graph):
    """A network of images, operator by operator as the graph lists them; its modules are those that one would write by
    hand."""
    nn, functional = torch.nn, torch.nn.functional

    class Images(nn.Module):
        def __init__(self, shapes):
            super().__init__()
            self.layers, self.calls = nn.ModuleDict(), []
            uses = [name for op in graph["operators"] for name in op["inputs"]]
            for op in graph["operators"]:
                function = self.make(op, shapes, uses)
                if op["type"] == "softmax_cross_entropy":
                    self.scores = op["inputs"][0]
                    continue
                # a pass with one sample, to know the shapes; evaluation: batch_norm wants more than one value
                with torch.no_grad():
                    self.eval()
                    shapes[op["name"]] = function(*(shapes[name].clone() for name in op["inputs"]))
                self.calls.append((op["name"], op["inputs"], function))
            self.train()

        def make(self, op, shapes, uses):
            kind, attributes, shape = op["type"], op.get("attributes", {}), shapes[op["inputs"][0]].shape
            relu = attributes.get("activation") == "relu"
            if kind == "conv2d":
                module = nn.Conv2d(shape[1], attributes["out_channels"], pair(attributes["kernel"]),
                                   pair(attributes.get("stride", 1)),
                                   pair(attributes.get("padding", 0)), pair(attributes.get("dilation", 1)),
                                   attributes.get("groups", 1), attributes.get("bias", True))
            elif kind == "pool2d":
                kernel, padding = pair(attributes["kernel"]), pair(attributes.get("padding", 0))
                stride, ceil = pair(attributes.get("stride", attributes["kernel"])), attributes.get("ceil", False)
                if attributes.get("method", "max") == "max":
                    return nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil)
                return nn.AvgPool2d(kernel, stride, padding, ceil, attributes.get("count_padding", False))
            elif kind == "linear":
                module = nn.Linear(shape[1], attributes["out_features"], attributes.get("bias", True))
            elif kind == "batch_norm":
                module = nn.BatchNorm2d(shape[1], attributes.get("epsilon", 1e-5), attributes.get("momentum", 0.1))
            elif kind == "dropout":
                module = nn.Dropout(attributes.get("rate", 0.5))
            elif kind == "local_response_normalization":
                module = nn.LocalResponseNorm(attributes.get("size", 5), attributes.get("alpha", 1e-4),
                                              attributes.get("beta", 0.75), attributes.get("bias", 2))
            elif kind == "relu":
                return nn.ReLU(inplace=uses.count(op["inputs"][0]) == 1)
            elif kind == "add":
                return lambda first, *others: sum(others, first)
            elif kind == "concat":
                return lambda *tensors: torch.cat(tensors, attributes.get("axis", 1))
            elif kind == "flatten":
                return nn.Flatten()
            elif kind == "mean":
                return lambda x: x.mean((2, 3))
            elif kind == "softmax_cross_entropy":
                return None
            else:
                sys.exit(f"no PyTorch counterpart is written for the operator type {kind}")
            self.layers[op["name"].replace(".", "_")] = module
            return (lambda x: functional.relu_(module(x))) if relu else module

        def forward(self, image, label):
            tensors = {graph["inputs"][0]["name"]: image}
            for name, inputs, function in self.calls:
                tensors[name] = function(*(tensors[i] for i in inputs))
            return functional.cross_entropy(tensors[self.scores], label)

    image = graph["inputs"][0]
    model = Images({image["name"]: torch.zeros(1, *image["shape"][1:]), graph["inputs"][1]["name"]: torch.zeros(1)})
    classes = next(op for op in reversed(graph["operators"]) if op["type"] == "linear")["attributes"]["out_features"]
    batch = graph["batch_size"]
    return model, [torch.rand(batch, *image["shape"][1:]) * 2 - 1, torch.randint(classes, (batch,))]


def attributes_of(graph, kind):
    """The attributes of all operators of a type, one operator a parameter group."""
    groups = {op.get("parameters", op["name"]): op.get("attributes", {}) for op in graph["operators"]
              if op["type"] == kind}
    return list(groups.values())


def dropout_of(graph):
    rates = [attributes.get("rate", 0.5) for attributes in attributes_of(graph, "dropout")]
    return rates[0] if rates else 0.0


def lstm_model(torch, graph):
    nn, functional = torch.nn, torch.nn.functional
    embedding, layers, rate = attributes_of(graph, "embedding")[0], attributes_of(graph, "lstm"), dropout_of(graph)
    steps = next(value["steps"] for value in graph["inputs"] if "steps" in value)
    vocabulary, hidden = embedding["vocabulary"], layers[0]["hidden"]

    class LanguageModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, embedding["channels"])
            self.lstm = nn.LSTM(embedding["channels"], hidden, len(layers), dropout=rate)
            self.dropout = nn.Dropout(rate) if rate else nn.Identity()
            self.scores = nn.Linear(hidden, vocabulary)

        def forward(self, token, label):
            output, _ = self.lstm(self.dropout(self.embedding(token)))
            return functional.cross_entropy(self.scores(self.dropout(output)).flatten(0, 1), label.flatten())

    return LanguageModel(), [torch.randint(vocabulary, (steps, graph["batch_size"])) for _ in range(2)]


def translation_model(torch, graph):
    """Two layers of LSTM on each side; Luong et al. 2015 (arXiv 1508.04025), attention with the general score, without
    input feeding."""
    nn, functional = torch.nn, torch.nn.functional
    embeddings = {op["parameters"]: op["attributes"] for op in graph["operators"] if op["type"] == "embedding"}
    source, target = embeddings["source_embedding"], embeddings["target_embedding"]
    hidden = attributes_of(graph, "lstm")[0]["hidden"]
    steps = next(value["steps"] for value in graph["inputs"] if "steps" in value)

    class Translation(nn.Module):
        def __init__(self):
            super().__init__()
            self.source = nn.Embedding(source["vocabulary"], source["channels"])
            self.target = nn.Embedding(target["vocabulary"], target["channels"])
            self.encoder, self.decoder = nn.LSTM(source["channels"], hidden, 2), nn.LSTM(target["channels"], hidden, 2)
            self.score, self.combine = nn.Linear(hidden, hidden, bias=False), nn.Linear(2 * hidden, hidden, bias=False)
            self.output = nn.Linear(hidden, target["vocabulary"])

        def forward(self, source, target, label):
            states, last = self.encoder(self.source(source))
            queries, _ = self.decoder(self.target(target), last)
            states, queries = states.transpose(0, 1), queries.transpose(0, 1)  # [batch, step, channel]
            weights = (self.score(queries) @ states.transpose(1, 2)).softmax(2)
            attended = torch.tanh(self.combine(torch.cat((weights @ states, queries), 2)))
            return functional.cross_entropy(self.output(attended).flatten(0, 1), label.transpose(0, 1).flatten())

    vocabularies = (source["vocabulary"], target["vocabulary"], target["vocabulary"])
    return Translation(), [torch.randint(vocabulary, (steps, graph["batch_size"])) for vocabulary in vocabularies]


def transformer_model(torch, graph):
    nn, functional = torch.nn, torch.nn.functional
    embedding, attentions = attributes_of(graph, "embedding")[0], attributes_of(graph, "multi_head_attention")
    rate = dropout_of(graph)
    vocabulary, channels, heads = embedding["vocabulary"], embedding["channels"], attentions[0]["heads"]
    length = graph["inputs"][0]["shape"][1]
    linears = [op for op in graph["operators"] if op["type"] == "linear"]
    wide = linears[1]["attributes"]["out_features"]
    tables = [op for op in graph["operators"] if op["type"] == "embedding"]
    tied = linears[-1].get("parameters", linears[-1]["name"]) == tables[0].get("parameters", tables[0]["name"])
    bias = linears[-1].get("attributes", {}).get("bias", True)
    fused = getattr(functional, "scaled_dot_product_attention", None)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)

    def dropout():
        return nn.Dropout(rate) if rate else nn.Identity()

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.queries_keys_values, self.project = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.wide, self.narrow = nn.Linear(channels, wide), nn.Linear(wide, channels)
            self.dropout1, self.dropout2 = dropout(), dropout()

        def attention(self, x):
            query, key, value = (part.unflatten(2, (heads, channels // heads)).transpose(1, 2)
                                 for part in self.queries_keys_values(x).chunk(3, 2))
            if fused:
                result = fused(query, key, value, is_causal=True)
            else:
                weights = (query @ key.transpose(2, 3)) * (channels // heads) ** -0.5
                result = weights.masked_fill(later.to(x.device), float("-inf")).softmax(3) @ value
            return self.project(result.transpose(1, 2).flatten(2))

        def forward(self, x):
            x = x + self.dropout1(self.attention(self.norm1(x)))
            return x + self.dropout2(self.narrow(functional.gelu(self.wide(self.norm2(x)))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, channels)
            self.positions = nn.Parameter(torch.randn(length, channels))
            self.blocks = nn.Sequential(*(Block() for _ in attentions))
            self.norm, self.scores = nn.LayerNorm(channels), nn.Linear(channels, vocabulary, bias)
            self.dropout = dropout()
            if tied:
                self.scores.weight = self.embedding.weight

        def forward(self, token, label):
            x = self.norm(self.blocks(self.dropout(self.embedding(token) + self.positions)))
            return functional.cross_entropy(self.scores(x).flatten(0, 1), label.flatten())

    return Transformer(), [torch.randint(vocabulary, (graph["batch_size"], length)) for _ in range(2)]


def loaded_blas():
    """The BLAS library that this process has loaded, or None: PyTorch's own builds hold one inside."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {os.path.realpath(line.split()[-1])
                 for line in maps if re.search(r"/lib(blas|openblas|mkl_rt|blis)[^/]*\.so", line)}
    for path in paths:  # Debian's OpenBLAS comes as a libblas that loads it
        if found := re.search(r"libopenblas.*-r([\d.]+\d)", path):
            return f"OpenBLAS {found.group(1)}"
    return REFERENCE_BLAS if any("/blas/libblas" in path for path in paths) else ", ".join(sorted(paths)) or None


MODELS = {"images": image_model, "lstm": lstm_model, "transformer": transformer_model, "translation": translation_model}


def captured(torch, step):
    """A function that repeats the step as one CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def pytorch_side(kind, graph_path, iterations, device, precision, modes):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    graph = json.loads(pathlib.Path(graph_path).read_text(encoding="utf-8"))
    on_gpu, tf32 = device == "cuda", precision != "fp32"
    if on_gpu:
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    model, batch = MODELS[kind](torch, graph)
    model, batch = model.to(device), [tensor.to(device) for tensor in batch]
    # Here, as PyTorch's LSTM has two biases that are only ever added, and the second one does not count.
    parameters = sum(value.numel() for name, value in model.named_parameters()
                     if not re.search(r"\.bias_hh_l\d+$", name))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    half = (lambda: torch.autocast(device, torch.bfloat16)) if precision == "bf16" else contextlib.nullcontext

    def times_of(mode):
        nonlocal batch
        if mode == "channels-last":
            if kind != "images":
                raise ValueError("no images")
            model.to(memory_format=torch.channels_last)
            batch = [tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
                     for tensor in batch]
        forward = torch.compile(model, mode="reduce-overhead") if mode == "compiled" else model

        def step():
            optimizer.zero_grad(set_to_none=True)  # faster than zeros to add to
            with half():
                loss = forward(*batch)
            loss.backward()
            optimizer.step()
            return loss

        block = 10 if on_gpu else 1
        repeat = captured(torch, step) if mode in ("graph", "channels-last") else step
        times = []
        for _ in range(math.ceil(iterations / block) + (1 if on_gpu else 0)):
            begin = time.perf_counter()
            for _ in range(block):
                loss = repeat()
            value = loss.item()  # waits
            times.append((time.perf_counter() - begin) / block)
            if not math.isfinite(value):
                sys.exit("PyTorch's loss is not finite")
        return times

    times, failures = {}, {}
    for mode in modes.split(","):
        try:
            times[mode] = times_of(mode)
        except Exception as error:  # not every model can be captured or compiled
            if mode == "eager":
                raise
            failures[mode] = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    configuration = torch.__config__.show()
    onednn = re.search(r"MKL-?DNN v([\d.]+)", configuration)
    if kind == "images" and not torch.backends.mkldnn.is_available():
        onednn = None
    math_library = re.search(r"Math Kernel Library Version ([\d.]+)", configuration)
    capability = re.search(r"CPU capability usage: (\S+)", configuration)
    print(json.dumps({"times": times, "failures": failures, "parameters": parameters, "version": torch.__version__,
                      "onednn": onednn and onednn.group(1),
                      "gpu": torch.cuda.get_device_name() if on_gpu else None, "cudnn": torch.backends.cudnn.version()
                      if on_gpu else None,
                      "blas": f"MKL {math_library.group(1)}" if math_library else loaded_blas(),
                      "capability": capability and capability.group(1)}))


# ---- the comparison

def run(command, environment=None):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def join_outputs(graph):
    """One linear and one loss over all steps, stacked, instead of one a step: what PyTorch's module does, too."""
    scores = [op for op in graph["operators"] if op["name"].startswith("output.t")]
    vocabulary = scores[0]["attributes"]["out_features"]
    graph["operators"] = [op for op in graph["operators"] if not op["name"].startswith(("output.t", "loss.t"))]
    graph["operators"] += [{"name": "hidden", "type": "stack", "inputs": [op["inputs"][0] for op in scores]},
                           {"name": "output", "type": "linear", "inputs": ["hidden"],
                            "attributes": {"out_features": vocabulary}},
                           {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["output", "label"]}]
    for value in graph["inputs"]:
        if value["name"] == "label":
            value["shape"] = ["batch", value.pop("steps")]


class Benchmark:
    def __init__(self, name, arguments, work):
        self.title, self.kind, source, batch = arguments.networks[name]
        self.batch, self.arguments, self.on_gpu = batch, arguments, arguments.device == "cuda"
        self.environment = mpi_environment(MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        if isinstance(source, list):
            path = run([REPOSITORY / "scripts/generate_graphs.py", *source, "--batch", batch, "--out", work]).strip()
        else:
            path = REPOSITORY / source
        graph = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        graph["batch_size"] = batch
        if self.kind in ("lstm", "translation"):
            join_outputs(graph)
        graph.pop("$schema", None)
        self.graph, self.strategy = work / f"{name}.json", work / f"{name}.strategy.json"
        self.checkpoint = work / "parameters.safetensors"
        self.graph.write_text(json.dumps(graph), encoding="utf-8")
        run([arguments.build / "ffsearch", "--graph", self.graph, "--topo",
             REPOSITORY / f"topologies/{arguments.model if self.on_gpu else 'local-cpu'}-1.json", "--cost", "analytic",
             "--algorithm", "data-parallel", "--quiet", "--out", self.strategy])

    def ffexec(self, iterations, *extra):
        return json.loads(run([self.arguments.build / "ffexec", "--strategy", self.strategy, "--iterations", iterations,
                               "--lr", LEARNING_RATE,
                               "--momentum", MOMENTUM, "--seed", 1, "--json", "--backend", self.arguments.device,
                               "--precision", self.arguments.precision, *extra],
                              self.environment))

    def pytorch(self, iterations, modes):
        # glibc would hand large gradients back to the system in each iteration: without this AlexNet takes 1.3 times as
        # long.
        environment = dict(self.environment, MALLOC_MMAP_THRESHOLD_=str(1 << 32), MALLOC_TRIM_THRESHOLD_=str(1 << 35),
                           MALLOC_TOP_PAD_=str(1 << 28))
        return json.loads(run([self.arguments.python, __file__, "--pytorch-side", self.kind, self.graph, iterations,
                               self.arguments.device, self.arguments.precision, ",".join(modes)],
                              environment).splitlines()[-1])

    def of_pytorch(self, iterations):
        """(milliseconds an iteration by mode, about PyTorch); NaN where a mode fails, with a note."""
        about = self.pytorch(iterations, self.arguments.pytorch)
        for mode, failure in about["failures"].items():
            print(f"{self.title}: PyTorch {mode}: {failure}", file=sys.stderr, flush=True)
        return [statistics.median(about["times"][mode][1:] or about["times"][mode]) * 1e3
                if mode in about["times"] else math.nan for mode in self.arguments.pytorch], about

    def compare(self, mine, about):
        if about["blas"] == REFERENCE_BLAS and not self.on_gpu and not self.arguments.any_blas:
            sys.exit("PyTorch uses the slow reference BLAS; for a fair comparison: apt-get install "
                     "libopenblas0-serial, or give --any-blas")
        if mine != about["parameters"]:
            sys.exit(f"{self.title}: not the same network: {mine:,} parameters in ffexec, {about['parameters']:,} in "
                     f"PyTorch")

    def parameters_of_ffexec(self):
        with open(self.checkpoint, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        self.checkpoint.unlink()
        return sum(math.prod(entry["shape"]) for name, entry in header.items()
                   if name != "__metadata__" and not name.endswith((".velocity", ".running_mean", ".running_variance")))

    def measure(self):
        """(rounds of (ffexec ms, PyTorch ms in each mode), parameters, about PyTorch)."""
        first_ms = self.ffexec(3, "--save", self.checkpoint)["measured_us"] * 1e-3
        mine = self.parameters_of_ffexec()
        if not self.on_gpu:  # PyTorch's time too, which is much longer where it has a slow BLAS
            theirs_ms, about = self.of_pytorch(3)
            self.compare(mine, about)
            first_ms = max(first_ms, *theirs_ms)
        iterations = max(5, min(300, round(self.arguments.seconds * 1e3 / first_ms)))
        rounds = []
        for number in range(self.arguments.rounds):
            def ours():
                return self.ffexec(iterations)["measured_us"] * 1e-3

            if number % 2:
                (theirs, about), own = self.of_pytorch(iterations + (0 if self.on_gpu else 1)), ours()
            else:
                own, (theirs, about) = ours(), self.of_pytorch(iterations + (0 if self.on_gpu else 1))
            self.compare(mine, about)
            rounds.append((own, *theirs))
            text = ", ".join(f"{mode} {ms:.2f} ms" for mode, ms in zip(self.arguments.pytorch, theirs))
            print(f"{self.title}, round {number + 1} of {self.arguments.rounds}: ffexec {own:.2f} ms, PyTorch {text} "
                  f"({iterations} iterations each)", file=sys.stderr, flush=True)
        return rounds, mine, about


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                    "unknown processor")


def onednn_of(program):
    """The version of the library that a program loads: the package's, else that of its file name."""
    found = re.search(r"=> (\S*/libdnnl\S*)", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
    if not found:
        return "none"
    file = os.path.realpath(found.group(1))
    package = subprocess.run(["dpkg-query", "--search", f"*/{os.path.basename(file)}"], capture_output=True,
                             text=True).stdout.split(":")[0]
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                             text=True).stdout if package else ""
    return version.split("-")[0] or re.sub(r".*\.so\.?", "", file)


def report(results, arguments):
    about = next(iter(results.values()))[2]
    if arguments.device == "cuda":
        versions = (f"{run([arguments.build / 'ffexec', '--version']).strip()} ({arguments.build.name} build) and "
                    f"PyTorch {about['version']} (cuDNN {about['cudnn']}), "
                    f"{about['gpu']}, {arguments.precision}")
    else:
        versions = (f"{run([arguments.build / 'ffexec', '--version']).strip()} ({arguments.build.name} build, oneDNN "
                    f"{onednn_of(arguments.build / 'ffexec')}); "
                    f"PyTorch {about['version']} (oneDNN {about['onednn'] or 'off'}, BLAS "
                    f"{about['blas'] or 'built in'}, {about['capability'] or 'unknown'} kernels)")
    modes = arguments.pytorch
    columns = [f"PyTorch{'' if modes == ['eager'] else ', ' + mode} ms" for mode in modes]
    lines = [f"| network | parameters | batch | ffexec ms | {' | '.join(columns)} | PyTorch / ffexec "
             "| over the rounds |",
             "|---|---|---|---|---|---|" + "---|" * len(modes)]
    for name, (rounds, parameters, _) in results.items():
        medians = [statistics.median(column) for column in zip(*rounds)]
        best = min(range(1, len(medians)), key=lambda i: math.inf if math.isnan(medians[i]) else medians[i])
        ratios = [times[best] / times[0] for times in rounds]
        theirs = " | ".join("failed" if math.isnan(value) else f"{value:.1f}" for value in medians[1:])
        lines.append(f"| {arguments.networks[name][0]} | {parameters * 1e-6:.1f} M | {arguments.networks[name][3]} | "
                     f"{medians[0]:.1f} | {theirs} | {statistics.median(ratios):.2f} "
                     f"| {min(ratios):.2f} to {max(ratios):.2f} |")
    return versions, "\n".join(lines)


def main():
    if sys.argv[1:2] == ["--pytorch-side"]:
        return pytorch_side(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:8])
    parser = argparse.ArgumentParser(description="Times training iterations of ffexec on one rank and PyTorch's on "
                                     "one thread.")
    parser.add_argument("--only", nargs="+", metavar="NETWORK",
                        help=f"any of: {', '.join(NETWORKS)}; with --device cuda: {', '.join(NETWORKS_ON_GPU)}")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: cpu")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32",
                        help="of both sides; default: fp32")
    parser.add_argument("--pytorch", nargs="+", choices=["eager", "graph", "compiled", "channels-last"],
                        default=["eager"], metavar="MODE", help="how PyTorch runs: eager, graph, compiled, "
                        "channels-last (a GPU); the ratio is of the fastest; default: eager")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side, in turn; default: 5")
    parser.add_argument("--seconds", type=float, default=5, help="length of a measurement, about; default: 5")
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR", help="default: build/release, else build/dev")
    parser.add_argument("--python", default="/usr/bin/python3",
                        help="interpreter that has PyTorch; default: /usr/bin/python3")
    parser.add_argument("--any-blas", action="store_true", help="measure PyTorch with the reference BLAS, too")
    parser.add_argument("--within", type=float, metavar="SECONDS",
                        help="begin no network that would take longer, going by the longest so far")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the result as Markdown")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: expected at least 1")
    if arguments.device == "cpu" and arguments.pytorch != ["eager"]:
        parser.error("--pytorch: all but eager need --device cuda")
    if arguments.device == "cuda":
        try:
            arguments.model = gpu_networks.model_of(gpu_networks.gpu_name())
        except RuntimeError as error:
            sys.exit(str(error))
    arguments.networks = NETWORKS_ON_GPU if arguments.device == "cuda" else NETWORKS
    for name in arguments.only or []:
        if name not in arguments.networks:
            parser.error(f"--only: no network {name}; known: {', '.join(arguments.networks)}")
    builds = [arguments.build] if arguments.build else [REPOSITORY / "build/release", REPOSITORY / "build/dev"]
    arguments.build = next((build.resolve() for build in builds if (build / "ffexec").exists()), None)
    if arguments.build is None:
        sys.exit("no ffexec in " + " or ".join(map(str, builds)) + "; build it: cmake --preset release && cmake "
                 "--build --preset release")
    if subprocess.run([arguments.python, "-c", "import torch"], capture_output=True).returncode != 0:
        sys.exit(f"{arguments.python} has no PyTorch: apt-get install python3-torch libopenblas0-serial, or give "
                 f"--python")
    results = {}
    with tempfile.TemporaryDirectory() as work:
        begin, longest = time.monotonic(), 0.0
        for name in arguments.only or arguments.networks:
            started = time.monotonic()
            if results and arguments.within and started - begin + longest > arguments.within:
                print(f"{name} and what follows: no time left", file=sys.stderr)
                break
            results[name] = Benchmark(name, arguments, pathlib.Path(work)).measure()
            if arguments.out:
                write(results, arguments)  # what is measured stays when the rest is not
            longest = max(longest, time.monotonic() - started)
    versions, table = report(results, arguments)
    print(f"{versions}\n\n{table}")


def write(results, arguments):
    versions, table = report(results, arguments)
    about = (f"Median of {arguments.rounds} rounds in which they take turns, each the median of its iterations in "
             f"about {arguments.seconds:g} s; "
             "the last column has the\nsmallest and the largest ratio of a round.")
    if arguments.device == "cuda":
        text = (f"# One training iteration on a GPU, compared with PyTorch\n\nOne rank; SGD with momentum, synthetic "
                f"data. {about} {versions}.\n"
                f"Repeat with `scripts/bench_vs_torch.py --device cuda --precision {arguments.precision} --out "
                f"FILE`.\n\n{table}\n")
    else:
        text = (f"# One training iteration, compared with PyTorch\n\nResults, for readers who want to know how fast "
                f"`ffexec`'s kernels are. After reading you know how long a\ntraining iteration takes on one CPU rank, "
                f"compared with PyTorch. No GPU was used.\n\n{processor()}; one rank, one thread "
                f"each; SGD with momentum, synthetic data. {about} "
                f"PyTorch's memory allocator is told to keep freed memory, which helps it. {versions}.\nRepeat with "
                f"`scripts/bench_vs_torch.py --out FILE`.\n\n{table}\n")
    temporary = arguments.out.with_name(arguments.out.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, arguments.out)


if __name__ == "__main__":
    main()
