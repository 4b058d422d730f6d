"""Small networks for onnx_models.py that people write by hand for recommendation, mixtures of experts, graphs, sets and
physics: what they have in common is that features, nodes or points act on one another."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class AutoInt(nn.Module):
    """Attention of fields (Song et al. 2019), one-hot categories by offsets, numbers times learned vectors."""

    def __init__(self, sizes=(10, 20, 30), numbers=3, c=8):
        super().__init__()
        self.register_buffer("offset", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.embed = nn.Embedding(sum(sizes), c)
        self.number = nn.Parameter(torch.randn(numbers, c) * 0.2)
        self.q, self.k, self.v, self.r = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.head = nn.Linear((len(sizes) + numbers) * c, 2)

    def forward(self, category, dense):
        x = torch.cat([self.embed(category + self.offset), dense.unsqueeze(-1) * self.number], 1)
        q, k, v = (torch.stack(torch.split(f(x), 4, dim=2)) for f in (self.q, self.k, self.v))
        s = F.softmax(torch.matmul(q, k.transpose(-1, -2)), -1)
        y = torch.cat(torch.split(torch.matmul(s, v), 1), -1).squeeze(0)
        return self.head(torch.flatten(F.relu(y + self.r(x)), 1))


class XDeepFm(nn.Module):
    """Compressed interactions (Lian et al. 2018): outer products of fields and a convolution; inner products (PNN)."""

    def __init__(self, fields=4, size=20, c=6):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, c) for _ in range(fields))
        self.conv1, self.conv2 = nn.Conv1d(fields * fields, 8, 1), nn.Conv1d(fields * 4, 8, 1)
        self.head = nn.Linear(12 + fields * (fields - 1) // 2, 2)
        self.fields = fields

    def forward(self, category):
        x0 = torch.stack([table(category[:, i]) for i, table in enumerate(self.tables)], 1)
        b, m, d = x0.shape
        x, kept = x0, []
        for i, conv in enumerate((self.conv1, self.conv2)):
            z = (x0.unsqueeze(2) * x.unsqueeze(1)).view(b, -1, d)
            y = F.relu(conv(z))
            if i == 0:
                x, y = torch.split(y, 4, dim=1)
            kept.append(y)
        pooled = torch.sum(torch.cat(kept, 1), 2)
        left = [i for i in range(m) for j in range(i + 1, m)]
        right = [j for i in range(m) for j in range(i + 1, m)]
        inner = (x0[:, left] * x0[:, right]).sum(-1)
        return self.head(torch.cat([pooled, inner], 1))


class SasRec(nn.Module):
    """Items in order with padding (Kang and McAuley 2018): positions, zeros where there is no item, causal mask."""

    def __init__(self, items=50, c=16, length=8):
        super().__init__()
        self.item, self.place = nn.Embedding(items, c), nn.Embedding(length, c)
        self.attention, self.norm, self.last = nn.MultiheadAttention(c, 2), nn.LayerNorm(c, eps=1e-8), nn.LayerNorm(c)
        self.conv1, self.conv2 = nn.Conv1d(c, c, 1), nn.Conv1d(c, c, 1)

    def forward(self, history):
        x = self.item(history) * self.item.embedding_dim ** 0.5
        x = x + self.place(torch.arange(history.shape[1])[None].expand(history.shape[0], -1))
        keep = (history != 0).unsqueeze(-1).to(x.dtype)
        x = x * keep
        n = x.shape[1]
        mask = ~torch.tril(torch.ones((n, n), dtype=torch.bool))
        x = x.transpose(0, 1)
        q = self.norm(x)
        y, _ = self.attention(q, x, x, attn_mask=mask)
        x = (q + y).transpose(0, 1)
        x = x + self.conv2(F.relu(self.conv1(x.transpose(-1, -2)))).transpose(-1, -2)
        x = self.last(x * keep)
        return x @ self.item.weight.t()


class FeatureTokenizer(nn.Module):
    """FT-Transformer (Gorishniy et al. 2021): numbers and categories as tokens, a class token, ReGLU."""

    def __init__(self, numbers=4, sizes=(5, 7), c=16):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers + 1, c) * 0.3)
        self.bias = nn.Parameter(torch.randn(numbers + 2, c) * 0.1)
        self.register_buffer("offset", torch.tensor([0, sizes[0]]))
        self.category = nn.Embedding(sum(sizes), c)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c) for _ in range(4))
        self.n, self.up, self.down, self.last = nn.LayerNorm(c), nn.Linear(c, 48), nn.Linear(24, c), nn.LayerNorm(c)
        self.head = nn.Linear(c, 3)

    def forward(self, numbers, categories):
        numbers = torch.cat([torch.ones(len(numbers), 1, dtype=numbers.dtype), numbers], 1)
        x = self.weight[None] * numbers[:, :, None]
        x = torch.cat([x, self.category(categories + self.offset[None])], 1)
        x = x + torch.cat([torch.zeros(1, self.bias.shape[1], dtype=x.dtype), self.bias])[None]
        b, n, c = x.shape
        split = lambda t: t.reshape(b, n, 2, c // 2).transpose(1, 2).reshape(b * 2, n, c // 2)  # noqa: E731
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        y = F.softmax(q @ k.transpose(1, 2) / math.sqrt(c // 2), -1) @ v
        x = x + self.o(y.reshape(b, 2, n, c // 2).transpose(1, 2).reshape(b, n, c))
        a, g = self.up(self.n(x)).chunk(2, -1)
        x = x + self.down(a * F.relu(g))
        return self.head(F.relu(self.last(x[:, 0])))


class SoftExperts(nn.Module):
    """A mixture whose gate weighs all experts (Jacobs et al. 1991), and one gate a task (MMoE, Ma et al. 2018)."""

    def __init__(self, features=12, experts=4, c=16):
        super().__init__()
        self.first = nn.Parameter(torch.randn(experts, features, c) * 0.3)
        self.second = nn.Parameter(torch.randn(experts, c, c) * 0.3)
        self.bias = nn.Parameter(torch.zeros(experts, c))
        self.gates = nn.ModuleList(nn.Linear(features, experts) for _ in range(2))
        self.towers = nn.ModuleList(nn.Linear(c, 3) for _ in range(2))

    def forward(self, x):
        h = F.relu(torch.einsum("bi,eic->bec", x, self.first) + self.bias)
        h = torch.einsum("bec,ecd->bed", h, self.second)
        return tuple(tower(torch.einsum("be,bec->bc", gate(x).softmax(-1), h))
                     for gate, tower in zip(self.gates, self.towers))


class Nerf(nn.Module):
    """Sines of coordinates at powers of two, a skip in the middle (Mildenhall et al. 2020), colours along a ray."""

    def __init__(self, c=24, powers=3):
        super().__init__()
        self.powers = powers
        size = 3 + 6 * powers
        self.first, self.second, self.third = nn.Linear(size, c), nn.Linear(c, c), nn.Linear(c + size, c)
        self.density, self.colour = nn.Linear(c, 1), nn.Linear(c, 3)

    def forward(self, points):  # [rays, samples along the ray, 3]
        parts = [points]
        for i in range(self.powers):
            parts += [torch.sin(points * 2.0 ** i), torch.cos(points * 2.0 ** i)]
        e = torch.cat(parts, -1)
        h = F.relu(self.second(F.relu(self.first(e))))
        h = F.relu(self.third(torch.cat([h, e], -1)))
        alpha = 1 - torch.exp(-F.relu(self.density(h)[..., 0]) * 0.1)
        rest = torch.ones_like(alpha[:, :1])
        weights = []
        for i in range(alpha.shape[1]):
            weights.append(rest * alpha[:, i:i + 1])
            rest = rest * (1 - alpha[:, i:i + 1] + 1e-10)
        w = torch.cat(weights, 1)
        return (w.unsqueeze(-1) * torch.sigmoid(self.colour(h))).sum(-2)


class MessagePassing(nn.Module):
    """Edges' messages on all pairs (Gilmer et al. 2017), GRU cells, gated readout."""

    def __init__(self, features=6, c=12, classes=4):
        super().__init__()
        self.first = nn.Linear(features, c)
        self.message = nn.Sequential(nn.Linear(2 * c + 1, c), nn.SiLU(), nn.Linear(c, c))
        self.cell = nn.GRUCell(c, c)
        self.gate, self.out = nn.Linear(2 * c, c), nn.Linear(c, classes)

    def forward(self, nodes, adjacency):
        h = h0 = self.first(nodes)
        b, n, c = h.shape
        for _ in range(2):
            left, right = h.unsqueeze(2).expand(b, n, n, c), h.unsqueeze(1).expand(b, n, n, c)
            m = self.message(torch.cat([left, right, adjacency.unsqueeze(-1)], -1))
            m = (m * adjacency.unsqueeze(-1)).sum(2)
            h = self.cell(m.reshape(b * n, c), h.reshape(b * n, c)).view(b, n, c)
        g = torch.sigmoid(self.gate(torch.cat([h, h0], -1)))
        return self.out((g * torch.tanh(h)).sum(1))


class Equivariant(nn.Module):
    """Distances of all pairs, radial functions, coordinates moved (Satorras et al. 2021)."""

    def __init__(self, c=12, classes=4):
        super().__init__()
        self.embed = nn.Embedding(5, c)
        self.register_buffer("centres", torch.linspace(0, 3, 6))
        self.edge = nn.Sequential(nn.Linear(2 * c + 6, c), nn.SiLU(), nn.Linear(c, c), nn.SiLU())
        self.move = nn.Linear(c, 1, bias=False)
        self.node = nn.Sequential(nn.Linear(2 * c, c), nn.SiLU(), nn.Linear(c, c))
        self.out = nn.Linear(c + 1, classes)

    def forward(self, kind, place):
        h = self.embed(kind)
        b, n, c = h.shape
        difference = place[:, :, None, :] - place[:, None, :, :]
        square = (difference ** 2).sum(-1, keepdim=True)
        radial = torch.exp(-((square + 1e-8).sqrt() - self.centres.to(place.dtype)) ** 2 / 0.5)
        e = self.edge(torch.cat([h[:, :, None].repeat(1, 1, n, 1), h[:, None].repeat(1, n, 1, 1), radial], -1))
        e = e * (1 - torch.eye(n, dtype=place.dtype))[None, :, :, None]
        place = place + (difference * self.move(e)).mean(2)
        h = h + self.node(torch.cat([h, e.sum(2)], -1))
        return self.out(torch.cat([h.sum(1), place.norm(dim=-1).sum(1, keepdim=True)], -1))


class EdgeConvolution(nn.Module):
    """DGCNN on given neighbours of a grid: differences, largest along them; a relation for each type of edges."""

    def __init__(self, features=6, c=12, classes=4, n=7):
        super().__init__()
        index = torch.stack([(torch.arange(n) + k) % n for k in (-1, 0, 1)], 1)
        self.register_buffer("index", index)
        self.mlp = nn.Sequential(nn.Conv2d(2 * features, c, 1, bias=False), nn.BatchNorm2d(c), nn.LeakyReLU(0.2))
        self.out = nn.Linear(2 * c, classes)

    def forward(self, nodes):
        near = nodes[:, self.index]
        centre = nodes.unsqueeze(2).expand_as(near)
        x = self.mlp(torch.cat([near - centre, centre], -1).permute(0, 3, 1, 2)).max(-1)[0]
        return self.out(torch.cat([F.adaptive_max_pool1d(x, 1).flatten(1), F.adaptive_avg_pool1d(x, 1).flatten(1)], 1))


class CouplingFlow(nn.Module):
    """RealNVP (Dinh et al. 2017): checkerboard masks, scales by tanh, actnorm, and the log of the determinant."""

    def __init__(self, features=8, c=16):
        super().__init__()
        self.register_buffer("mask", (torch.arange(features) % 2).float())
        self.s, self.t = (nn.ModuleList(nn.Sequential(nn.Linear(features, c), nn.LeakyReLU(0.2), nn.Linear(c, features))
                                        for _ in range(2)) for _ in range(2))
        self.log_scale, self.shift = (nn.Parameter(torch.randn(1, features) * 0.1) for _ in range(2))
        self.mix = nn.Linear(features + 1, 3)

    def forward(self, x):
        z, log = (x + self.shift) * torch.exp(self.log_scale), 0
        for i, (s, t) in enumerate(zip(self.s, self.t)):
            m = self.mask.to(x.dtype) if i == 0 else 1 - self.mask.to(x.dtype)
            kept = z * m
            scale = torch.tanh(s(kept)) * (1 - m)
            z = kept + (1 - m) * (z * torch.exp(scale) + t(kept))
            log = log + scale.sum(1)
        return self.mix(torch.cat([z, log.unsqueeze(1)], 1))
