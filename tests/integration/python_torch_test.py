#!/usr/bin/env python3
"""The Python package with PyTorch: networks are exported, imported, trained for ten iterations on two ranks, and loaded
by PyTorch, whose loss is then that of ffexec; PyTorch's own ten iterations have the same losses. And what is refused.
Usage: python_torch_test.py BUILD_DIRECTORY. Exits 77 (skipped) without PyTorch or in a build without ONNX import."""
import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "python"))
BUILD = os.path.abspath(sys.argv.pop(1))
os.environ["FFSEARCH_BIN"] = BUILD
import ffsearch  # noqa: E402

SAMPLES = 12


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 24), nn.GELU(), nn.Linear(24, 5))

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 5)

    def forward(self, image):
        x = F.silu(self.norm(self.first(image)))
        x = F.avg_pool2d(x + F.silu(self.norm2(self.second(x))), 2)
        return self.fc(torch.flatten(x, 1))


class Transformer(nn.Module):
    def __init__(self, unused=False):
        super().__init__()
        self.embed, self.position = nn.Embedding(40, 16), nn.Parameter(0.1 * torch.randn(1, 9, 16))
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)
        self.scores = nn.Linear(16, 40)
        if unused:
            self.spare = nn.Linear(3, 3)

    def forward(self, token):
        x = self.embed(token) + self.position
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.scores(x + self.narrow(F.gelu(self.wide(self.norm2(x)))))


class LstmLanguageModel(nn.Module):
    """The second of PyTorch's two biases is held still, as their sum is one parameter here."""

    def __init__(self, one_bias=True):
        super().__init__()
        self.embed, self.scores = nn.Embedding(40, 12), nn.Linear(12, 40)
        self.lstm = nn.LSTM(12, 12, 2, batch_first=True)
        for name, parameter in self.lstm.named_parameters():
            parameter.requires_grad_(not (one_bias and name.startswith("bias_hh")))

    def forward(self, token):
        return self.scores(self.lstm(self.embed(token))[0])


def images():
    return torch.randn(SAMPLES, 3, 8, 8), torch.randint(0, 5, (SAMPLES,))


def tokens():
    return torch.randint(0, 40, (SAMPLES, 9)), torch.randint(0, 40, (SAMPLES, 9))


NETWORKS = {Mlp: lambda: (torch.randn(SAMPLES, 20), torch.randint(0, 5, (SAMPLES,))), Cnn: images, Transformer: tokens,
            LstmLanguageModel: tokens}


def loss_of(model, inputs, label):
    scores = model(inputs)
    return F.cross_entropy(scores.flatten(0, -2), label.flatten())


def train_in_pytorch(model, optimizer, inputs, label):
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class PythonTorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def assert_near(self, found, expected, tolerance=1e-5):
        self.assertLess(abs(found - expected), tolerance * abs(expected), f"found {found}, expected {expected}")

    def round_trip(self, network, optimizer):
        """Ten iterations here and in PyTorch, both with the optimizer's settings."""
        model = network()
        inputs, label = NETWORKS[network]()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        graph = ffsearch.from_torch(model, inputs[:3], batch=SAMPLES, optimizer=optimizer(model.parameters()))
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        plan = ffsearch.search(graph, ffsearch.Topology.named("local-cpu-2"), cost="analytic",
                               algorithm="data-parallel")
        run = plan.train((inputs, label), evaluate=(inputs, label))
        theirs = copy.deepcopy(model)
        losses = train_in_pytorch(theirs, optimizer([p for p in theirs.parameters() if p.requires_grad]), inputs, label)
        for found, expected in zip(run.losses, losses):
            self.assert_near(found, expected, 1e-4)
        self.assertLess(losses[-1], 0.97 * losses[0])

        ffsearch.to_torch(run, model)
        self.assertIs(type(model), network)
        again = plan.train((inputs, label), start=run, iterations=1)
        self.assert_near(loss_of(model.train(), inputs, label).item(), again.losses[0])
        model.load_state_dict(before)
        ffsearch.to_torch(run.checkpoint, model)  # which the training's own step of batch statistics has not touched
        self.assert_near(loss_of(model.eval(), inputs, label).item(), run.evaluation.loss)
        self.assert_near(loss_of(theirs.eval(), inputs, label).item(), run.evaluation.loss, 1e-3)

    def test_ten_iterations(self):
        for network in NETWORKS:
            rate = 10 if network is LstmLanguageModel else 1
            for name, optimizer in (
                    ("sgd", lambda parameters, rate=rate: torch.optim.SGD(parameters, lr=0.1 * rate, momentum=0.9,
                                                                          weight_decay=1e-3)),
                    ("adamw", lambda parameters, rate=rate: torch.optim.AdamW(parameters, lr=0.01 * rate,
                                                                              betas=(0.9, 0.98), weight_decay=0.02))):
                with self.subTest(network=network.__name__, optimizer=name):
                    self.round_trip(network, optimizer)

    def test_one_step_against_pytorch(self):
        for network, data in NETWORKS.items():
            with self.subTest(network=network.__name__):
                model, batch = network(), data()
                found = ffsearch.check(ffsearch.from_torch(model, batch[0]), model, batch)
                self.assertLess(found.loss_error, 1e-6)
                self.assertLess(found.gradient_error, 1e-5)
                self.assertTrue(0 < found.torch_gradient_error < 1e-5)

    def test_both_biases_of_an_lstm(self):
        model, (inputs, label) = LstmLanguageModel(one_bias=False), tokens()
        graph = ffsearch.from_torch(model, inputs)
        self.assertEqual([each.reason for each in graph.summary.initializers if each.name.endswith("bias_hh_l0")],
                         ["lstm.l0.bias"])
        plan = ffsearch.search(graph, ffsearch.Topology.named("local-cpu-1"), cost="analytic")
        run = plan.train((inputs, label), iterations=3, lr=0.1)
        again = plan.train((inputs, label), iterations=1, start=run)
        ffsearch.to_torch(run, model)
        self.assert_near(loss_of(model, inputs, label).item(), again.losses[0])

    def test_what_gets_no_gradient_is_not_trained(self):
        model, (inputs, label) = Transformer(unused=True), tokens()
        graph = ffsearch.from_torch(model, inputs)
        self.assertEqual(graph.notes[-1], "no gradient reaches 2 parameters, which are not trained: spare.weight, "
                                          "spare.bias")
        kept = model.spare.weight.clone()
        plan = ffsearch.search(graph, ffsearch.Topology.named("local-cpu-1"), cost="analytic")
        ffsearch.to_torch(plan.train((inputs, label), iterations=2, lr=0.1), model)
        self.assertTrue(torch.equal(model.spare.weight, kept))

    def test_frozen_layers(self):
        """A backbone that is not trained, and a normalization without parameters: one step against PyTorch; frozen
        weights come back as they were."""
        for norm in (nn.BatchNorm2d(8), nn.BatchNorm2d(8, affine=False)):
            model, (image, label) = Cnn(), images()
            model.norm = norm
            for layer in (model.first, model.norm2):
                layer.requires_grad_(False)
            graph = ffsearch.from_torch(model, image)
            constant = [each["name"] for each in graph.data["operators"]
                        if each.get("attributes", {}).get("trained") is False]
            self.assertEqual(len(constant), 2 if norm.affine else 3)
            found = ffsearch.check(graph, model, (image, label))
            self.assertLess(found.loss_error, 1e-6)
            self.assertLess(found.gradient_error, 1e-5)
            plan = ffsearch.search(graph, ffsearch.Topology.named("local-cpu-2"), cost="analytic",
                                   algorithm="data-parallel")
            before = {name: value.clone() for name, value in model.named_parameters()}
            ffsearch.to_torch(plan.train((image, label), iterations=2, lr=0.1), model)
            for name, value in model.named_parameters():
                self.assertEqual(torch.equal(value, before[name]), not value.requires_grad, name)

    def test_maxima_far_apart(self):
        """The padding of a maximum is a very low number, from which a difference has no digits left."""
        class Pools(nn.Module):
            def __init__(self, **pool):
                super().__init__()
                self.conv, self.pool, self.fc = nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(**pool), nn.LazyLinear(5)

            def forward(self, image):
                return self.fc(torch.flatten(self.pool(self.conv(image) - 5), 1))

        image, label = torch.randn(SAMPLES, 1, 9, 9), torch.randint(0, 5, (SAMPLES,))
        for pool in (dict(kernel_size=3, stride=1, padding=1, dilation=2),
                     dict(kernel_size=(2, 3), stride=2, dilation=2, ceil_mode=True)):
            model = Pools(**pool)
            model(image)
            found = ffsearch.check(ffsearch.from_torch(model, image), model, (image, label))
            self.assertLess(found.loss_error, 1e-6)
            self.assertLess(found.gradient_error, 1e-5)

    def test_the_model_is_as_before(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5))
        model.eval()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        generator = torch.random.get_rng_state()
        graph = ffsearch.from_torch(model, torch.randn(2, 3, 8, 8, generator=torch.Generator()), name="small")
        self.assertEqual(graph.name, "small")
        self.assertIn("dropout", [each["type"] for each in graph.data["operators"]])
        self.assertTrue(torch.equal(torch.random.get_rng_state(), generator))
        self.assertNotIn("forward", model.__dict__)
        self.assertFalse(any(module.training for module in model.modules()))
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)
        with self.assertRaises(ffsearch.InputError) as raised:
            ffsearch.check(graph, model, images())
        self.assertIn("dropout", str(raised.exception))

    def test_outputs_that_are_no_tensors(self):
        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.other = nn.Linear(20, 5), nn.Linear(20, 5)

            def forward(self, x, scale=None):
                return {"logits": self.fc(x), "hidden": x}

        with self.assertRaises(ffsearch.InputError) as raised:
            ffsearch.from_torch(Named(), torch.randn(2, 20))
        self.assertEqual(str(raised.exception),
                         'Named returns a dict, expected a tensor or a tuple of tensors; output="logits" (a name, an '
                         "index or a function) picks what the loss reads")
        for output in ("logits", lambda outputs: outputs["logits"]):
            graph = ffsearch.from_torch(Named(), {"x": torch.randn(2, 20)}, output=output)
            self.assertEqual([each.name for each in graph.inputs], ["x", "label"])

    def test_optimizers_of_torch(self):
        parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))]
        graph = ffsearch.Graph.named("lenet")
        sgd = graph.with_optimizer(torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01))
        self.assertEqual(sgd.optimizer, {"type": "sgd", "learning_rate": 0.1, "weight_decay": 0.01, "momentum": 0.9})
        adam = graph.with_optimizer(torch.optim.Adam(parameters, lr=0.1))
        self.assertEqual(adam.optimizer, {"type": "adam", "learning_rate": 0.1, "weight_decay": 0.0,
                                          "betas": [0.9, 0.999], "epsilon": 1e-8})
        groups = [{"params": parameters[:1], "weight_decay": 0.1}, {"params": parameters[1:], "weight_decay": 0.0}]
        for optimizer, message in (
                (torch.optim.AdamW(groups), "optimizer: its groups of parameters differ in weight_decay: 0.1, 0.0; "
                                            "ffexec has one for all"),
                (torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
                 "optimizer: nesterov is not supported"),
                (torch.optim.RMSprop(parameters), "optimizer: found RMSprop, expected SGD, Adam or AdamW of "
                                                  "torch.optim, or a dictionary")):
            with self.assertRaises(ffsearch.InputError) as raised:
                graph.with_optimizer(optimizer)
            self.assertEqual(str(raised.exception), message)

    def test_data_sets(self):
        model, (inputs, label) = Mlp(), NETWORKS[Mlp]()
        plan = ffsearch.search(ffsearch.from_torch(model, inputs), ffsearch.Topology.named("local-cpu-1"),
                               cost="analytic", proposals=10)
        dataset = torch.utils.data.TensorDataset(inputs, label)
        expected = plan.train({"x": inputs, "label": label}, iterations=2).losses
        for data in (dataset, torch.utils.data.Subset(dataset, range(SAMPLES)), (inputs.numpy(), label.numpy()),
                     (inputs.double(), label.int())):
            self.assertEqual(plan.train(data, iterations=2).losses, expected)

    def test_examples(self):
        """Those of scripts/python/examples, made short."""
        try:
            import torchvision  # noqa: F401
            examples = [["resnet18.py", "--size", "32", "--batch", "4", "--iterations", "2"]]
        except ImportError:
            examples = []
        root = pathlib.Path(__file__).resolve().parents[2]
        examples.append(["gpt.py", root / "LICENSE", "--batch", "4", "--iterations", "2"])
        environment = {**os.environ, "PYTHONPATH": str(root / "scripts/python"), "PYTHONDONTWRITEBYTECODE": "1"}
        for name, *arguments in examples:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, root / "scripts/python/examples" / name, *arguments, "--budget",
                                       "2s", "--cost", "analytic"], cwd=folder, env=environment, capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("iteration 2 of 2: loss", done.stderr)
                self.assertIn("2 ranks" if name == "gpt.py" else "ms measured", done.stdout)

    def test_losses_that_are_exported_with_the_model(self):
        """One step against PyTorch; of probabilities, labels that are ignored, sums of losses."""
        label = torch.randint(0, 5, (SAMPLES,))
        ignored = label.clone()
        ignored[1] = ignored[5] = -100
        target = torch.rand(SAMPLES, 5)
        signs = 2 * (target > 0.5).float() - 1

        def several(scores, labels):
            stacked = torch.stack([scores.abs().sum(1).mean(), (2 * scores).mean()]).mean()
            return 0.5 * F.cross_entropy(scores, labels) + 0.1 * (scores ** 2).mean() - stacked / 3

        def focal(scores, labels):
            rows = F.cross_entropy(scores, labels, reduction="none")
            return ((1 - torch.exp(-rows)) ** 2 * rows).mean()

        losses = {
            "mse": (nn.MSELoss(), target), "sum": (nn.MSELoss(reduction="sum"), target), "l1": (nn.L1Loss(), target),
            "smooth l1": (nn.SmoothL1Loss(beta=0.3), target), "huber": (nn.HuberLoss(delta=0.4), target),
            "binary": (lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), y), target),
            "binary, logits": (nn.BCEWithLogitsLoss(), target), "soft margin": (nn.SoftMarginLoss(), signs),
            "ignored": (lambda x, y: F.cross_entropy(x, y), ignored),
            "ignored, sum": (nn.CrossEntropyLoss(ignore_index=2, reduction="sum"), label),
            "ignored, mean": (nn.CrossEntropyLoss(ignore_index=2), label),
            "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), label),
            "probabilities": (lambda x, y: F.cross_entropy(x, y), F.softmax(target, 1)),
            "divergence": (lambda x, y: F.kl_div(F.log_softmax(x, -1), y, reduction="batchmean"), F.softmax(target, 1)),
            "cosine": (lambda x, y: 1 - F.cosine_similarity(x, y).mean(), target),
            "gather": (lambda x, y: -F.log_softmax(x, -1).gather(1, y[:, None]).mean(), label),
            "one-hot": (lambda x, y: -(F.log_softmax(x, -1) * F.one_hot(y, 5)).sum(-1).mean(), label),
            "several": (several, label), "focal": (focal, label)}
        for name, (loss, targets) in losses.items():
            with self.subTest(name):
                model, inputs = Mlp(), torch.randn(SAMPLES, 20)
                graph = ffsearch.from_torch(model, inputs, loss=loss, targets=targets)
                found = ffsearch.check(graph, model, {"x": inputs, "label": targets})
                self.assertLess(found.loss_error, 1e-5)
                self.assertLess(found.gradient_error, 1e-5)

    def test_a_loss_on_two_ranks(self):
        """Rows that are ignored lie unevenly: a rank that counted its own would have another loss."""
        model, inputs = Mlp(), torch.randn(SAMPLES, 20)
        label = torch.randint(0, 5, (SAMPLES,))
        label[:5] = -100
        graph = ffsearch.from_torch(model, inputs, loss=lambda x, y: F.cross_entropy(x, y), targets=label)
        losses = [ffsearch.search(graph, ffsearch.Topology.named(f"local-cpu-{ranks}"), cost="analytic",
                                  algorithm="data-parallel").train((inputs, label), iterations=3, lr=0.1).losses
                  for ranks in (1, 2)]
        expected = train_in_pytorch(model, torch.optim.SGD(model.parameters(), lr=0.1), inputs, label)[:3]
        for found in losses:
            for value, theirs in zip(found, expected):
                self.assert_near(value, theirs)

    def test_the_models_own_loss(self):
        """As a language model that shifts its labels; bags of embeddings."""
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.scores = nn.Embedding(40, 16), nn.Linear(16, 40)

            def forward(self, token, label):
                scores = self.scores(torch.tanh(self.embed(token)))
                return F.cross_entropy(scores[:, :-1].reshape(-1, 40), label[:, 1:].reshape(-1)), scores

        class Bags(nn.Module):
            def __init__(self):
                super().__init__()
                self.bags = nn.ModuleList([nn.EmbeddingBag(20, 8, mode=mode) for mode in ("sum", "mean")])
                self.fc = nn.Linear(16, 5)

            def forward(self, item):
                return self.fc(torch.cat([bag(item[:, i]) for i, bag in enumerate(self.bags)], 1))

        model, (token, label) = Own(), tokens()
        label[2, 3:] = -100
        graph = ffsearch.from_torch(model, {"token": token, "label": label}, loss=None)
        self.assertEqual([each["type"] for each in graph.data["operators"]].count("softmax_cross_entropy"), 1)
        plan = ffsearch.search(graph, ffsearch.Topology.named("local-cpu-2"), cost="analytic",
                               algorithm="data-parallel")
        run = plan.train({"token": token, "label": label}, iterations=1)
        self.assert_near(run.losses[0], model(token, label)[0].item())
        bags, item = Bags(), torch.randint(0, 20, (SAMPLES, 2, 4))
        found = ffsearch.check(ffsearch.from_torch(bags, item), bags, (item, torch.randint(0, 5, (SAMPLES,))))
        self.assertLess(found.gradient_error, 1e-5)

    def test_what_is_refused(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)

            def forward(self, x, y):
                return self.fc(x + y)

        class Unknown(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)

            def forward(self, x):
                return torch.sign(self.fc(x))

        frozen = LstmLanguageModel()
        frozen.lstm.requires_grad_(False)
        mixed = Cnn()
        mixed.norm.eval()
        x = torch.randn(2, 4)
        cases = [
            (lambda: ffsearch.from_torch(F.relu, x), "model: found a function, expected a torch.nn.Module"),
            (lambda: ffsearch.from_torch(Two(), (x, x, x)),
             "example_inputs: found 3 tensors, but forward takes 2: x, y"),
            (lambda: ffsearch.from_torch(Two(), (x, 3)),
             'example_inputs: "y" is a int, expected a tensor; bind other arguments in a module of your own'),
            (lambda: ffsearch.from_torch(Two(), (x, torch.randn(3, 4))),
             "the first axis of each input is the sample, but the examples have different sizes there: x 2, y 3"),
            (lambda: ffsearch.from_torch(nn.ReLU(), x), "ReLU has no parameter with requires_grad"),
            (lambda: ffsearch.from_torch(mixed, images()[0]),
             '1 modules are in eval mode while the model is in training mode, such as "norm": they would be trained. '
             "Call model.train() for all, or replace these modules"),
            (lambda: ffsearch.from_torch(Transformer(), tokens()[0], loss=nn.CrossEntropyLoss()),
             "loss: the model's output has three axes [12, 9, 40]. PyTorch's cross-entropy takes the second one as "
             'the classes, ffsearch the last one: give loss="cross-entropy" if the last axis has the classes, '
             "otherwise swap the two in the model"),
            (lambda: ffsearch.from_torch(Mlp(), torch.randn(2, 20), loss=nn.MSELoss()),
             "loss: MSELoss is exported with the model, and needs an example of its targets: targets=..."),
            (lambda: ffsearch.from_torch(Mlp(), torch.randn(2, 20), targets=torch.tensor([0, 1]),
                                         loss=nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2)),
             "PyTorch cannot export Mlp: cross-entropy with label_smoothing is exported without weights and "
             "ignore_index, with reduction mean\nThe loss CrossEntropyLoss was exported with the model; docs/onnx.md "
             "says which losses are known to the import."),
            (lambda: ffsearch.from_torch(Mlp(), torch.randn(2, 20), dynamic=False, batch=4),
             "dynamic=False: the example has 2 samples, so that batch=4 is not possible"),
            (lambda: ffsearch.from_torch(Mlp(), torch.randn(2, 3)), None),  # PyTorch's own message
        ]
        for call, message in cases:
            with self.assertRaises(Exception) as raised:
                call()
            if message is None:
                self.assertIsInstance(raised.exception, RuntimeError)
            else:
                self.assertIsInstance(raised.exception, ffsearch.InputError)
                self.assertEqual(str(raised.exception), message)
        for call, beginning in ((lambda: ffsearch.from_torch(Unknown(), x), "unknown: "),
                                (lambda: ffsearch.from_torch(frozen, tokens()[0]), "lstmlanguagemodel: ")):
            with self.assertRaises(ffsearch.InputError) as raised:
                call()
            self.assertEqual(raised.exception.exit_code, 1)
            self.assertTrue(str(raised.exception).startswith(beginning), str(raised.exception))

    def test_a_checkpoint_of_another_model(self):
        inputs, label = NETWORKS[Mlp]()
        plan = ffsearch.search(ffsearch.from_torch(Mlp(), inputs), ffsearch.Topology.named("local-cpu-1"),
                               cost="analytic", proposals=10)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trained.safetensors")
            run = plan.train((inputs, label), iterations=1, save=path)
            self.assertEqual(run.checkpoint, pathlib.Path(path))
            with self.assertRaises(ffsearch.InputError) as raised:
                ffsearch.to_torch(path, Cnn())
            self.assertTrue(str(raised.exception).startswith(f"{path}: does not fit Cnn: "), str(raised.exception))
            unnamed = plan.train((inputs, label), iterations=1, start=False)
            with self.assertRaises(ffsearch.InputError) as raised:
                ffsearch.to_torch(unnamed, Mlp())
            self.assertTrue(str(raised.exception).endswith(
                ": has no table of names; `ffsearch import --weights` writes one, and `ffexec --load` and `--save` "
                "pass it on"))
            ffsearch.to_torch(unnamed, Mlp(), weights=plan.weights)


if __name__ == "__main__":
    probe = subprocess.run([os.path.join(BUILD, "ffsearch"), "import", "/dev/null", "--batch", "1", "--out", "x"],
                           capture_output=True, text=True, check=False)
    if "without ONNX import" in probe.stderr:
        print("skipped: this build has no ONNX import")
        sys.exit(77)
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
