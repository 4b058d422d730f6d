#!/usr/bin/env python3
"""A GPT of nanoGPT's kind that learns the characters of a text on two CPU ranks, and then writes some in PyTorch. Needs
PyTorch and the package (`pip install scripts/python`).

  gpt.py TEXT [--ranks 2] [--budget 20s] [--iterations 200] [--batch 16] [--cost auto]"""
import argparse
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

import ffsearch

LENGTH, CHANNELS, HEADS, LAYERS = 32, 64, 4, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        batch, length, _ = x.size()
        q, k, v = (each.view(batch, length, HEADS, CHANNELS // HEADS).transpose(1, 2)
                   for each in self.c_attn(x).split(CHANNELS, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (CHANNELS // HEADS) ** -0.5
        scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, CHANNELS))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS), Attention()
        self.mlp = nn.Sequential(nn.Linear(CHANNELS, 4 * CHANNELS), nn.GELU(), nn.Linear(4 * CHANNELS, CHANNELS))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, CHANNELS), nn.Embedding(LENGTH, CHANNELS)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


def written(model, start, count):
    """`count` more characters, each drawn from what the model expects."""
    tokens = start
    for _ in range(count):
        logits, _ = model(tokens[:, -LENGTH:])
        tokens = torch.cat((tokens, torch.multinomial(logits[:, -1].softmax(-1), 1)), 1)
    return tokens[0].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path, help="text file to learn")
    parser.add_argument("--ranks", type=int, default=2, help="CPU ranks of this machine")
    parser.add_argument("--budget", default="20s", help="search time")
    parser.add_argument("--iterations", type=int, default=200, help="training iterations")
    parser.add_argument("--batch", type=int, default=16, help="samples per iteration")
    parser.add_argument("--cost", default="auto", help="kernel times: auto measures them; analytic")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    text = arguments.text.read_text(encoding="utf-8")
    characters = sorted(set(text))
    tokens = torch.tensor([characters.index(each) for each in text])
    samples = tokens[:len(tokens) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    model = Gpt(len(characters))

    # forward returns (scores, loss): the import adds the loss to the first of them.
    graph = ffsearch.from_torch(model, samples[:2, :-1], output=0, batch=arguments.batch,
                                optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3))
    topology = ffsearch.Topology.detect(cpu_ranks=arguments.ranks)
    plan = ffsearch.search(graph, topology, budget=arguments.budget, cost=arguments.cost, progress=True)
    print(plan.summary())
    run = plan.train({"idx": samples[:, :-1], "label": samples[:, 1:]}, iterations=arguments.iterations, progress=True)
    print(run)
    ffsearch.to_torch(run, model)
    model.eval()
    with torch.no_grad():
        print("".join(characters[each] for each in written(model, samples[:1, :8], 200)))


if __name__ == "__main__":
    main()
