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


class CrossNetV2(nn.Module):
    """Matrices and low ranks with gates for experts (DCN-v2, Wang et al. 2021)."""

    def __init__(self, fields=4, vocabulary=20, d=4, rank=3, experts=2):
        super().__init__()
        n = fields * d
        self.embed = nn.Embedding(fields * vocabulary, d)
        self.register_buffer("offsets", torch.arange(fields) * vocabulary)
        self.w, self.b = nn.Linear(n, n, bias=False), nn.Parameter(0.1 * torch.randn(n))
        self.u, self.v, self.c = (nn.Parameter(0.3 * torch.randn(experts, *s)) for s in ((n, rank), (n, rank), (
            rank, rank)))
        self.gate, self.bias = nn.ModuleList(nn.Linear(n, 1, bias=False) for _ in range(experts)), nn.Parameter(
            torch.zeros(n, 1))
        self.head = nn.Linear(n, 2)

    def forward(self, category):
        x0 = self.embed(category + self.offsets).flatten(1)
        x = x0 * (self.w(x0) + self.b) + x0
        column, outs = x.unsqueeze(2), []
        for i, gate in enumerate(self.gate):
            v = torch.tanh(torch.matmul(self.v[i].t(), column))
            v = torch.matmul(self.u[i], torch.tanh(torch.matmul(self.c[i], v)))
            outs.append((x0.unsqueeze(2) * (v + self.bias)).squeeze(2))
        gates = torch.stack([gate(x) for gate in self.gate], 1)
        return self.head(torch.matmul(torch.stack(outs, 2), gates.softmax(1)).squeeze(2) + x)


class FieldPairs(nn.Module):
    """Embeddings of each field for each other field (Juan et al. 2016), attention over products (Xiao et al. 2017),
    squeezed fields and bilinear products (Huang et al. 2019)."""

    def __init__(self, fields=3, vocabulary=10, d=4):
        super().__init__()
        self.pairs = [(i, j) for i in range(fields) for j in range(i + 1, fields)]
        self.aware = nn.ModuleList(nn.Embedding(fields * vocabulary, d) for _ in range(fields))
        self.embed, self.linear, self.bias = nn.Embedding(fields * vocabulary, d), nn.Embedding(
            fields * vocabulary, 2), nn.Parameter(torch.zeros(2))
        self.register_buffer("offsets", torch.tensor([i * vocabulary for i in range(fields)]))
        self.attend, self.h = nn.Linear(d, d), nn.Linear(d, 1, bias=False)
        self.squeeze = nn.Sequential(nn.Linear(fields, 2, bias=False), nn.ReLU(), nn.Linear(2, fields, bias=False),
                                     nn.ReLU())
        self.bilinear, self.head = nn.Linear(d, d, bias=False), nn.Linear(3 * d, 2)

    def forward(self, category):
        x = category + self.offsets.unsqueeze(0)
        rows = [table(x) for table in self.aware]
        aware = torch.stack([rows[j][:, i] * rows[i][:, j] for i, j in self.pairs], 1).sum(1)
        e = self.embed(x)
        first, second = [i for i, _ in self.pairs], [j for _, j in self.pairs]
        product = e[:, first] * e[:, second]
        attended = (self.h(F.relu(self.attend(product))).softmax(1) * product).sum(1)
        e = e * self.squeeze(e.mean(2)).unsqueeze(2)
        bilinear = sum(self.bilinear(e[:, i]) * e[:, j] for i, j in self.pairs)
        return self.head(torch.cat([aware, attended, bilinear], 1)) + self.linear(x).sum(1) + self.bias


class Esmm(nn.Module):
    """Clicks, and purchases as a product of probabilities; pooled history (Ma et al. 2018; Covington et al. 2016)."""

    def __init__(self, items=30, c=8):
        super().__init__()
        self.items, self.users = nn.Embedding(items, c, padding_idx=0), nn.Embedding(12, c)
        tower = lambda: nn.Sequential(nn.Linear(3 * c, c), nn.PReLU(), nn.BatchNorm1d(c), nn.Linear(c, 1))  # noqa: E731
        self.click, self.buy = tower(), tower()

    def forward(self, user, history, item):
        mask = (history != 0).float().unsqueeze(-1)
        pooled = (self.items(history) * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        x = torch.cat([self.users(user), pooled, self.items(item)], 1)
        click, buy = torch.sigmoid(self.click(x)), torch.sigmoid(self.buy(x))
        return torch.cat([click, click * buy], 1)


class Dien(nn.Module):
    """Interests that evolve: a GRU, then steps whose update gates are scaled by attention (Zhou et al. 2019)."""

    def __init__(self, items=30, c=6):
        super().__init__()
        self.items, self.gru = nn.Embedding(items, c), nn.GRU(c, c, batch_first=True)
        self.attend, self.cell_x, self.cell_h = nn.Parameter(0.5 * torch.randn(c, c)), nn.Linear(c, 3 * c), nn.Linear(
            c, 3 * c)
        self.head = nn.Sequential(nn.Linear(2 * c, c), nn.Sigmoid(), nn.Linear(c, 2))

    def forward(self, history, item):
        target = self.items(item)
        states = self.gru(self.items(history))[0]
        a = (states @ self.attend @ target.unsqueeze(2)).softmax(1)
        h = torch.zeros_like(target)
        for t in range(states.shape[1]):
            xr, xz, xn = self.cell_x(states[:, t]).chunk(3, 1)
            hr, hz, hn = self.cell_h(h).chunk(3, 1)
            z = a[:, t] * torch.sigmoid(xz + hz)
            h = (1 - z) * h + z * torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        return self.head(torch.cat([h, target], 1))


class FixedGraph(nn.Module):
    """One graph for all samples as a constant: SAGE's means (Hamilton et al. 2017), GAT's second form (Brody et al.
    2022), polynomials of the Laplacian (Defferrard et al. 2016), steps of personalized rank (Klicpera et al. 2019)."""

    def __init__(self, kind, nodes=7, features=6, c=8, classes=4):
        super().__init__()
        self.kind = kind
        random = torch.Generator().manual_seed(1)
        a = (torch.rand(nodes, nodes, generator=random) < 0.4).float()
        a = ((a + a.t() + torch.eye(nodes)) > 0).float()
        self.register_buffer("adjacency", a)
        self.register_buffer("mean", a / a.sum(1, keepdim=True))
        d = a.sum(1).rsqrt()
        self.register_buffer("spread", d[:, None] * a * d[None])
        self.own, self.other, self.head = nn.Linear(features, c), nn.Linear(features, c), nn.Linear(c, classes)
        self.score = nn.Parameter(0.3 * torch.randn(2, c // 2))
        self.of_order = nn.Parameter(0.3 * torch.randn(3, features, c))

    def forward(self, nodes):
        b, n, _ = nodes.shape
        if self.kind == "sage":
            x = F.relu(self.own(nodes) + self.other(torch.matmul(self.mean, nodes)))
            return self.head(F.normalize(x, p=2.0, dim=-1))
        if self.kind == "gat":
            left, right = self.own(nodes).view(b, n, 2, -1), self.other(nodes).view(b, n, 2, -1)
            e = F.leaky_relu(left[:, :, None] + right[:, None], 0.2)
            e = (e * self.score).sum(-1).masked_fill(self.adjacency[None, :, :, None] == 0, float("-inf"))
            return self.head(F.elu(torch.einsum("bijh,bjhc->bihc", e.softmax(2), right).reshape(b, n, -1)))
        if self.kind == "chebyshev":
            laplacian = -self.spread
            terms = [nodes, laplacian @ nodes]
            terms.append(2 * (laplacian @ terms[1]) - terms[0])
            return self.head(F.relu(sum(t @ w for t, w in zip(terms, self.of_order))))
        x = start = self.head(F.relu(self.own(nodes)))
        for _ in range(3):
            x = 0.9 * (self.spread @ x) + 0.1 * start
        return x


class Graphormer(nn.Module):
    """Attention of nodes with biases by distance and by degree, and a node for the graph (Ying et al. 2021)."""

    def __init__(self, kinds=8, c=16, heads=2, classes=3):
        super().__init__()
        self.heads = heads
        self.kind, self.degree, self.distance = nn.Embedding(kinds, c), nn.Embedding(6, c), nn.Embedding(5, heads)
        self.whole, self.far = nn.Embedding(1, c), nn.Embedding(1, heads)
        self.norm, self.qkv, self.out, self.head = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c), nn.Linear(
            c, classes)

    def forward(self, kind, degree, distance):
        b, n = kind.shape
        x = self.kind(kind) + self.degree(degree)
        x = torch.cat([self.whole.weight.unsqueeze(0).repeat(b, 1, 1), x], 1)
        bias = F.pad(self.distance(distance).permute(0, 3, 1, 2), (1, 0, 1, 0))
        t = self.far.weight.view(1, self.heads, 1)
        edge = torch.zeros(n + 1, n + 1)
        edge[1:, 0], edge[0, :] = 1, 1
        bias = bias + t.unsqueeze(-1) * edge
        q, k, v = self.qkv(self.norm(x)).view(b, n + 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = ((q * 8 ** -0.5) @ k.transpose(2, 3) + bias).softmax(-1) @ v
        return self.head((x + self.out(y.transpose(1, 2).reshape(b, n + 1, -1)))[:, 0])


class SchNet(nn.Module):
    """Filters from distances that are spread over Gaussians, with a smooth end (Schutt et al. 2017)."""

    def __init__(self, kinds=6, c=8, gaussians=5):
        super().__init__()
        self.embed, self.into, self.out, self.head = nn.Embedding(kinds, c), nn.Linear(c, c, bias=False), nn.Linear(
            c, c), nn.Linear(c, 3)
        self.filter = nn.Sequential(nn.Linear(gaussians, c), nn.Softplus(), nn.Linear(c, c))
        self.register_buffer("centres", torch.linspace(0, 4, gaussians))

    def forward(self, kind, place):
        x = self.embed(kind)
        n = place.shape[1]
        d = ((place[:, :, None] - place[:, None]).pow(2).sum(-1) + 1e-6).sqrt()
        w = self.filter(torch.exp(-0.5 * (d.unsqueeze(-1) - self.centres) ** 2))
        w = w * (0.5 * (torch.cos(d * math.pi / 5.0) + 1.0) * (d < 5.0).float()).unsqueeze(-1)
        w = w * (1 - torch.eye(n)).view(1, n, n, 1)
        y = (self.into(x)[:, None] * w).sum(2)
        x = x + self.out(F.softplus(y) - math.log(2.0))
        return self.head(x).sum(1)


class Glow(nn.Module):
    """Squeezed pixels, channels mixed by a matrix, affine steps (Kingma and Dhariwal 2018)."""

    def __init__(self, c=12, hidden=8):
        super().__init__()
        self.log_scale, self.shift = nn.Parameter(0.1 * torch.randn(1, c, 1, 1)), nn.Parameter(torch.randn(1, c, 1, 1))
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])
        self.net = nn.Sequential(nn.Conv2d(c // 2, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1),
                                 nn.ReLU(), nn.Conv2d(hidden, c, 3, padding=1))

    def forward(self, image):
        b, c, h, w = image.shape
        x = image.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(b, 4 * c, h // 2, w // 2)
        x = (x + self.shift) * torch.exp(self.log_scale)
        x = F.conv2d(x, self.mix.view(4 * c, 4 * c, 1, 1))
        a, y = x.chunk(2, 1)
        shift, scale = self.net(a).chunk(2, 1)
        return torch.cat([a, (y + shift) * torch.sigmoid(scale + 2.0)], 1)
