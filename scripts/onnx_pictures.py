"""More small networks for onnx_models.py that people write by hand for images and video, from the papers that they
cite: detectors' heads, masks, modulated and gated generators, attention in windows, of latents and of channels."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_silu(a, b, k=1, s=1):
    return nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b, eps=1e-3, momentum=0.03),
                         nn.SiLU())


class Yolo(nn.Module):
    """Split blocks, pooling in a row, a pyramid with a way back, boxes as distributions over bins: YOLOv8's parts."""

    def __init__(self, c=8, classes=4, bins=4):
        super().__init__()
        self.classes, self.bins = classes, bins
        self.stem, self.down = conv_silu(3, c, 3, 2), conv_silu(c, 2 * c, 3, 2)
        self.into, self.inner, self.out = conv_silu(c, c), conv_silu(c // 2, c // 2, 3), conv_silu(2 * c - c // 2, c)
        self.before, self.after = conv_silu(2 * c, c), conv_silu(4 * c, 2 * c)
        self.top, self.back, self.bottom = conv_silu(3 * c, c), conv_silu(c, c, 3, 2), conv_silu(3 * c, 2 * c)
        self.box = nn.ModuleList(nn.Conv2d(w, 4 * bins, 1) for w in (c, 2 * c))
        self.kind = nn.ModuleList(nn.Conv2d(w, classes, 1) for w in (c, 2 * c))
        self.register_buffer("bin", torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1))

    def forward(self, image):
        x = self.stem(image)
        a, b = self.into(x).chunk(2, 1)
        x = self.out(torch.cat([a, b, b + self.inner(b)], 1))
        y = self.before(self.down(x))
        pools = [y]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        y = self.after(torch.cat(pools, 1))
        x = self.top(torch.cat([x, F.interpolate(y, scale_factor=2)], 1))
        y = self.bottom(torch.cat([self.back(x), y], 1))
        all_boxes, all_kinds = [], []
        for box, kind, level in zip(self.box, self.kind, (x, y)):
            all_boxes.append(box(level).flatten(2))
            all_kinds.append(kind(level).flatten(2))
        boxes, kinds = torch.cat(all_boxes, 2), torch.cat(all_kinds, 2)
        n, _, places = boxes.shape
        distance = (boxes.view(n, 4, self.bins, places).transpose(1, 2).softmax(1) * self.bin).sum(1)
        near, far = distance.chunk(2, 1)
        return torch.cat([(near + far) / 2, far - near, kinds.sigmoid()], 1).transpose(1, 2)


class CenterNet(nn.Module):
    """Objects as points (Zhou et al. 2019): transposed convolutions, heads for heat maps, sizes and offsets."""

    def __init__(self, c=8, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1),
                                  nn.BatchNorm2d(2 * c), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(2 * c, c, 4, 2, 1, output_padding=0, bias=False), nn.BatchNorm2d(c),
                                nn.ReLU())
        head = lambda out: nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, out, 1))  # noqa: E731
        self.heat, self.size, self.offset = head(classes), head(2), head(2)

    def forward(self, image):
        x = self.up(self.body(image))
        return torch.cat([torch.clamp(self.heat(x).sigmoid(), 1e-4, 1 - 1e-4), self.size(x), self.offset(x)], 1)


class BiFpn(nn.Module):
    """EfficientDet (Tan et al. 2020): levels joined by weights that are normalized, separable convolutions."""

    def __init__(self, c=8, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.down = nn.ModuleList(nn.Conv2d(c, c, 3, 2, 1) for _ in range(2))
        self.weights = nn.ParameterList(nn.Parameter(0.5 + torch.rand(n)) for n in (2, 2, 3, 2))
        self.mix = nn.ModuleList(nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1),
                                               nn.BatchNorm2d(c)) for _ in range(4))
        self.head = nn.Conv2d(c, classes, 1)

    def joined(self, i, *levels):
        w = F.relu(self.weights[i])
        w = w / (w.sum() + 1e-4)
        return self.mix[i](F.silu(sum(w[j] * level for j, level in enumerate(levels))))

    def forward(self, image):
        a = self.stem(image)
        b = self.down[0](a)
        c = self.down[1](b)
        up = lambda x: F.interpolate(x, scale_factor=2, mode="nearest")  # noqa: E731
        pool = lambda x: F.max_pool2d(x, 3, 2, 1)  # noqa: E731
        middle = self.joined(0, b, up(c))
        a = self.joined(1, a, up(middle))
        b = self.joined(2, b, middle, pool(a))
        return self.head(self.joined(3, up(b), a))


class MaskFormer(nn.Module):
    """Masks as products of learned queries and pixels (Cheng et al. 2021), scores per query."""

    def __init__(self, c=16, queries=5, classes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, c, 4, 4), nn.GroupNorm(4, c), nn.ReLU())
        self.queries, self.places = nn.Embedding(queries, c), nn.Embedding(queries, c)
        self.attend = nn.MultiheadAttention(c, 4, batch_first=True)
        self.norm = nn.LayerNorm(c)
        self.kind = nn.Linear(c, classes + 1)
        self.mask = nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c))
        self.pixel = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, image):
        x = self.body(image)
        memory = x.flatten(2).transpose(1, 2)
        q = self.queries.weight.unsqueeze(0).repeat(x.shape[0], 1, 1)
        at = self.places.weight.unsqueeze(0).repeat(x.shape[0], 1, 1)
        q = self.norm(q + self.attend(q + at, memory, memory, need_weights=False)[0])
        masks = torch.einsum("bqc,bchw->bqhw", self.mask(q), self.pixel(x)).sigmoid()
        return torch.einsum("bqk,bqhw->bkhw", self.kind(q).softmax(-1)[..., :-1], masks)


class Hourglass(nn.Module):
    """Down and up again with a branch at each size (Newell et al. 2016), two in a row, heat maps of both."""

    def __init__(self, c=8, joints=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 7, 2, 3)
        block = lambda: nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1))  # noqa: E731
        self.skip, self.low, self.inner, self.up = (nn.ModuleList(block() for _ in range(2)) for _ in range(4))
        self.heat = nn.ModuleList(nn.Conv2d(c, joints, 1) for _ in range(2))
        self.again, self.merge = nn.Conv2d(joints, c, 1), nn.Conv2d(c, c, 1)

    def forward(self, image):
        x, heats = self.stem(image), []
        for i in range(2):
            y = F.max_pool2d(x, 2, stride=2)
            y = y + self.low[i](y)
            y = y + self.up[i](y + self.inner[i](y))
            y = x + self.skip[i](x) + F.interpolate(y, scale_factor=2)
            heats.append(self.heat[i](y))
            x = x + self.merge(y) + self.again(heats[-1])
        return torch.stack(heats, 1).mean(1)


class AttentionUNet(nn.Module):
    """Gates on the connections (Oktay et al. 2018)."""

    def __init__(self, c=8, classes=3):
        super().__init__()
        two = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())  # noqa: E731
        self.down, self.low, self.up = two(3, c), two(c, 2 * c), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.of_gate, self.of_skip = nn.Conv2d(2 * c, c, 1), nn.Conv2d(c, c, 1, 2, bias=False)
        self.psi = nn.Conv2d(c, 1, 1)
        self.out = nn.Sequential(two(2 * c, c), nn.Conv2d(c, classes, 1))

    def forward(self, image):
        skip = self.down(image)
        low = self.low(F.avg_pool2d(skip, 2, ceil_mode=True))
        gate = torch.sigmoid(self.psi(F.relu(self.of_gate(low) + self.of_skip(skip))))
        gate = F.interpolate(gate, size=skip.shape[2:], mode="bilinear", align_corners=True)
        return self.out(torch.cat([skip * gate, self.up(low)], 1))


class CoAtNet(nn.Module):
    """Inverted bottlenecks, then attention with a learned bias by relative place (Dai et al. 2021)."""

    def __init__(self, c=16, heads=2, size=4, classes=5):
        super().__init__()
        self.heads = heads
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.norm, self.wide, self.deep, self.thin = nn.BatchNorm2d(c), nn.Conv2d(c, 2 * c, 1), nn.Conv2d(
            2 * c, 2 * c, 3, 2, 1, groups=2 * c), nn.Conv2d(2 * c, c, 1)
        self.squeeze = nn.Sequential(nn.Conv2d(2 * c, 4, 1), nn.SiLU(), nn.Conv2d(4, 2 * c, 1), nn.Sigmoid())
        self.skip = nn.Conv2d(c, c, 1)
        self.table = nn.Parameter(0.1 * torch.randn((2 * size - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        offset = (at[:, :, None] - at[:, None, :]) + size - 1
        self.register_buffer("index", (offset[0] * (2 * size - 1) + offset[1]).flatten())
        self.ln, self.qkv, self.out, self.last = nn.LayerNorm(c), nn.Linear(c, 3 * c, bias=False), nn.Linear(
            c, c), nn.Linear(c, classes)

    def forward(self, image):
        x = self.stem(image)
        y = F.gelu(self.deep(F.gelu(self.wide(self.norm(x)))))
        y = y * self.squeeze(y.mean((2, 3), keepdim=True))
        x = self.skip(F.max_pool2d(x, 3, 2, 1)) + self.thin(y)
        b, c, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.ln(x)).reshape(b, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table.gather(0, self.index.unsqueeze(1).repeat(1, self.heads))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + bias.view(h * w, h * w, -1).permute(2, 0, 1)[None]
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, h * w, c))
        return self.last(x.mean(1))


class MobileVit(nn.Module):
    """Patches unfolded, a transformer over the same pixel of all patches, folded back (Mehta and Rastegari 2022)."""

    def __init__(self, c=8, d=16, patch=2, classes=5):
        super().__init__()
        self.patch = patch
        self.stem, self.local, self.into = conv_silu(3, c, 3, 2), conv_silu(c, c, 3), nn.Conv2d(c, d, 1, bias=False)
        self.layer = nn.TransformerEncoderLayer(d, 2, 24, dropout=0.0, activation=F.silu, batch_first=True,
                                                norm_first=True)
        self.back, self.fuse, self.head = conv_silu(d, c), conv_silu(2 * c, c, 3), nn.Linear(c, classes)

    def forward(self, image):
        x = self.stem(image)
        y = self.into(self.local(x))
        b, d, h, w = y.shape
        p, rows, columns = self.patch, h // self.patch, w // self.patch
        y = y.reshape(b * d * rows, p, columns, p).transpose(1, 2).reshape(b, d, rows * columns, p * p)
        y = self.layer(y.transpose(1, 3).reshape(b * p * p, rows * columns, d))
        y = y.view(b, p * p, rows * columns, d).transpose(1, 3).reshape(b * d * rows, columns, p, p).transpose(1, 2)
        y = self.back(y.reshape(b, d, h, w))
        return self.head(self.fuse(torch.cat((x, y), 1)).mean((2, 3)))


class CvT(nn.Module):
    """Projections that are depthwise convolutions, keys with a stride (Wu et al. 2021)."""

    def __init__(self, c=16, heads=2, classes=5):
        super().__init__()
        self.heads = heads
        self.embed, self.norm = nn.Conv2d(3, c, 7, 4, 2), nn.LayerNorm(c)
        depth = lambda s: nn.Sequential(nn.Conv2d(c, c, 3, s, 1, groups=c, bias=False), nn.BatchNorm2d(c))  # noqa: E731
        self.dq, self.dk, self.dv = depth(1), depth(2), depth(2)
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))
        self.mlp = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c))
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.embed(image)
        b, c, h, w = x.shape
        x = self.norm(x.flatten(2).transpose(1, 2)).transpose(1, 2).view(b, c, h, w)
        rows = lambda y: y.flatten(2).transpose(1, 2)  # noqa: E731
        split = lambda y: y.view(b, -1, self.heads, c // self.heads).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q(rows(self.dq(x)))), split(self.k(rows(self.dk(x)))), split(self.v(rows(self.dv(x))))
        scores = torch.einsum("bhlk,bhtk->bhlt", q, k) * c ** -0.5
        y = torch.einsum("bhlt,bhtv->bhlv", scores.softmax(-1), v).transpose(1, 2).reshape(b, h * w, c)
        x = rows(x) + self.out(y)
        return self.head((x + self.mlp(x)).mean(1))


class CaiT(nn.Module):
    """Scaled layers, heads that talk to one another, a class token that joins late (Touvron et al. 2021)."""

    def __init__(self, c=16, heads=4, classes=5):
        super().__init__()
        self.heads = heads
        self.patch, self.place = nn.Conv2d(3, c, 4, 4), nn.Parameter(0.1 * torch.randn(1, 16, c))
        self.cls = nn.Parameter(0.1 * torch.randn(1, 1, c))
        self.n1, self.n2, self.n3 = nn.LayerNorm(c, eps=1e-6), nn.LayerNorm(c, eps=1e-6), nn.LayerNorm(c, eps=1e-6)
        self.qkv, self.before, self.after, self.out = nn.Linear(c, 3 * c), nn.Linear(heads, heads), nn.Linear(
            heads, heads), nn.Linear(c, c)
        self.g1, self.g2 = nn.Parameter(0.3 * torch.ones(c)), nn.Parameter(0.2 * torch.ones(c))
        self.q, self.k, self.v, self.head = nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, classes)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2) + self.place
        b, n, c = x.shape
        qkv = self.qkv(self.n1(x)).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * (c // self.heads) ** -0.5, qkv[1], qkv[2]
        scores = self.before((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(dim=-1)
        scores = self.after(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = x + self.g1 * self.out((scores @ v).transpose(1, 2).reshape(b, n, c))
        u = torch.cat([self.cls.expand(b, -1, -1), x], 1)
        u = self.n2(u)
        q = self.q(u[:, 0]).unsqueeze(1).reshape(b, 1, self.heads, c // self.heads).permute(0, 2, 1, 3)
        k = self.k(u).reshape(b, n + 1, self.heads, c // self.heads).permute(0, 2, 1, 3)
        v = self.v(u).reshape(b, n + 1, self.heads, c // self.heads).permute(0, 2, 1, 3)
        y = ((q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)).softmax(-1) @ v
        token = self.cls + self.g2 * y.transpose(1, 2).reshape(b, 1, c)
        return self.head(self.n3(token)[:, 0])


class Beit(nn.Module):
    """Biases for queries and values alone, relative places with three rows for the class token (Bao et al. 2022)."""

    def __init__(self, c=16, heads=2, size=2, classes=5):
        super().__init__()
        self.heads = heads
        self.patch, self.cls = nn.Conv2d(3, c, 8, 8), nn.Parameter(0.1 * torch.randn(1, 1, c))
        self.norm, self.qkv, self.out = nn.LayerNorm(c), nn.Linear(c, 3 * c, bias=False), nn.Linear(c, c)
        self.q_bias, self.v_bias = nn.Parameter(0.1 * torch.randn(c)), nn.Parameter(0.1 * torch.randn(c))
        rows = (2 * size - 1) ** 2 + 3
        self.table = nn.Parameter(0.1 * torch.randn(rows, heads))
        at = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        offset = (at[:, :, None] - at[:, None, :]) + size - 1
        index = torch.zeros(size * size + 1, size * size + 1, dtype=torch.long)
        index[1:, 1:] = offset[0] * (2 * size - 1) + offset[1]
        index[0, :], index[:, 0], index[0, 0] = rows - 3, rows - 2, rows - 1
        self.register_buffer("index", index)
        self.gamma, self.head = nn.Parameter(0.1 * torch.ones(c)), nn.Linear(c, classes)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        b = x.shape[0]
        x = torch.cat((self.cls.expand(b, -1, -1), x), 1)
        n, c = x.shape[1:]
        bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias, requires_grad=False), self.v_bias))
        qkv = F.linear(self.norm(x), self.qkv.weight, bias).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        x = x + self.gamma * self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
        return self.head(x[:, 1:].mean(1))


class Xcit(nn.Module):
    """Attention among channels of normalized queries and keys, by a learned temperature (El-Nouby et al. 2021)."""

    def __init__(self, c=16, heads=2, classes=5):
        super().__init__()
        self.heads, self.temperature = heads, nn.Parameter(torch.rand(heads, 1, 1) + 0.5)
        self.patch, self.norm = nn.Conv2d(3, c, 4, 4), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.local = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c), nn.GELU(), nn.BatchNorm2d(c),
                                   nn.Conv2d(c, c, 3, padding=1, groups=c))
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.patch(image)
        b, c, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        qkv = self.qkv(self.norm(x)).reshape(b, h * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = (part.transpose(-2, -1) for part in qkv.unbind(0))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        y = ((q @ k.transpose(-2, -1)) * self.temperature).softmax(dim=-1) @ v
        x = x + self.out(y.permute(0, 3, 1, 2).reshape(b, h * w, c))
        x = x + self.local(x.permute(0, 2, 1).reshape(b, c, h, w)).flatten(2).permute(0, 2, 1)
        return self.head(x.mean(1))


class Perceiver(nn.Module):
    """Latents that read pixels (Jaegle et al. 2021), with Fourier features of places; queries at the end."""

    def __init__(self, c=16, latents=4, classes=5):
        super().__init__()
        self.latents = nn.Parameter(0.1 * torch.randn(latents, c))
        place = torch.linspace(-1, 1, 8)
        grid = torch.stack(torch.meshgrid(place, place, indexing="ij"), -1).view(64, 2)
        waves = grid[..., None] * torch.tensor([1.0, 2.0]) * math.pi
        self.register_buffer("places", torch.cat([waves.sin().flatten(1), waves.cos().flatten(1), grid], 1))
        self.of_latent, self.of_pixel = nn.LayerNorm(c), nn.LayerNorm(13)
        self.q, self.kv, self.out = nn.Linear(c, c, bias=False), nn.Linear(13, 2 * c, bias=False), nn.Linear(c, c)
        self.own = nn.MultiheadAttention(c, 2, batch_first=True)
        self.query, self.read, self.head = nn.Parameter(torch.randn(1, 1, c)), nn.MultiheadAttention(
            c, 2, batch_first=True), nn.Linear(c, classes)

    def forward(self, image):
        b = image.shape[0]
        pixels = torch.cat([image.permute(0, 2, 3, 1).reshape(b, 64, 3), self.places.expand(b, -1, -1)], -1)
        x = self.latents.unsqueeze(0).expand(b, -1, -1)
        k, v = self.kv(self.of_pixel(pixels)).chunk(2, -1)
        x = x + self.out((self.q(self.of_latent(x)) @ k.transpose(1, 2) / 4).softmax(-1) @ v)
        x = x + self.own(x, x, x)[0]
        return self.head(self.read(self.query.expand(b, 1, -1), x, x)[0].squeeze(1))


class SlotAttention(nn.Module):
    """Slots that compete for places, step by step through a GRU (Locatello et al. 2020)."""

    def __init__(self, c=16, slots=3, classes=5):
        super().__init__()
        self.slots, self.c = slots, c
        self.body = nn.Sequential(nn.Conv2d(3, c, 5, 2, 2), nn.ReLU(), nn.Conv2d(c, c, 5, 2, 2))
        self.mu = nn.Parameter(torch.randn(1, slots, c))
        self.of_input, self.of_slot, self.of_mlp = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.q, self.k, self.v = (nn.Linear(c, c, bias=False) for _ in range(3))
        self.gru, self.mlp = nn.GRUCell(c, c), nn.Sequential(nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c))
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.of_input(self.body(image).flatten(2).transpose(1, 2))
        b = x.shape[0]
        k, v, slots = self.k(x), self.v(x), self.mu.expand(b, -1, -1)
        for _ in range(2):
            q = self.q(self.of_slot(slots)) * self.c ** -0.5
            a = torch.einsum("bnd,bsd->bns", k, q).softmax(-1) + 1e-8
            a = a / a.sum(1, keepdim=True)
            update = torch.einsum("bns,bnd->bsd", a, v)
            slots = self.gru(update.reshape(-1, self.c), slots.reshape(-1, self.c)).view(b, self.slots, self.c)
            slots = slots + self.mlp(self.of_mlp(slots))
        return self.head(slots)


class Capsules(nn.Module):
    """Vectors with lengths, and routing by agreement in three steps (Sabour et al. 2017)."""

    def __init__(self, c=8, size=4, classes=5):
        super().__init__()
        self.size, self.classes = size, classes
        self.conv, self.primary = nn.Conv2d(3, c, 5, 2), nn.Conv2d(c, 2 * size, 3, 2)
        self.weight = nn.Parameter(0.3 * torch.randn(1, 2 * 2 * 2, classes, 6, size))

    @staticmethod
    def squash(s):
        square = (s ** 2).sum(-1, keepdim=True)
        return square / (1 + square) * s / torch.sqrt(square + 1e-9)

    def forward(self, image):
        x = self.primary(F.relu(self.conv(image)))
        b = x.shape[0]
        u = self.squash(x.view(b, 2, self.size, -1).permute(0, 1, 3, 2).reshape(b, -1, self.size))
        votes = (self.weight @ u[:, :, None, :, None]).squeeze(-1)  # [batch, capsules, classes, 6]
        logits = torch.zeros_like(votes[..., :1])
        for step in range(3):
            v = self.squash((logits.softmax(2) * votes).sum(1, keepdim=True))
            if step < 2:
                logits = logits + (votes * v).sum(-1, keepdim=True)
        return torch.sqrt((v.squeeze(1) ** 2).sum(-1) + 1e-9)


class Rrdb(nn.Module):
    """Dense blocks in residuals, scaled by 0.2, and enlarging (Wang et al. 2018)."""

    def __init__(self, c=8, g=4):
        super().__init__()
        self.first = nn.Conv2d(3, c, 3, 1, 1)
        self.dense = nn.ModuleList(nn.Conv2d(c + i * g, c if i == 2 else g, 3, 1, 1) for i in range(3))
        self.trunk, self.up, self.last = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, 3, 3, 1, 1)

    def forward(self, image):
        lrelu = lambda x: F.leaky_relu(x, 0.2, inplace=True)  # noqa: E731
        start = x = self.first(image)
        parts = [x]
        for conv in self.dense[:-1]:
            parts.append(lrelu(conv(torch.cat(parts, 1))))
        x = self.dense[-1](torch.cat(parts, 1)) * 0.2 + x
        x = self.trunk(x * 0.2 + start) + start
        return self.last(lrelu(self.up(F.interpolate(x, scale_factor=2, mode="nearest"))))


class Spade(nn.Module):
    """Normalization whose scale and shift come from a map of segments (Park et al. 2019)."""

    def __init__(self, c=8, kinds=4):
        super().__init__()
        self.fc, self.c = nn.Linear(8, c * 16), c
        self.norm = nn.BatchNorm2d(c, affine=False)
        self.shared = nn.Conv2d(kinds, c, 3, padding=1)
        self.gamma, self.beta, self.conv = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(
            c, 3, 3, padding=1)

    def forward(self, z, segments):
        x = self.fc(z).view(-1, self.c, 4, 4)
        m = F.relu(self.shared(F.interpolate(segments, size=x.shape[2:], mode="nearest")))
        x = self.norm(x) * (1 + self.gamma(m)) + self.beta(m)
        return torch.tanh(self.conv(F.interpolate(F.leaky_relu(x, 0.2), scale_factor=4)))


class AdaIn(nn.Module):
    """Means and deviations of one image for another one (Huang and Belongie 2017), padding by reflection."""

    def __init__(self, c=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, c, 3), nn.ReLU(),
                                     nn.MaxPool2d(2, ceil_mode=True))
        self.decoder = nn.Sequential(nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(c, 3, 3))

    @staticmethod
    def statistics(x):
        flat = x.view(*x.shape[:2], -1)
        return flat.mean(2).view(*x.shape[:2], 1, 1), (flat.var(2) + 1e-5).sqrt().view(*x.shape[:2], 1, 1)

    def forward(self, content, style):
        x, y = self.encoder(content), self.encoder(style)
        (mean, std), (new_mean, new_std) = self.statistics(x), self.statistics(y)
        return self.decoder((x - mean.expand(x.size())) / std.expand(x.size()) * new_std.expand(x.size()) +
                            new_mean.expand(x.size()))


class SoftCodes(nn.Module):
    """A discrete VAE with soft codes: codes are averages of a table by probabilities (Ramesh et al. 2021)."""

    def __init__(self, c=8, codes=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, c, 4, 2, 1), nn.ReLU(), nn.Conv2d(c, codes, 1))
        self.codebook = nn.Embedding(codes, c)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(c, c, 4, 2, 1), nn.ReLU(), nn.Conv2d(c, 3, 1))

    def forward(self, image, noise):
        probability = ((self.encoder(image) + noise) / 0.9).softmax(1)
        return self.decoder(torch.einsum("b n h w, n d -> b d h w", probability, self.codebook.weight))


class CostVolume(nn.Module):
    """Flow from products of features with shifted ones (Sun et al. 2018); one encoder for both images."""

    def __init__(self, c=8, reach=1):
        super().__init__()
        self.reach = reach
        self.encoder = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(c, c, 3, 1, 2, 2))
        self.flow = nn.Sequential(nn.Conv2d((2 * reach + 1) ** 2 + c, 8, 3, padding=1), nn.LeakyReLU(0.1),
                                  nn.Conv2d(8, 2, 3, padding=1))

    def forward(self, first, second):
        a, b = self.encoder(first), self.encoder(second)
        h, w, r = a.shape[2], a.shape[3], self.reach
        padded = F.pad(b, (r, r, r, r))
        costs = [(a * padded[:, :, dy:dy + h, dx:dx + w]).mean(1, keepdim=True)
                 for dy in range(2 * r + 1) for dx in range(2 * r + 1)]
        flow = self.flow(torch.cat([F.leaky_relu(torch.cat(costs, 1), 0.1), a], 1))
        return F.interpolate(flow * 2, scale_factor=2, mode="bilinear", align_corners=False)


class X3d(nn.Module):
    """Depthwise convolutions in space and time, squeezed (Feichtenhofer 2020)."""

    def __init__(self, c=8, classes=5):
        super().__init__()
        self.space, self.time = nn.Conv3d(3, c, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False), nn.Conv3d(
            c, c, (5, 1, 1), 1, (2, 0, 0), groups=c, bias=False)
        self.norm, self.wide = nn.BatchNorm3d(c), nn.Conv3d(c, 2 * c, 1, bias=False)
        self.deep, self.n2 = nn.Conv3d(2 * c, 2 * c, 3, (1, 2, 2), 1, groups=2 * c, bias=False), nn.BatchNorm3d(2 * c)
        self.down, self.up = nn.Conv3d(2 * c, 4, 1), nn.Conv3d(4, 2 * c, 1)
        self.head = nn.Linear(2 * c, classes)

    def forward(self, video):
        x = F.relu(self.norm(self.time(self.space(video))))
        y = self.n2(self.deep(F.relu(self.wide(x))))
        y = F.silu(y * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool3d(y, 1))))))
        return self.head(y.mean((2, 3, 4)))


class ViVit(nn.Module):
    """Tubes of pixels as tokens, a transformer of each frame, then one of frames (Arnab et al. 2021)."""

    def __init__(self, c=16, classes=5):
        super().__init__()
        self.tube = nn.Conv3d(3, c, (2, 8, 8), (2, 8, 8))
        self.cls, self.place = nn.Parameter(torch.randn(1, 1, 1, c)), nn.Parameter(0.1 * torch.randn(1, 2, 5, c))
        self.when = nn.Parameter(torch.randn(1, 1, c))
        layer = lambda: nn.TransformerEncoderLayer(c, 2, 24, 0.0, "gelu", batch_first=True)  # noqa: E731
        self.space, self.time, self.head = layer(), layer(), nn.Linear(c, classes)

    def forward(self, video):
        x = self.tube(video).flatten(3).permute(0, 2, 3, 1)
        b, t, n, c = x.shape
        x = torch.cat((self.cls.repeat(b, t, 1, 1), x), 2) + self.place
        x = self.space(x.reshape(b * t, n + 1, c))[:, 0].view(b, t, c)
        return self.head(self.time(torch.cat((self.when.repeat(b, 1, 1), x), 1))[:, 0])


class Siamese(nn.Module):
    """One network for two images; distance, and scores of it (Koch et al. 2015)."""

    def __init__(self, c=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, c, 5, 2), nn.ReLU(), nn.MaxPool2d(2, 2, padding=1), nn.Flatten(),
                                  nn.Linear(c * 16, 12), nn.Sigmoid())
        self.head = nn.Linear(12, 2)

    def forward(self, first, second):
        return self.head((self.body(first) - self.body(second)).abs())


class ConvMixer(nn.Module):
    """Patches, and depthwise convolutions of a large kernel (Trockman and Kolter 2022)."""

    def __init__(self, c=8, classes=5):
        super().__init__()
        self.patch = nn.Sequential(nn.Conv2d(3, c, 2, 2), nn.GELU(), nn.BatchNorm2d(c))
        self.deep = nn.Sequential(nn.Conv2d(c, c, 5, groups=c, padding=2), nn.GELU(), nn.BatchNorm2d(c))
        self.wide = nn.Sequential(nn.Conv2d(c, c, 1), nn.GELU(), nn.BatchNorm2d(c))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(c, classes))

    def forward(self, image):
        x = self.patch(image)
        return self.head(self.wide(x + self.deep(x)))


class Involution(nn.Module):
    """Kernels that each place computes for itself (Li et al. 2021): columns of patches by unfold."""

    def __init__(self, c=8, k=3, groups=2, classes=5):
        super().__init__()
        self.k, self.groups = k, groups
        self.stem, self.reduce = nn.Conv2d(3, c, 3, 2, 1), nn.Conv2d(c, 4, 1)
        self.span = nn.Conv2d(4, k * k * groups, 1)
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.stem(image)
        b, c, h, w = x.shape
        weight = self.span(F.relu(self.reduce(x))).view(b, self.groups, self.k ** 2, h, w).unsqueeze(2)
        rows = F.unfold(x, self.k, padding=self.k // 2).view(b, self.groups, c // self.groups, self.k ** 2, h, w)
        return self.head((weight * rows).sum(3).view(b, c, h, w).mean((2, 3)))
