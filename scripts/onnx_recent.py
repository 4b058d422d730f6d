"""Small networks for onnx_models.py that people write by hand today: transformers of pictures with windows, registers
and two streams, restoration, tables, time series, language models with compressed keys or exponential gates, networks
of basis functions."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def heads_of(x, heads):
    """[batch, length, channels] as [batch, heads, length, channels of a head]."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def mlp(c, times=2):
    return nn.Sequential(nn.Linear(c, times * c), nn.GELU(), nn.Linear(times * c, c))


class SwinV2(nn.Module):
    """Windows with cosine attention, a learned temperature that is limited, a bias that a small network computes from
    the distance of two positions, and normalization after each branch (Liu et al. 2022); a shifted second block."""

    class Block(nn.Module):
        def __init__(self, c, heads, window, shift):
            super().__init__()
            self.heads, self.window, self.shift = heads, window, shift
            self.temperature = nn.Parameter(torch.log(10 * torch.ones(heads, 1, 1)))
            self.distance = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, heads, bias=False))
            at = torch.arange(1 - window, window, dtype=torch.float32)
            table = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1) * 8 / (window - 1)
            self.register_buffer("table", torch.sign(table) * torch.log2(table.abs() + 1) / 3)
            place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
            apart = place[:, :, None] - place[:, None, :] + window - 1
            self.register_buffer("row", apart[0] * (2 * window - 1) + apart[1])
            self.qkv, self.out, self.mlp = nn.Linear(c, 3 * c), nn.Linear(c, c), mlp(c)
            self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)

        def attention(self, x):
            q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
            scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
            scores = scores * torch.clamp(self.temperature, max=math.log(100)).exp()
            table = self.distance(self.table).reshape(-1, self.heads)
            count = self.window ** 2
            bias = table[self.row.view(-1)].view(count, count, -1).permute(2, 0, 1)
            scores = scores + (16 * torch.sigmoid(bias)).unsqueeze(0)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

        def forward(self, x):
            b, h, w, c = x.shape
            n = self.window
            y = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
            y = y.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)
            y = self.attention(y).view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
            x = x + self.norm1(torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
            return x + self.norm2(self.mlp(x))

    def __init__(self, c=8, heads=2, window=4, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, c, 2, 2)
        self.blocks = nn.Sequential(self.Block(c, heads, window, 0), self.Block(c, heads, window, 2))
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        return self.head(self.blocks(self.patches(image).permute(0, 2, 3, 1)).mean((1, 2)))


class Registers(nn.Module):
    """ViT with a class token and register tokens (Darcet et al. 2024), layer scale, normalized queries and keys, and a
    gated feed-forward network, as DINOv2 has them."""

    class Block(nn.Module):
        def __init__(self, c, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.query_norm, self.key_norm = nn.LayerNorm(c // heads), nn.LayerNorm(c // heads)
            self.both, self.down = nn.Linear(c, 4 * c), nn.Linear(2 * c, c)
            self.scale1, self.scale2 = (nn.Parameter(torch.rand(c) * 0.5) for _ in range(2))

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            y = (self.query_norm(q) @ self.key_norm(k).transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
            x = x + self.scale1 * self.out(y.transpose(1, 2).flatten(2))
            a, b = self.both(self.norm2(x)).chunk(2, -1)
            return x + self.scale2 * self.down(F.silu(a) * b)

    def __init__(self, c=12, heads=2, registers=3, positions=16, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, c, 4, 4)
        self.cls, self.registers = nn.Parameter(torch.randn(1, 1, c)), nn.Parameter(torch.randn(1, registers, c))
        self.positions = nn.Parameter(torch.randn(1, positions + 1, c) * 0.2)
        self.blocks = nn.Sequential(self.Block(c, heads), self.Block(c, heads))
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(2 * c, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.positions
        x = torch.cat([x[:, :1], self.registers.expand(x.shape[0], -1, -1), x[:, 1:]], 1)
        x = self.norm(self.blocks(x))
        return self.head(torch.cat([x[:, 0], x[:, 1 + self.registers.shape[1]:].mean(1)], -1))


class MaxVit(nn.Module):
    """Attention within blocks, then on a grid of distant pixels (Tu et al. 2022), after an inverted bottleneck."""

    def __init__(self, c=8, heads=2, size=4, classes=5):
        super().__init__()
        self.size, self.heads = size, heads
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.bottleneck = nn.Sequential(nn.Conv2d(c, 2 * c, 1, bias=False), nn.BatchNorm2d(2 * c), nn.GELU(),
                                        nn.Conv2d(2 * c, 2 * c, 3, 1, 1, groups=2 * c, bias=False),
                                        nn.BatchNorm2d(2 * c), nn.GELU(), nn.Conv2d(2 * c, c, 1))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(4))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(c, c) for _ in range(2))
        self.mlps = nn.ModuleList(mlp(c) for _ in range(2))
        self.head = nn.Linear(c, classes)

    def attend(self, x, i):
        q, k, v = (heads_of(part, self.heads) for part in self.qkv[i](self.norms[2 * i](x)).chunk(3, -1))
        y = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
        x = x + self.out[i](y.transpose(1, 2).flatten(2))
        return x + self.mlps[i](self.norms[2 * i + 1](x))

    def forward(self, image):
        x = self.stem(image)
        x = x + self.bottleneck(x)
        b, c, h, w = x.shape
        n = self.size
        blocks = x.view(b, c, h // n, n, w // n, n).permute(0, 2, 4, 3, 5, 1).reshape(-1, n * n, c)
        x = self.attend(blocks, 0).view(b, h // n, w // n, n, n, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)
        grid = x.view(b, c, n, h // n, n, w // n).permute(0, 3, 5, 2, 4, 1).reshape(-1, n * n, c)
        x = self.attend(grid, 1).view(b, h // n, w // n, n, n, c).permute(0, 5, 3, 1, 4, 2).reshape(b, c, h, w)
        return self.head(x.mean((2, 3)))


class ChannelNorm(nn.Module):
    """A normalization over the channels of images, in its parts."""

    def __init__(self, c):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(c) + 0.5), nn.Parameter(torch.randn(c) * 0.2)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return (x - mean) / (variance + 1e-6).sqrt() * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class Restoration(nn.Module):
    """A block of NAFNet (Chen et al. 2022: gates without activation, channel attention, learned scales) and one of
    Restormer (Zamir et al. 2022: attention of normalized channels, gated depthwise convolutions)."""

    def __init__(self, c=8, heads=2):
        super().__init__()
        self.heads = heads
        self.first, self.last = nn.Conv2d(3, c, 3, 1, 1), nn.Conv2d(c, 3, 3, 1, 1)
        self.norms = nn.ModuleList(ChannelNorm(c) for _ in range(4))
        self.a1, self.a2, self.a3 = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, 2 * c, 3, 1, 1, groups=2 * c), nn.Conv2d(
            c, c, 1)
        self.channels = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c, 1))
        self.f1, self.f2 = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(c, c, 1)
        self.beta, self.gamma = (nn.Parameter(torch.rand(1, c, 1, 1)) for _ in range(2))
        self.temperature = nn.Parameter(torch.rand(heads, 1, 1) + 0.5)
        self.qkv, self.qkv_depth = nn.Conv2d(c, 3 * c, 1, bias=False), nn.Conv2d(3 * c, 3 * c, 3, 1, 1, groups=3 * c)
        self.out, self.g1 = nn.Conv2d(c, c, 1, bias=False), nn.Conv2d(c, 4 * c, 1, bias=False)
        self.g_depth, self.g2 = nn.Conv2d(4 * c, 4 * c, 3, 1, 1, groups=4 * c), nn.Conv2d(2 * c, c, 1, bias=False)

    @staticmethod
    def gate(x):
        a, b = x.chunk(2, dim=1)
        return a * b

    def forward(self, image):
        x = self.first(image)
        y = self.gate(self.a2(self.a1(self.norms[0](x))))
        x = x + self.a3(y * self.channels(y)) * self.beta
        x = x + self.f2(self.gate(self.f1(self.norms[1](x)))) * self.gamma
        b, c, h, w = x.shape
        q, k, v = (part.reshape(b, self.heads, -1, h * w) for part in self.qkv_depth(self.qkv(self.norms[2](x))).chunk(
            3, dim=1))
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature
        x = x + self.out((scores.softmax(-1) @ v).reshape(b, c, h, w))
        left, right = self.g_depth(self.g1(self.norms[3](x))).chunk(2, dim=1)
        return self.last(x + self.g2(F.gelu(left) * right)) + image


class TabTransformer(nn.Module):
    """Categories through a transformer, with embeddings of their columns; numbers beside them (Huang et al. 2020)."""

    def __init__(self, sizes=(5, 7, 4), numbers=4, c=8, heads=2, classes=3):
        super().__init__()
        self.register_buffer("offset", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.values, self.columns = nn.Embedding(sum(sizes), c - 2), nn.Parameter(torch.randn(len(sizes), 2))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(c, heads, 2 * c, 0.0, F.gelu, batch_first=True,
                                                                        norm_first=True), 2)
        self.norm = nn.LayerNorm(numbers)
        width = len(sizes) * c + numbers
        self.head = nn.Sequential(nn.Linear(width, 4 * width), nn.SELU(), nn.Linear(4 * width, classes))

    def forward(self, category, dense):
        x = self.values(category + self.offset)
        x = torch.cat([x, self.columns.unsqueeze(0).expand(x.shape[0], -1, -1)], -1)
        return self.head(torch.cat([self.encoder(x).flatten(1), self.norm(dense)], -1))


class InvertedTransformer(nn.Module):
    """Each series is a token (Liu et al. 2024); its mean and deviation are removed first and put back at the end, with
    learned scales between (Kim et al. 2022)."""

    def __init__(self, series=4, past=12, future=3, c=8, heads=2):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(series) + 0.5), nn.Parameter(torch.randn(series) * 0.2)
        self.embed = nn.Linear(past, c)
        self.encoder = nn.TransformerEncoderLayer(c, heads, 2 * c, 0.0, batch_first=True)
        self.head = nn.Linear(c, future)

    def forward(self, x):  # [batch, past, series]
        mean = x.mean(1, keepdim=True)
        deviation = torch.sqrt(torch.var(x - mean, dim=1, keepdim=True, unbiased=False) + 1e-5)
        y = (x - mean) / deviation * self.weight + self.bias
        y = self.head(self.encoder(self.embed(y.transpose(1, 2)))).transpose(1, 2)
        return (y - self.bias) / (self.weight + 1e-10) * deviation + mean


class LatentAttention(nn.Module):
    """Keys and values from a common compressed vector, rotary positions in channels of their own whose keys all heads
    share (DeepSeek-V2), a gate per head."""

    def __init__(self, vocabulary=30, c=16, heads=2, latent=6, plain=4, turned=4, length=6):
        super().__init__()
        self.heads, self.plain, self.turned = heads, plain, turned
        self.embed = nn.Embedding(vocabulary, c)
        self.norm, self.latent_norm = nn.LayerNorm(c), nn.LayerNorm(latent)
        self.q = nn.Linear(c, heads * (plain + turned), bias=False)
        self.down, self.up = nn.Linear(c, latent + turned, bias=False), nn.Linear(latent, heads * 2 * plain, bias=False)
        self.out, self.head = nn.Linear(heads * plain, c, bias=False), nn.Linear(c, vocabulary, bias=False)
        angle = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(0, turned, 2) / turned)
        self.register_buffer("cosine", torch.cos(torch.cat([angle, angle], -1)))
        self.register_buffer("sine", torch.sin(torch.cat([angle, angle], -1)))
        self.register_buffer("hidden", torch.full((length, length), -1e9).triu(1))

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-b, a], -1) * self.sine

    def forward(self, tokens):
        x = self.embed(tokens)
        y = self.norm(x)
        q_plain, q_turned = heads_of(self.q(y), self.heads).split([self.plain, self.turned], -1)
        latent, k_turned = self.down(y).split([self.latent_norm.normalized_shape[0], self.turned], -1)
        k, v = heads_of(self.up(self.latent_norm(latent)), self.heads).split([self.plain, self.plain], -1)
        turned = self.rotated(k_turned.unsqueeze(1)).expand(-1, self.heads, -1, -1)
        q, k = torch.cat([q_plain, self.rotated(q_turned)], -1), torch.cat([k, turned], -1)
        scores = q @ k.transpose(2, 3) * (self.plain + self.turned) ** -0.5 + self.hidden
        return self.head(x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))


class MatrixMemory(nn.Module):
    """The parallel form of xLSTM's matrix memory (Beck et al. 2024): exponential gates, sums of logarithms along the
    sequence, the largest of each row subtracted, a normalizer that is limited from below."""

    def __init__(self, vocabulary=30, c=8, heads=2, length=6):
        super().__init__()
        self.heads = heads
        self.embed, self.norm = nn.Embedding(vocabulary, c), nn.LayerNorm(c)
        self.qkv, self.gates, self.open = nn.Linear(c, 3 * c), nn.Linear(c, 2 * heads), nn.Linear(c, c)
        self.of_heads = nn.LayerNorm(c // heads, elementwise_affine=False)
        self.scale, self.out, self.head = nn.Parameter(torch.rand(c) + 0.5), nn.Linear(c, c), nn.Linear(c, vocabulary)
        self.register_buffer("seen", torch.ones(length, length).tril().bool())

    def forward(self, tokens):
        x = self.embed(tokens)
        y = self.norm(x)
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(y).chunk(3, -1))
        enter, forget = self.gates(y).transpose(1, 2).chunk(2, 1)  # [batch, heads, length]
        kept = torch.cumsum(F.logsigmoid(forget), -1)
        decay = kept.unsqueeze(-1) - kept.unsqueeze(-2) + enter.unsqueeze(-2)
        decay = decay.masked_fill(~self.seen, -1e9)
        largest = decay.max(-1, keepdim=True).values
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5 * torch.exp(decay - largest)
        norm = torch.maximum(scores.sum(-1, keepdim=True).abs(), torch.exp(-largest)) + 1e-6
        y = self.of_heads((scores / norm @ v).transpose(1, 2)).flatten(2) * self.scale
        y = y * torch.sigmoid(self.open(x))
        return self.head(x + self.out(y))


class Gemma3(nn.Module):
    """A local layer with a window and a global one, normalized queries and keys with scales of 1 + weight,
    normalization before and after each branch, heads that share keys, embeddings times the root of their width."""

    class Norm(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(c) * 0.2)

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight)

    class Layer(nn.Module):
        def __init__(self, c, heads, head, length, window):
            super().__init__()
            self.heads = heads
            self.q, self.k, self.v = (nn.Linear(c, n * head, bias=False) for n in (heads, 1, 1))
            self.out = nn.Linear(heads * head, c, bias=False)
            self.norms = nn.ModuleList(Gemma3.Norm(c) for _ in range(4))
            self.q_norm, self.k_norm = Gemma3.Norm(head), Gemma3.Norm(head)
            self.gate, self.up, self.down = nn.Linear(c, 2 * c, False), nn.Linear(c, 2 * c, False), nn.Linear(
                2 * c, c, False)
            angle = torch.arange(length)[:, None] * (1e4 if window else 1e6) ** (-torch.arange(0, head, 2) / head)
            self.register_buffer("cosine", torch.cos(torch.cat([angle, angle], -1)))
            self.register_buffer("sine", torch.sin(torch.cat([angle, angle], -1)))
            seen = torch.ones(length, length).tril().bool()
            self.register_buffer("seen", seen & ~torch.ones(length, length).tril(-window).bool() if window else seen)

        def rotated(self, x):
            a, b = x.chunk(2, -1)
            return x * self.cosine + torch.cat([-b, a], -1) * self.sine

        def forward(self, x):
            y = self.norms[0](x)
            q, k, v = heads_of(self.q(y), self.heads), heads_of(self.k(y), 1), heads_of(self.v(y), 1)
            q, k = self.rotated(self.q_norm(q)), self.rotated(self.k_norm(k))
            scores = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).masked_fill(~self.seen, -1e30)
            x = x + self.norms[1](self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
            y = self.norms[2](x)
            return x + self.norms[3](self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y)))

    def __init__(self, vocabulary=30, c=12, heads=2, head=8, length=6):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, c), self.Norm(c)
        self.layers = nn.Sequential(self.Layer(c, heads, head, length, 3), self.Layer(c, heads, head, length, 0))
        self.scale = c ** 0.5

    def forward(self, tokens):
        x = self.norm(self.layers(self.embed(tokens) * self.scale))
        return x @ self.embed.weight.t()


class TwoStreams(nn.Module):
    """Joint attention of text and image with weights of their own, modulated by the time (Esser et al. 2024); the text
    goes no further than the last block."""

    class Stream(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.modulation = nn.Linear(c, 6 * c)
            self.qkv, self.out, self.mlp = nn.Linear(c, 3 * c), nn.Linear(c, c), mlp(c)
            self.norm1, self.norm2 = (nn.LayerNorm(c, elementwise_affine=False) for _ in range(2))

        def before(self, x, time):
            self.parts = self.modulation(F.silu(time)).unsqueeze(1).chunk(6, -1)
            return self.qkv(self.norm1(x) * (1 + self.parts[1]) + self.parts[0]).chunk(3, -1)

        def after(self, x, y):
            x = x + self.parts[2] * self.out(y)
            return x + self.parts[5] * self.mlp(self.norm2(x) * (1 + self.parts[4]) + self.parts[3])

    def __init__(self, c=8, heads=2, vocabulary=20, size=8, channels=3):
        super().__init__()
        self.heads = heads
        self.patches, self.text = nn.Conv2d(channels, c, 2, 2), nn.Embedding(vocabulary, c)
        self.register_buffer("frequency", torch.exp(-math.log(1e4) * torch.arange(c // 2) / (c // 2)))
        self.time = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, c))
        self.positions = nn.Parameter(torch.randn(1, (size // 2) ** 2, c) * 0.2)
        self.image1, self.text1, self.image2, self.text2 = (self.Stream(c) for _ in range(4))
        self.text2.after = None
        for unused in ("out", "mlp", "norm2"):
            setattr(self.text2, unused, None)
        self.last = nn.Linear(c, 4 * channels)

    def attend(self, image, text):
        q, k, v = (heads_of(torch.cat([a, b], 1), self.heads) for a, b in zip(text, image))
        y = F.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1) @ v
        y = y.transpose(1, 2).flatten(2)
        return y[:, :text[0].shape[1]], y[:, text[0].shape[1]:]

    def forward(self, image, prompt, step):
        angle = step.unsqueeze(1) * self.frequency
        time = self.time(torch.cat([angle.cos(), angle.sin()], -1))
        x = self.patches(image)
        b, c, h, w = x.shape
        x, text = x.flatten(2).transpose(1, 2) + self.positions, self.text(prompt)
        of_text, of_image = self.attend(self.image1.before(x, time), self.text1.before(text, time))
        x, text = self.image1.after(x, of_image), self.text1.after(text, of_text)
        _, of_image = self.attend(self.image2.before(x, time), self.text2.before(text, time))
        x = self.last(self.image2.after(x, of_image))
        return x.view(b, h, w, 2, 2, -1).permute(0, 5, 1, 3, 2, 4).reshape(b, -1, 2 * h, 2 * w)


class LayeredExtraction(nn.Module):
    """Experts of each task and of all, whose gates choose anew in the second layer (Tang et al. 2020); instance-guided
    masks of the features (Wang et al. 2021)."""

    def __init__(self, features=10, c=8, classes=2):
        super().__init__()
        self.mask = nn.Sequential(nn.Linear(features, 2 * features), nn.ReLU(), nn.Linear(2 * features, features))
        self.norm = nn.LayerNorm(features)
        expert = lambda width: nn.Sequential(nn.Linear(width, c), nn.ReLU())  # noqa: E731
        self.experts = nn.ModuleList(nn.ModuleList(nn.ModuleList(expert(width) for _ in range(2)) for _ in range(3))
                                     for width in (features, c))
        self.gates = nn.ModuleList([nn.ModuleList(nn.Linear(features, n) for n in (4, 4, 6)),
                                    nn.ModuleList(nn.Linear(c, n) for n in (4, 4))])
        self.towers = nn.ModuleList(nn.Linear(c, classes) for _ in range(2))

    def layer(self, inputs, experts, gates):
        outputs = [[expert(x) for expert in own] for x, own in zip(inputs, experts)]
        mixed = []
        for i, gate in enumerate(gates):
            choice = torch.stack(outputs[i] + outputs[2] if i < 2 else sum(outputs, []), 1)
            mixed.append(torch.einsum("be,bec->bc", gate(inputs[i]).softmax(-1), choice))
        return mixed

    def forward(self, x):
        x = self.norm(x) * self.mask(x)
        inputs = self.layer([x, x, x], self.experts[0], self.gates[0])
        inputs = self.layer(inputs, self.experts[1], self.gates[1])
        return tuple(tower(y) for tower, y in zip(self.towers, inputs))


class BasisFunctions(nn.Module):
    """A network of learned functions on edges: Gaussians on a grid (FastKAN, Li 2024), then Chebyshev polynomials by
    their recursion, then sines with a learned frequency."""

    def __init__(self, features=5, hidden=6, classes=3, grid=5, degree=3):
        super().__init__()
        self.register_buffer("grid", torch.linspace(-2, 2, grid))
        self.norm = nn.LayerNorm(features)
        self.spline, self.base = nn.Linear(features * grid, hidden, bias=False), nn.Linear(features, hidden)
        self.coefficients = nn.Parameter(torch.randn(hidden, hidden, degree + 1) * 0.3)
        self.frequency, self.degree = nn.Parameter(torch.rand(hidden) + 0.5), degree
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        near = torch.exp(-((self.norm(x).unsqueeze(-1) - self.grid) / 1.0) ** 2)
        x = torch.tanh(self.spline(near.flatten(1)) + self.base(F.silu(x)))
        terms = [torch.ones_like(x), x]
        for _ in range(2, self.degree + 1):
            terms.append(2 * x * terms[-1] - terms[-2])
        y = torch.einsum("bid,iod->bo", torch.stack(terms, -1), self.coefficients)
        return self.head(torch.sin(self.frequency * y))


class RungeKutta(nn.Module):
    """A neural differential equation: four steps of the classical method of Runge and Kutta, of a small network that
    also has the time, with the same weights in each of the 16 calls."""

    def __init__(self, c=6, classes=3, steps=4):
        super().__init__()
        self.first, self.second = nn.Linear(c + 1, 16), nn.Linear(16, c)
        self.head, self.steps = nn.Linear(c, classes), steps

    def derivative(self, time, x):
        return self.second(torch.tanh(self.first(torch.cat([x, torch.full_like(x[:, :1], time)], 1))))

    def forward(self, x):
        step = 1 / self.steps
        for i in range(self.steps):
            time = i * step
            k1 = self.derivative(time, x)
            k2 = self.derivative(time + step / 2, x + k1 * step / 2)
            k3 = self.derivative(time + step / 2, x + k2 * step / 2)
            k4 = self.derivative(time + step, x + k3 * step)
            x = x + (k1 + 2 * k2 + 2 * k3 + k4) * (step / 6)
        return self.head(x)


class Branches(nn.Module):
    """E-Branchformer's layer for speech (Kim et al. 2022): attention beside a gated convolution of time, joined by a
    depthwise convolution; after two strided convolutions of the spectrum."""

    def __init__(self, bands=16, c=8, heads=2, classes=6):
        super().__init__()
        self.heads = heads
        self.front = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU())
        self.project = nn.Linear(4 * 3, c)
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(n) for n in (c, c, 2 * c, c))
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(2 * c, c)
        self.gate = nn.Conv1d(2 * c, 2 * c, 3, padding=1, groups=2 * c)
        self.both, self.merge = nn.Conv1d(2 * c, 2 * c, 3, padding=1, groups=2 * c), nn.Linear(2 * c, c)
        self.head = nn.Linear(c, classes)

    def forward(self, spectrum):  # [batch, frames, bands]
        x = self.front(spectrum.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.project(x.transpose(1, 2).reshape(b, t, c * f))
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        left = self.out(((q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))
        a, g = F.gelu(self.up(self.norm2(x))).chunk(2, -1)
        right = self.down(a * self.gate(self.norm3(g).transpose(1, 2)).transpose(1, 2))
        y = torch.cat([left, right], -1)
        x = x + self.merge(y + self.both(y.transpose(1, 2)).transpose(1, 2))
        return self.head(self.norm4(x))
