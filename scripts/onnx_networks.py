"""Networks in plain PyTorch that onnx_models.py exports, besides torchvision's: LSTM language models, and transformers
in the ways in which people write them."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LstmLanguageModel(nn.Module):
    """The example of PyTorch's repository: embedding, LSTM, linear; perhaps with one table for both ends."""

    def __init__(self, vocabulary, channels, layers, tied=False, batch_first=True, bidirectional=False):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        self.lstm = nn.LSTM(channels, channels, layers, batch_first=batch_first, bidirectional=bidirectional)
        self.scores = nn.Linear(channels * (2 if bidirectional else 1), vocabulary)
        if tied:
            self.scores.weight = self.embed.weight

    def forward(self, token):
        return self.scores(self.lstm(self.embed(token))[0])


class SelfAttention(nn.Module):
    """Heads by view and transpose, a causal mask by masked_fill, as in minGPT; grouped: fewer heads of keys."""

    def __init__(self, channels, heads, length, causal=True, packed=True, rotary=False, bias=True):
        super().__init__()
        self.heads, self.causal, self.packed = heads, causal, packed
        if packed:
            self.qkv = nn.Linear(channels, 3 * channels, bias=bias)
        else:
            self.query, self.key, self.value = (nn.Linear(channels, channels, bias=bias) for _ in range(3))
        self.out = nn.Linear(channels, channels, bias=bias)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool().view(1, 1, length, length))
        self.rotary = rotary
        if rotary:
            size = channels // heads
            frequency = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
            self.register_buffer("frequency", frequency)

    def turn(self, x):
        length = x.shape[2]
        angle = torch.outer(torch.arange(length, dtype=torch.float32).to(x.dtype), self.frequency.to(x.dtype))
        angle = torch.cat((angle, angle), -1)
        first, second = x.chunk(2, -1)
        return x * angle.cos() + torch.cat((-second, first), -1) * angle.sin()

    def forward(self, x):
        batch, length, channels = x.shape
        if self.packed:
            q, k, v = self.qkv(x).split(channels, 2)
        else:
            q, k, v = self.query(x), self.key(x), self.value(x)
        q, k, v = (t.view(batch, length, self.heads, channels // self.heads).transpose(1, 2) for t in (q, k, v))
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        scores = q @ k.transpose(-2, -1) / math.sqrt(channels // self.heads)
        if self.causal:
            scores = scores.masked_fill(~self.mask[:, :, :length, :length], float("-inf"))
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, channels))


class RmsNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Gpt(nn.Module):
    """Decoder with learned positions, layer normalization, gelu; the table of tokens may be shared with the scores."""

    def __init__(self, vocabulary, channels, heads, length, layers, gelu="none", tied=True):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        self.position = nn.Embedding(length, channels)
        self.attention = nn.ModuleList(SelfAttention(channels, heads, length) for _ in range(layers))
        self.norm1 = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.norm2 = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.expand = nn.ModuleList(nn.Linear(channels, 4 * channels) for _ in range(layers))
        self.contract = nn.ModuleList(nn.Linear(4 * channels, channels) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        self.scores = nn.Linear(channels, vocabulary, bias=False)
        self.gelu = gelu
        if tied:
            self.scores.weight = self.embed.weight

    def activation(self, x):
        if self.gelu == "tanh":
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))
        return F.gelu(x)

    def forward(self, token):
        x = self.embed(token) + self.position(torch.arange(token.shape[1]))
        for i, attention in enumerate(self.attention):
            x = x + attention(self.norm1[i](x))
            x = x + self.contract[i](self.activation(self.expand[i](self.norm2[i](x))))
        return self.scores(self.norm(x))


class Llama(nn.Module):
    """Decoder with rotary positions, RMS normalization, SwiGLU."""

    def __init__(self, vocabulary, channels, heads, length, layers):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        self.attention = nn.ModuleList(SelfAttention(channels, heads, length, packed=False, rotary=True, bias=False)
                                       for _ in range(layers))
        self.norm1 = nn.ModuleList(RmsNorm(channels) for _ in range(layers))
        self.norm2 = nn.ModuleList(RmsNorm(channels) for _ in range(layers))
        self.gate, self.up, self.down = (
            nn.ModuleList(nn.Linear(*size, bias=False) for _ in range(layers))
            for size in ((channels, 2 * channels), (channels, 2 * channels), (2 * channels, channels)))
        self.norm = RmsNorm(channels)
        self.scores = nn.Linear(channels, vocabulary, bias=False)

    def forward(self, token):
        x = self.embed(token)
        for i, attention in enumerate(self.attention):
            x = x + attention(self.norm1[i](x))
            y = self.norm2[i](x)
            x = x + self.down[i](F.silu(self.gate[i](y)) * self.up[i](y))
        return self.scores(self.norm(x))


class Encoder(nn.Module):
    """PyTorch's own encoder layers, post- or pre-normalized; the first position is the class."""

    def __init__(self, vocabulary, channels, heads, layers, classes, batch_first=True, norm_first=False, mask=None):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, channels)
        layer = nn.TransformerEncoderLayer(channels, heads, 2 * channels, dropout=0.0, activation="gelu",
                                           batch_first=batch_first, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(channels, classes)
        self.batch_first = batch_first
        if mask:
            self.register_buffer("mask", torch.full((mask, mask), float("-inf")).triu(1))
        else:
            self.mask = None

    def forward(self, token):
        x = self.embed(token)
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.encoder(x, self.mask)
        return self.head(x[:, 0] if self.batch_first else x[0])


class RotaryDecoder(nn.Module):
    """Decoders with rotary positions as others write them: GPT-J's pairs, NeoX's part of the channels, cos and sin as
    buffers, grouped queries by repeat_interleave."""

    def __init__(self, style="neox", vocabulary=60, c=32, heads=4, kv=None, layers=2, length=12):
        super().__init__()
        self.style, self.heads, self.kv = style, heads, kv or heads
        size = c // heads
        self.turned = size // 2 if style == "neox" else size
        self.embed = nn.Embedding(vocabulary, c)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "qkv": nn.Linear(c, (heads + 2 * self.kv) * size), "o": nn.Linear(c, c), "n1": nn.LayerNorm(c),
            "n2": nn.LayerNorm(c), "up": nn.Linear(c, 64), "down": nn.Linear(64, c)}) for _ in range(layers))
        self.norm, self.scores = nn.LayerNorm(c), nn.Linear(c, vocabulary, bias=False)
        frequency = 1.0 / 10000 ** (torch.arange(0, self.turned, 2).float() / self.turned)
        angle = torch.outer(torch.arange(length).float(), frequency)
        angle = torch.cat((angle, angle), -1) if style != "gptj" else angle.repeat_interleave(2, -1)
        self.register_buffer("cos", angle.cos()[None, None])
        self.register_buffer("sin", angle.sin()[None, None])
        self.register_buffer("mask", torch.ones(length, length).tril().bool()[None, None])

    def rotate(self, x):
        if self.style == "gptj":
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack((-b, a), -1).flatten(-2)
        a, b = x[..., :x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
        return torch.cat((-b, a), -1)

    def turn(self, x):
        n, t = x.shape[2], self.turned
        cos, sin = self.cos[:, :, :n].to(x.dtype), self.sin[:, :, :n].to(x.dtype)
        if t == x.shape[-1]:
            return x * cos + self.rotate(x) * sin
        a, b = x[..., :t], x[..., t:]
        return torch.cat((a * cos + self.rotate(a) * sin, b), -1)

    def forward(self, token):
        b, n = token.shape
        x = self.embed(token)
        for m in self.layers:
            y = m["qkv"](m["n1"](x))
            size = x.shape[-1] // self.heads
            if self.style == "neox":  # heads first, then query, key, value
                q, k, v = y.view(b, n, self.heads, 3 * size).permute(0, 2, 1, 3).chunk(3, -1)
            else:
                q, k, v = y.split([self.heads * size, self.kv * size, self.kv * size], -1)
                q = q.view(b, n, self.heads, size).transpose(1, 2)
                k, v = (t.view(b, n, self.kv, size).transpose(1, 2) for t in (k, v))
            q, k = self.turn(q), self.turn(k)
            if self.kv != self.heads:
                k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
            s = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(size)
            s = torch.where(self.mask[:, :, :n, :n], s, torch.tensor(torch.finfo(torch.float32).min, dtype=s.dtype))
            y = torch.matmul(F.softmax(s, -1), v).permute(0, 2, 1, 3).reshape(b, n, -1)
            x = x + m["o"](y)
            x = x + m["down"](F.gelu(m["up"](m["n2"](x)), approximate="tanh"))
        return self.scores(self.norm(x))


class RotaryBeforeHeads(RotaryDecoder):
    """As LLaMA's own code: positions are turned before heads go in front of them."""

    def forward(self, token):
        b, n = token.shape
        x = self.embed(token)
        cos, sin = self.cos[0, 0, :n, None], self.sin[0, 0, :n, None]
        for m in self.layers:
            size = x.shape[-1] // self.heads
            q, k, v = m["qkv"](m["n1"](x)).split([self.heads * size, self.kv * size, self.kv * size], -1)
            q, k, v = (t.view(b, n, -1, size) for t in (q, k, v))
            q, k = q * cos + self.rotate(q) * sin, k * cos + self.rotate(k) * sin
            if self.kv != self.heads:
                k, v = (t[:, :, :, None].expand(b, n, self.kv, self.heads // self.kv, size)
                        .reshape(b, n, self.heads, size) for t in (k, v))
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            s = q @ k.transpose(-1, -2) / math.sqrt(size)
            s = s.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf"))
            x = x + m["o"]((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
            x = x + m["down"](F.gelu(m["up"](m["n2"](x)), approximate="tanh"))
        return self.scores(self.norm(x))
