"""Small networks that people write by hand, for onnx_models.py: generation of images, segmentation, translation,
speech, recommendation, graphs and sets, video."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class DcganGenerator(nn.Module):
    """Radford et al. 2016: transposed convolutions from a vector to an image."""

    def __init__(self, latent=32, width=16, channels=3):
        super().__init__()
        layers, sizes = [], [latent, 4 * width, 2 * width, width]
        for i in range(3):
            layers += [nn.ConvTranspose2d(sizes[i], sizes[i + 1], 4, 2 if i else 1, 1 if i else 0, bias=False),
                       nn.BatchNorm2d(sizes[i + 1]), nn.ReLU(True)]
        self.net = nn.Sequential(*layers, nn.ConvTranspose2d(width, channels, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z.view(z.shape[0], -1, 1, 1))


class DcganDiscriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
            nn.InstanceNorm2d(2 * width, affine=True), nn.LeakyReLU(0.2), nn.Conv2d(2 * width, 2, 8))

    def forward(self, image):
        return self.net(image).flatten(1)


class ConvVae(nn.Module):
    """Encoder, a sample of the latent variable by noise that is an input, decoder."""

    def __init__(self, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ELU(),
                                     nn.Flatten())
        self.mean, self.log_variance = nn.Linear(32 * 64, latent), nn.Linear(32 * 64, latent)
        self.expand = nn.Linear(latent, 32 * 64)
        self.decoder = nn.Sequential(nn.ELU(),
                                     nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1), nn.ELU(),
                                     nn.ConvTranspose2d(16, 4, 2, 2))

    def forward(self, image, noise):
        h = self.encoder(image)
        z = self.mean(h) + noise * torch.exp(0.5 * self.log_variance(h))
        return self.decoder(self.expand(z).view(-1, 32, 8, 8))


class UNet(nn.Module):
    def __init__(self, width=8, classes=5, up="transposed", norm="batch"):
        super().__init__()
        make_norm = {"batch": nn.BatchNorm2d, "group": lambda c: nn.GroupNorm(4, c),
                     "instance": nn.InstanceNorm2d}[norm]

        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), make_norm(b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1),
                                 make_norm(b), nn.SiLU())

        self.down = nn.ModuleList([block(3, width), block(width, 2 * width)])
        self.middle = block(2 * width, 4 * width)
        if up == "transposed":
            self.up = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
                                     nn.ConvTranspose2d(2 * width, width, 2, 2)])
        else:
            self.up = nn.ModuleList(
                nn.Sequential(nn.Upsample(scale_factor=2, mode=up, **({} if up == "nearest" else
                                                                     {"align_corners": True})),
                              nn.Conv2d(c, c // 2, 1)) for c in (4 * width, 2 * width))
        self.merge = nn.ModuleList([block(4 * width, 2 * width), block(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, image):
        skips, x = [], image
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips)):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


class TimeEmbedding(nn.Module):
    """Sines of a time step, as diffusion models have them."""

    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        self.mlp = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, channels))

    def forward(self, time):
        half = self.channels // 2
        frequency = torch.exp(-math.log(10000) / half * torch.arange(half, dtype=time.dtype))
        angle = time[:, None] * frequency[None, :]
        return self.mlp(torch.cat([angle.sin(), angle.cos()], -1))


class DiffusionUNet(nn.Module):
    """DDPM's (Ho et al. 2020): residual blocks with a time, group normalization, attention at the lowest size."""

    class Block(nn.Module):
        def __init__(self, a, b, time):
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(4, a), nn.GroupNorm(4, b)
            self.conv1, self.conv2 = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1)
            self.time = nn.Linear(time, b)
            self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x, t):
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.norm, self.qkv, self.out = nn.GroupNorm(4, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).view(b, 3, c, h * w).unbind(1)
            weights = (torch.einsum("bcq,bck->bqk", q, k) * c ** -0.5).softmax(-1)
            return x + self.out(torch.einsum("bqk,bck->bcq", weights, v).reshape(b, c, h, w))

    def __init__(self, width=16):
        super().__init__()
        self.time = TimeEmbedding(32)
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = self.Block(width, width, 32)
        self.reduce = nn.Conv2d(width, width, 3, 2, 1)
        self.down2, self.attention = self.Block(width, 2 * width, 32), self.Attention(2 * width)
        self.up2, self.up1 = self.Block(3 * width, width, 32), self.Block(2 * width, width, 32)
        self.enlarge = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, image, time):
        t = self.time(time)
        a = self.down1(self.first(image), t)
        b = self.reduce(a)
        c = self.attention(self.down2(b, t))
        x = self.up2(torch.cat([c, b], 1), t)
        x = self.enlarge(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.head(self.up1(torch.cat([x, a], 1), t))


class StyleGenerator(nn.Module):
    """In the manner of StyleGAN: a learned constant, styles by normalization, bilinear enlargement, noise inputs."""

    def __init__(self, latent=16, width=16):
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(latent, latent), nn.LeakyReLU(0.2), nn.Linear(latent, latent),
                                     nn.LeakyReLU(0.2))
        self.constant = nn.Parameter(torch.randn(1, width, 4, 4))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.styles = nn.ModuleList(nn.Linear(latent, 2 * width) for _ in range(3))
        self.image = nn.Conv2d(width, 3, 1)

    def forward(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        w = self.mapping(z)
        x = self.constant.repeat(z.shape[0], 1, 1, 1)
        for i, (conv, style) in enumerate(zip(self.convs, self.styles)):
            if i:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            scale, shift = style(w)[:, :, None, None].chunk(2, 1)
            x = F.leaky_relu(F.instance_norm(conv(x)) * (scale + 1) + shift, 0.2)
        return self.image(x)


class SuperResolution(nn.Module):
    """ESPCN (Shi et al. 2016): pixel shuffle; and a global residual by bicubic enlargement."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 16, 3, 1, 1), nn.PReLU(),
                                  nn.Conv2d(16, 27, 3, padding=1), nn.PixelShuffle(3))

    def forward(self, image):
        return self.body(image) + F.interpolate(image, scale_factor=3, mode="nearest")


class CycleGenerator(nn.Module):
    """CycleGAN's: reflection padding, instance normalization, residual blocks."""

    def __init__(self, width=8):
        super().__init__()
        norm = nn.InstanceNorm2d
        self.net = nn.Sequential(
            nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), norm(width), nn.ReLU(True),
            nn.Conv2d(width, 2 * width, 3, 2, 1), norm(2 * width), nn.ReLU(True),
            nn.ReflectionPad2d(1), nn.Conv2d(2 * width, 2 * width, 3), norm(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1), norm(width), nn.ReLU(True),
            nn.ReplicationPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, image):
        return self.net(image)


class VisionMixer(nn.Module):
    def __init__(self, patch=8, size=32, channels=32, layers=2, classes=10, gated=False):
        super().__init__()
        n = (size // patch) ** 2
        self.patch = nn.Conv2d(3, channels, patch, patch)
        self.norm1 = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.norm2 = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.tokens = nn.ModuleList(nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
                                    for _ in range(layers))
        self.channels = nn.ModuleList(nn.Sequential(nn.Linear(channels, 64), nn.GELU(), nn.Linear(64, channels))
                                      for _ in range(layers))
        self.head = nn.Linear(channels, classes)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        for n1, t, n2, c in zip(self.norm1, self.tokens, self.norm2, self.channels):
            x = x + t(n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + c(n2(x))
        return self.head(x.mean(1))


class GatedMlp(nn.Module):
    """gMLP (Liu et al. 2021): a spatial gating unit."""

    def __init__(self, vocabulary=100, length=16, channels=32, classes=10):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        self.norm, self.up, self.down = nn.LayerNorm(channels), nn.Linear(channels, 128), nn.Linear(64, channels)
        self.gate_norm, self.spatial = nn.LayerNorm(64), nn.Conv1d(length, length, 1)
        self.head = nn.Linear(channels, classes)

    def forward(self, token):
        x = self.embed(token)
        u, v = F.gelu(self.up(self.norm(x))).chunk(2, -1)
        return self.head((x + self.down(u * self.spatial(self.gate_norm(v)))).mean(1))


class DetectionBackbone(nn.Module):
    """A detector's backbone: focus (every other pixel), cross-stage blocks, spatial pyramid of pools, upsampling."""

    def __init__(self, width=8, outputs=9):
        super().__init__()

        def conv(a, b, k=1, s=1):
            return nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())

        self.focus = conv(12, width, 3)
        self.down1, self.left, self.right = conv(width, 2 * width, 3, 2), conv(2 * width, width), conv(2 * width, width)
        self.inner = conv(width, width, 3)
        self.down2 = conv(2 * width, 4 * width, 3, 2)
        self.pyramid_in, self.pyramid_out = conv(4 * width, 2 * width), conv(8 * width, 4 * width)
        self.lateral, self.merge = conv(4 * width, 2 * width), conv(4 * width, 2 * width, 3)
        self.head = nn.Conv2d(2 * width, outputs, 1)

    def forward(self, image):
        x = torch.cat([image[..., ::2, ::2], image[..., 1::2, ::2], image[..., ::2, 1::2], image[..., 1::2, 1::2]], 1)
        x = self.down1(self.focus(x))
        a = torch.cat([self.inner(self.left(x)), self.right(x)], 1)
        b = self.pyramid_in(self.down2(a))
        pools = [F.max_pool2d(b, k, 1, k // 2) for k in (3, 5, 7)]
        b = self.lateral(self.pyramid_out(torch.cat([b] + pools, 1)))
        return self.head(self.merge(torch.cat([F.interpolate(b, scale_factor=2, mode="nearest"), a], 1)))


class FeaturePyramid(nn.Module):
    """A small residual backbone with a feature pyramid (Lin et al. 2017) and a head that is shared by its levels."""

    def __init__(self, width=8, outputs=6):
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(2, b), nn.ReLU())
                                    for a, b in ((3, width), (width, 2 * width), (2 * width, 4 * width)))
        self.lateral = nn.ModuleList(nn.Conv2d(c, width, 1) for c in (width, 2 * width, 4 * width))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.head = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, outputs, 3,
                                                                                             padding=1))

    def forward(self, image):
        features, x = [], image
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        levels = [self.lateral[2](features[2])]
        for i in (1, 0):
            levels.append(self.lateral[i](features[i]) + F.interpolate(levels[-1], size=features[i].shape[-2:],
                                                                       mode="nearest"))
        scores = [self.head(smooth(level)).permute(0, 2, 3, 1).flatten(1, 2) for smooth, level in
                  zip(self.smooth, levels)]
        return torch.cat(scores, 1)


class Detr(nn.Module):
    """Queries that are learned, cross attention to the pixels of a small backbone (Carion et al. 2020)."""

    def __init__(self, channels=32, queries=6, classes=5):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU(), nn.Conv2d(16, channels, 3, 2, 1))
        self.transformer = nn.Transformer(channels, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.queries = nn.Parameter(torch.rand(queries, channels))
        self.rows, self.columns = nn.Parameter(torch.rand(4, channels // 2)), nn.Parameter(torch.rand(4, channels // 2))
        self.head = nn.Linear(channels, classes)

    def forward(self, image):
        x = self.backbone(image)
        b, c, h, w = x.shape
        position = torch.cat([self.columns[:w].unsqueeze(0).repeat(h, 1, 1),
                              self.rows[:h].unsqueeze(1).repeat(1, w, 1)], -1).flatten(0, 1).unsqueeze(0)
        x = x.flatten(2).permute(0, 2, 1) + position
        return self.head(self.transformer(x, self.queries.unsqueeze(0).repeat(b, 1, 1)))


class GruLanguageModel(nn.Module):
    def __init__(self, kind="GRU", vocabulary=100, channels=24, layers=2, bidirectional=False, **arguments):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        self.rnn = getattr(nn, kind)(channels, channels, layers, batch_first=True, bidirectional=bidirectional,
                                     **arguments)
        self.scores = nn.Linear(channels * (2 if bidirectional else 1), vocabulary)

    def forward(self, token):
        return self.scores(self.rnn(self.embed(token))[0])


class Seq2Seq(nn.Module):
    """Encoder and decoder; the decoder begins with the encoder's last state, and attends to its states (Luong)."""

    def __init__(self, kind="GRU", vocabulary=60, channels=20, attention=True):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, channels), nn.Embedding(vocabulary, channels)
        self.encoder = getattr(nn, kind)(channels, channels, batch_first=True)
        self.decoder = getattr(nn, kind)(channels, channels, batch_first=True)
        self.score = nn.Linear(channels, channels, bias=False)
        self.combine = nn.Linear(2 * channels, channels)
        self.attention = attention
        self.scores = nn.Linear(channels, vocabulary)

    def forward(self, source, target):
        states, last = self.encoder(self.source(source))
        y, _ = self.decoder(self.target(target), last)
        if self.attention:
            weights = torch.bmm(self.score(y), states.transpose(1, 2)).softmax(-1)
            y = torch.tanh(self.combine(torch.cat([torch.bmm(weights, states), y], -1)))
        return self.scores(y)


class Bahdanau(nn.Module):
    """Additive attention by cells that are called step by step."""

    def __init__(self, vocabulary=50, channels=16):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, channels), nn.Embedding(vocabulary, channels)
        self.encoder = nn.GRU(channels, channels, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(3 * channels, channels)
        self.query, self.key, self.energy = (nn.Linear(channels, channels), nn.Linear(2 * channels, channels),
                                             nn.Linear(channels, 1, bias=False))
        self.start = nn.Linear(2 * channels, channels)
        self.scores = nn.Linear(channels, vocabulary)

    def forward(self, source, target):
        states, _ = self.encoder(self.source(source))
        keys, h, y = self.key(states), torch.tanh(self.start(states.mean(1))), self.target(target)
        outputs = []
        for t in range(target.shape[1]):
            energy = self.energy(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(-1)
            context = torch.bmm(F.softmax(energy, 1).unsqueeze(1), states).squeeze(1)
            h = self.cell(torch.cat([y[:, t], context], 1), h)
            outputs.append(self.scores(h))
        return torch.stack(outputs, 1)


class TranslationTransformer(nn.Module):
    """nn.Transformer with a causal mask and sines, as PyTorch's tutorial has it."""

    def __init__(self, vocabulary=60, channels=32, length=12):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, channels), nn.Embedding(vocabulary, channels)
        self.transformer = nn.Transformer(channels, 4, 2, 2, 64, dropout=0.0, batch_first=True)
        self.scores = nn.Linear(channels, vocabulary)
        angle = torch.arange(length)[:, None] * torch.exp(torch.arange(0, channels, 2) * (-math.log(1e4) / channels))
        table = torch.zeros(length, channels)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("table", table)
        self.channels = channels

    def embed(self, table, token):
        return table(token) * math.sqrt(self.channels) + self.table[:token.shape[1]]

    def forward(self, source, target):
        n = target.shape[1]
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        return self.scores(self.transformer(self.embed(self.source, source), self.embed(self.target, target),
                                            tgt_mask=mask))


class T5Model(nn.Module):
    """Encoder and decoder with RMS normalization and relative positions, which the first layer has for all."""

    class Attention(nn.Module):
        def __init__(self, channels, heads, bias):
            super().__init__()
            self.heads = heads
            self.q, self.k, self.v, self.o = (nn.Linear(channels, channels, bias=False) for _ in range(4))
            self.bias = nn.Embedding(8, heads) if bias else None

        def positions(self, n, causal):
            distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
            if causal:
                bucket = (-distance).clamp(0, 7)
            else:
                bucket = (distance > 0).long() * 4 + distance.abs().clamp(max=3)
            return self.bias(bucket).permute(2, 0, 1).unsqueeze(0)

        def forward(self, x, memory=None, bias=None, causal=False):
            b, n, c = x.shape
            m = x if memory is None else memory

            def heads(t):
                return t.view(b, -1, self.heads, c // self.heads).transpose(1, 2)

            scores = heads(self.q(x)) @ heads(self.k(m)).transpose(2, 3)
            if self.bias is not None:
                bias = self.positions(n, causal)
            if bias is not None:
                scores = scores + bias
            if causal:
                scores = scores + torch.triu(torch.full((n, n), -1e9), 1)
            y = scores.softmax(-1) @ heads(self.v(m))
            return self.o(y.transpose(1, 2).reshape(b, n, c)), bias

    class Norm(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(channels))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def __init__(self, vocabulary=60, channels=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        make = lambda first: self.Attention(channels, heads, first)  # noqa: E731
        self.encoder = nn.ModuleList(make(i == 0) for i in range(layers))
        self.decoder = nn.ModuleList(make(i == 0) for i in range(layers))
        self.cross = nn.ModuleList(make(False) for i in range(layers))
        self.norms = nn.ModuleList(self.Norm(channels) for _ in range(5 * layers + 2))
        self.up = nn.ModuleList(nn.Linear(channels, 64, bias=False) for _ in range(2 * layers))
        self.down = nn.ModuleList(nn.Linear(64, channels, bias=False) for _ in range(2 * layers))
        self.layers = layers
        self.scores = nn.Linear(channels, vocabulary, bias=False)

    def forward(self, source, target):
        norms, bias, x = iter(self.norms), None, self.embed(source)
        for i in range(self.layers):
            y, bias = self.encoder[i](next(norms)(x), bias=bias)
            x = x + y
            x = x + self.down[i](F.relu(self.up[i](next(norms)(x))))
        memory, bias, x = next(norms)(x), None, self.embed(target)
        for i in range(self.layers):
            y, bias = self.decoder[i](next(norms)(x), bias=bias, causal=True)
            x = x + y
            x = x + self.cross[i](next(norms)(x), memory)[0]
            x = x + self.down[self.layers + i](F.relu(self.up[self.layers + i](next(norms)(x))))
        return self.scores(next(norms)(x))


class Bert(nn.Module):
    """Three tables of embeddings, a padding mask that is an input, pooler."""

    def __init__(self, vocabulary=100, channels=32, heads=4, length=16, layers=2, classes=3):
        super().__init__()
        self.token, self.position, self.segment = (nn.Embedding(vocabulary, channels), nn.Embedding(length, channels),
                                                   nn.Embedding(2, channels))
        self.norm = nn.LayerNorm(channels, eps=1e-12)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(nn.ModuleDict({
                "q": nn.Linear(channels, channels), "k": nn.Linear(channels, channels),
                "v": nn.Linear(channels, channels), "o": nn.Linear(channels, channels),
                "n1": nn.LayerNorm(channels), "up": nn.Linear(channels, 64), "down": nn.Linear(64, channels),
                "n2": nn.LayerNorm(channels)}))
        self.pooler, self.head = nn.Linear(channels, channels), nn.Linear(channels, classes)
        self.heads = heads
        self.register_buffer("ids", torch.arange(length).expand(1, -1))

    def forward(self, token, segment, mask):
        b, n = token.shape
        x = self.norm(self.token(token) + self.segment(segment) + self.position(self.ids[:, :n]))
        hidden = (1.0 - mask[:, None, None, :]) * -10000.0
        for m in self.layers:
            q, k, v = (m[name](x).view(b, n, self.heads, -1).permute(0, 2, 1, 3) for name in "qkv")
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + hidden
            y = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3).contiguous().view(b, n, -1)
            x = m["n1"](x + m["o"](y))
            x = m["n2"](x + m["down"](F.gelu(m["up"](x))))
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class GroupedLlama(nn.Module):
    """Grouped queries by expand, rotary positions, SwiGLU, tied table."""

    def __init__(self, vocabulary=100, channels=32, heads=4, kv=2, layers=2):
        super().__init__()
        self.heads, self.kv, size = heads, kv, channels // heads
        self.embed = nn.Embedding(vocabulary, channels)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "q": nn.Linear(channels, channels, bias=False), "k": nn.Linear(channels, kv * size, bias=False),
            "v": nn.Linear(channels, kv * size, bias=False), "o": nn.Linear(channels, channels, bias=False),
            "n1": T5Model.Norm(channels), "n2": T5Model.Norm(channels), "gate": nn.Linear(channels, 48, bias=False),
            "up": nn.Linear(channels, 48, bias=False), "down": nn.Linear(48, channels, bias=False)})
            for _ in range(layers))
        self.norm = T5Model.Norm(channels)
        self.register_buffer("frequency", 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size), persistent=False)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, token):
        b, n = token.shape
        x = self.embed(token)
        position = torch.arange(n, dtype=x.dtype)
        angle = position[:, None] * self.frequency[None, :].to(x.dtype)
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos()[None, None], angle.sin()[None, None]
        mask = torch.full((n, n), float("-inf"), dtype=x.dtype).triu(1)
        for m in self.layers:
            y = m["n1"](x)
            q = m["q"](y).view(b, n, self.heads, -1).transpose(1, 2)
            k, v = (m[name](y).view(b, n, self.kv, -1).transpose(1, 2) for name in "kv")
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            k, v = (t[:, :, None].expand(b, self.kv, self.heads // self.kv, n, t.shape[-1]).reshape(
                b, self.heads, n, t.shape[-1]) for t in (k, v))
            scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + mask
            x = x + m["o"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
            y = m["n2"](x)
            x = x + m["down"](F.silu(m["gate"](y)) * m["up"](y))
        return self.norm(x) @ self.embed.weight.t()


class Wav2Vec(nn.Module):
    """Strided convolutions of a wave, group normalization, convolutional positions, an encoder layer, CTC-like
    scores."""

    def __init__(self, channels=32, classes=12):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 10, 5, bias=False)
        self.norm = nn.GroupNorm(16, 16)
        self.conv2, self.conv3 = nn.Conv1d(16, 16, 3, 2, bias=False), nn.Conv1d(16, 16, 2, 2, bias=False)
        self.project_norm, self.project = nn.LayerNorm(16), nn.Linear(16, channels)
        self.position = nn.Conv1d(channels, channels, 8, padding=4, groups=4)
        self.layer = nn.TransformerEncoderLayer(channels, 4, 64, 0.0, "gelu", batch_first=True)
        self.scores = nn.Linear(channels, classes)

    def forward(self, wave):
        x = F.gelu(self.norm(self.conv1(wave.unsqueeze(1))))
        x = F.gelu(self.conv3(F.gelu(self.conv2(x))))
        x = self.project(self.project_norm(x.transpose(1, 2)))
        x = x + F.gelu(self.position(x.transpose(1, 2))[:, :, :-1]).transpose(1, 2)
        return self.scores(self.layer(x))


class Conformer(nn.Module):
    def __init__(self, channels=24, heads=4, bands=20, classes=10):
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.project = nn.Linear(8 * (((bands - 1) // 2 - 1) // 2), channels)
        feed = lambda: nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, 48), nn.SiLU(),  # noqa: E731
                                     nn.Linear(48, channels))
        self.feed1, self.feed2 = feed(), feed()
        self.norm_a, self.attention = nn.LayerNorm(channels), nn.MultiheadAttention(channels, heads, batch_first=True)
        self.norm_c = nn.LayerNorm(channels)
        self.wide = nn.Conv1d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv1d(channels, channels, 7, padding=3, groups=channels)
        self.batch_norm, self.narrow = nn.BatchNorm1d(channels), nn.Conv1d(channels, channels, 1)
        self.norm, self.scores = nn.LayerNorm(channels), nn.Linear(channels, classes)

    def forward(self, spectrum):
        x = self.subsample(spectrum.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.project(x.transpose(1, 2).reshape(b, t, c * f))
        x = x + 0.5 * self.feed1(x)
        y = self.norm_a(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.wide(self.norm_c(x).transpose(1, 2)), 1)
        x = x + self.narrow(F.silu(self.batch_norm(self.depthwise(y)))).transpose(1, 2)
        return self.scores(self.norm(x + 0.5 * self.feed2(x)))


class DeepSpeech(nn.Module):
    """Convolutions on a spectrogram with Hardtanh, a recurrent layer in two directions."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, (11, 5), (2, 1), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
        self.rnn = nn.RNN(8 * 10, 16, bidirectional=True, nonlinearity="tanh")
        self.head = nn.Linear(16, classes)

    def forward(self, spectrum):  # [batch, bands, time]
        x = self.conv(spectrum.unsqueeze(1)).flatten(1, 2).permute(2, 0, 1)
        y, _ = self.rnn(x)
        y = y.view(y.shape[0], y.shape[1], 2, -1).sum(2)
        return self.head(y).transpose(0, 1)


class WaveNet(nn.Module):
    """Causal dilated convolutions, gated, with skips (Oord et al. 2016)."""

    def __init__(self, channels=16, levels=32):
        super().__init__()
        self.embed = nn.Embedding(levels, channels)
        self.gates = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=2 ** i) for i in range(3))
        self.out, self.skip = (nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(3)) for _ in range(2))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(),
                                  nn.Conv1d(channels, levels, 1))

    def forward(self, token):
        x, total = self.embed(token).transpose(1, 2), 0
        for i, (gate, out, skip) in enumerate(zip(self.gates, self.out, self.skip)):
            a, b = gate(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(y)
            x = x + out(y)
        return self.head(total).transpose(1, 2)


class Dlrm(nn.Module):
    """Embeddings of categories, dot products of all pairs below the diagonal (Naumov et al. 2019)."""

    def __init__(self, sizes=(30, 20, 10), channels=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, channels) for n in sizes)
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, channels), nn.ReLU())
        pairs = (len(sizes) + 1) * len(sizes) // 2
        self.top = nn.Sequential(nn.Linear(channels + pairs, 16), nn.ReLU(), nn.Linear(16, 2))
        rows = torch.tensor([i for i in range(len(sizes) + 1) for j in range(i)])
        columns = torch.tensor([j for i in range(len(sizes) + 1) for j in range(i)])
        self.rows, self.columns = rows, columns

    def forward(self, dense, category):
        x = self.bottom(dense)
        t = torch.cat([x.unsqueeze(1)] + [table(category[:, i]).unsqueeze(1) for i, table in enumerate(self.tables)], 1)
        z = torch.bmm(t, t.transpose(1, 2))
        return self.top(torch.cat([x, z[:, self.rows, self.columns]], 1))


class DeepFm(nn.Module):
    """Factorization machine and a deep part on the same embeddings (Guo et al. 2017)."""

    def __init__(self, fields=4, size=20, channels=6):
        super().__init__()
        self.register_buffer("offset", torch.arange(fields) * size)
        self.linear, self.embed = nn.Embedding(fields * size, 1), nn.Embedding(fields * size, channels)
        self.bias = nn.Parameter(torch.zeros(1))
        self.deep = nn.Sequential(nn.Linear(fields * channels, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, category):
        category = category + self.offset
        e = self.embed(category)
        pairs = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        y = self.linear(category).sum(1) + self.bias + pairs + self.deep(e.flatten(1))
        return torch.cat([-y, y], 1)


class CrossNetwork(nn.Module):
    """DCN (Wang et al. 2017): x0 (w x) + b + x."""

    def __init__(self, features=12, layers=3):
        super().__init__()
        self.w = nn.ParameterList(nn.Parameter(torch.randn(features, 1) * 0.3) for _ in range(layers))
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(features)) for _ in range(layers))
        self.deep = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 8), nn.ReLU())
        self.head = nn.Linear(features + 8, 2)

    def forward(self, dense):
        x = dense
        for w, b in zip(self.w, self.b):
            x = dense * (x @ w) + b + x
        return self.head(torch.cat([x, self.deep(dense)], 1))


class TwoTower(nn.Module):
    """Users and items, normalized; scores of the items of a sample by a temperature."""

    def __init__(self, users=40, items=50, channels=16):
        super().__init__()
        self.user, self.item = nn.Embedding(users, channels), nn.Embedding(items, channels)
        self.left = nn.Sequential(nn.Linear(channels, 32), nn.ReLU(), nn.Linear(32, channels))
        self.right = nn.Sequential(nn.Linear(channels, 32), nn.ReLU(), nn.Linear(32, channels))

    def forward(self, user, candidates):
        u = F.normalize(self.left(self.user(user)), dim=-1)
        i = F.normalize(self.right(self.item(candidates)), dim=-1)
        return torch.bmm(i, u.unsqueeze(-1)).squeeze(-1) / 0.1


class Din(nn.Module):
    """Attention to the history of a user by the item that is asked for, masked where the history is shorter."""

    def __init__(self, items=50, channels=8):
        super().__init__()
        self.item = nn.Embedding(items, channels)
        self.attention = nn.Sequential(nn.Linear(4 * channels, 16), nn.Sigmoid(), nn.Linear(16, 1))
        self.head = nn.Sequential(nn.Linear(2 * channels, 16), nn.PReLU(), nn.Linear(16, 2))

    def forward(self, history, item, mask):
        h, q = self.item(history), self.item(item).unsqueeze(1)
        q = q.expand(-1, h.shape[1], -1)
        w = self.attention(torch.cat([q, h, q - h, q * h], -1)).squeeze(-1) * mask
        return self.head(torch.cat([(w.unsqueeze(-1) * h).sum(1), q[:, 0]], 1))


class NeuralCollaborativeFiltering(nn.Module):
    def __init__(self, users=40, items=50, channels=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, channels) for n in (users, items, users, items))
        self.mlp = nn.Sequential(nn.Linear(2 * channels, 16), nn.ReLU(), nn.Linear(16, channels), nn.ReLU())
        self.head = nn.Linear(2 * channels, 2)

    def forward(self, user, item):
        a, b, c, d = (t(x) for t, x in zip(self.tables, (user, item, user, item)))
        return self.head(torch.cat([a * b, self.mlp(torch.cat([c, d], -1))], -1))


class DeepSets(nn.Module):
    def __init__(self, features=3, classes=5, pool="sum"):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(features, 32), nn.ELU(), nn.Linear(32, 32))
        self.rho = nn.Sequential(nn.Linear(32, 32), nn.ELU(), nn.Linear(32, classes))
        self.pool = pool

    def forward(self, points):
        h = self.phi(points)
        return self.rho(h.sum(1) if self.pool == "sum" else h.max(1)[0])


class SetTransformer(nn.Module):
    """Induced attention and pooling by seeds (Lee et al. 2019)."""

    class Mab(nn.Module):
        def __init__(self, channels, heads):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(channels, channels) for _ in range(4))
            self.heads = heads

        def forward(self, q, k):
            q, k, v = self.q(q), self.k(k), self.v(k)
            size = q.shape[2] // self.heads
            q_, k_, v_ = (torch.cat(t.split(size, 2), 0) for t in (q, k, v))
            a = torch.softmax(q_.bmm(k_.transpose(1, 2)) / math.sqrt(q.shape[2]), 2)
            o = torch.cat((q_ + a.bmm(v_)).split(q.shape[0], 0), 2)
            return o + F.relu(self.o(o))

    def __init__(self, features=3, channels=16, classes=5):
        super().__init__()
        self.embed = nn.Linear(features, channels)
        self.inducing, self.seed = nn.Parameter(torch.randn(1, 4, channels)), nn.Parameter(torch.randn(1, 1, channels))
        self.down, self.up, self.pool = (self.Mab(channels, 4) for _ in range(3))
        self.head = nn.Linear(channels, classes)

    def forward(self, points):
        x = self.embed(points)
        h = self.down(self.inducing.repeat(x.shape[0], 1, 1), x)
        x = self.up(x, h)
        return self.head(self.pool(self.seed.repeat(x.shape[0], 1, 1), x)).squeeze(1)


class GraphConvolution(nn.Module):
    """Dense adjacency as an input, or one that all samples have in common; normalized by degree."""

    def __init__(self, features=6, channels=16, classes=4, fixed=0):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(features, channels), nn.Linear(channels, channels)])
        self.head = nn.Linear(channels, classes)
        if fixed:
            a = (torch.rand(fixed, fixed) < 0.4).float()
            a = ((a + a.t() + torch.eye(fixed)) > 0).float()
            d = a.sum(1).rsqrt()
            self.register_buffer("adjacency", d[:, None] * a * d[None, :])

    def forward(self, nodes, adjacency=None):
        if adjacency is None:
            a = self.adjacency
        else:
            a = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
        x = nodes
        for layer in self.layers:
            x = F.relu(torch.matmul(a, layer(x)))
        return self.head(x.mean(1))


class GraphAttention(nn.Module):
    """Velickovic et al. 2018 on a dense mask."""

    def __init__(self, features=6, channels=8, classes=4):
        super().__init__()
        self.w, self.left, self.right = (nn.Linear(features, channels, bias=False), nn.Linear(channels, 1),
                                         nn.Linear(channels, 1))
        self.head = nn.Linear(channels, classes)

    def forward(self, nodes, adjacency):
        h = self.w(nodes)
        e = F.leaky_relu(self.left(h) + self.right(h).transpose(1, 2), 0.2)
        a = torch.softmax(e + (adjacency - 1) * 1e9, -1)
        return self.head(F.elu(a @ h))


class GraphIsomorphism(nn.Module):
    def __init__(self, features=6, channels=16, classes=4):
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(features, channels), nn.ReLU(), nn.Linear(channels, channels))
        self.head = nn.Linear(channels, classes)

    def forward(self, nodes, adjacency):
        h = self.mlp((1 + self.epsilon) * nodes + adjacency @ nodes)
        return self.head(h.sum(1))


class PointNet(nn.Module):
    """With the transform of points (Qi et al. 2017)."""

    def __init__(self, classes=6):
        super().__init__()
        self.t1, self.t2 = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 9)
        self.net = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1),
                                 nn.BatchNorm1d(32))
        self.head = nn.Linear(32, classes)

    def forward(self, points):
        t = self.t2(torch.max(self.t1(points), 2)[0]) + torch.eye(3).view(1, 9).to(points.dtype)
        x = torch.bmm(points.transpose(2, 1), t.view(-1, 3, 3)).transpose(2, 1)
        return self.head(torch.max(self.net(x), 2, keepdim=True)[0].view(-1, 32))


class C3d(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
            nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(16, 16, 3, (2, 1, 1), 1), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, classes))

    def forward(self, video):
        return self.net(video)


class ConvLstm(nn.Module):
    """Cells whose products are convolutions, step by step (Shi et al. 2015)."""

    def __init__(self, channels=8, classes=4):
        super().__init__()
        self.gates = nn.Conv2d(3 + channels, 4 * channels, 3, padding=1)
        self.head = nn.Conv2d(channels, classes, 1)
        self.channels = channels

    def forward(self, video):  # [batch, time, channel, height, width]
        b, t, _, height, width = video.shape
        h = video.new_zeros(b, self.channels, height, width)
        c = video.new_zeros(b, self.channels, height, width)
        for step in range(t):
            i, f, o, g = self.gates(torch.cat([video[:, step], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class TimeSformer(nn.Module):
    """Divided attention over time and space, a class token (Bertasius et al. 2021)."""

    def __init__(self, channels=16, frames=2, patches=4, classes=5):
        super().__init__()
        self.patch = nn.Conv3d(3, channels, (1, 8, 8), (1, 8, 8))
        self.place, self.time_place = (nn.Parameter(torch.randn(1, 1, patches, channels) * 0.1),
                                       nn.Parameter(torch.randn(1, frames, 1, channels) * 0.1))
        make = lambda: nn.MultiheadAttention(channels, 2, batch_first=True)  # noqa: E731
        self.time, self.space = make(), make()
        self.n1, self.n2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, video):
        x = self.patch(video).flatten(3).permute(0, 2, 3, 1) + self.place + self.time_place
        b, t, p, c = x.shape
        y = self.n1(x).permute(0, 2, 1, 3).reshape(b * p, t, c)
        x = x + self.time(y, y, y)[0].reshape(b, p, t, c).permute(0, 2, 1, 3)
        y = self.n2(x).reshape(b * t, p, c)
        x = x + self.space(y, y, y)[0].reshape(b, t, p, c)
        return self.head(x.mean((1, 2)))
