"""Small networks for onnx_models.py that people write by hand for text, speech and time series."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Alibi(nn.Module):
    """BLOOM: distances times a slope of each head, one weight with heads first."""

    def __init__(self, vocabulary=60, c=32, heads=4, length=12):
        super().__init__()
        self.heads = heads
        self.embed, self.norm0 = nn.Embedding(vocabulary, c), nn.LayerNorm(c)
        self.qkv, self.o = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.n1, self.n2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.up, self.down = nn.Linear(c, 64), nn.Linear(64, c)

    def forward(self, token):
        b, n = token.shape
        x = self.norm0(self.embed(token))
        slopes = torch.tensor([2 ** (-8 * (i + 1) / self.heads) for i in range(self.heads)], dtype=x.dtype)
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        bias = slopes[:, None, None] * distance[None].to(x.dtype)
        bias = bias.masked_fill(distance[None] > 0, torch.finfo(torch.float32).min)
        y = self.qkv(self.n1(x)).view(b, n, self.heads, 3, -1)
        q, k, v = y[..., 0, :], y[..., 1, :], y[..., 2, :]
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias
        y = torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), v).reshape(b, n, -1)
        x = x + self.o(y)
        x = x + self.down(F.gelu(self.up(self.n2(x))))
        return x @ self.embed.weight.t()


class TransformerXl(nn.Module):
    """Relative positions by a shift of the scores (Dai et al. 2019), trained u and v."""

    def __init__(self, vocabulary=60, c=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocabulary, c)
        self.q, self.kv, self.o = nn.Linear(c, c), nn.Linear(c, 2 * c), nn.Linear(c, c)
        self.r = nn.Linear(c, c, bias=False)
        self.u, self.v = (nn.Parameter(torch.randn(heads, c // heads) * 0.1) for _ in range(2))
        self.norm, self.scores = nn.LayerNorm(c), nn.Linear(c, vocabulary)

    def forward(self, token):
        b, n = token.shape
        x = self.embed(token)
        c = x.shape[-1]
        position = torch.arange(n - 1, -1, -1.0, dtype=x.dtype)
        frequency = 1 / (10000 ** (torch.arange(0.0, c, 2.0, dtype=x.dtype) / c))
        angle = torch.ger(position, frequency)
        r = self.r(torch.cat([angle.sin(), angle.cos()], -1)).view(n, self.heads, -1)
        q = self.q(x).view(b, n, self.heads, -1)
        k, v = (t.view(b, n, self.heads, -1) for t in self.kv(x).chunk(2, -1))
        ac = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        bd = torch.einsum("bihd,jhd->bhij", q + self.v, r)
        bd = F.pad(bd, (1, 0)).view(b, self.heads, n + 1, n)[:, :, 1:].view(b, self.heads, n, n)
        s = (ac + bd) / math.sqrt(c // self.heads)
        s = s + torch.full((n, n), -1e9, dtype=x.dtype).triu(1)
        y = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v).reshape(b, n, c)
        return self.scores(self.norm(x + self.o(y)))


class Performer(nn.Module):
    """Linear attention by elu + 1 (Katharopoulos et al. 2020), the largest of all tokens."""

    def __init__(self, vocabulary=60, c=32, heads=4, length=12, classes=5):
        super().__init__()
        self.heads = heads
        self.embed, self.place = nn.Embedding(vocabulary, c), nn.Parameter(torch.randn(length, c) * 0.1)
        self.qkv, self.o, self.head = nn.Linear(c, 3 * c), nn.Linear(c, c), nn.Linear(c, classes)

    def forward(self, token):
        x = self.embed(token) + self.place[:token.shape[1]]
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("bhnd,bhne->bhde", k, v)
        z = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(2)) + 1e-6)
        y = (q @ kv) * z.unsqueeze(-1)
        x = x + self.o(y.permute(0, 2, 1, 3).reshape(b, n, c))
        return self.head(x.max(1).values)


class TextCnn(nn.Module):
    """Kim 2014, with characters too (Kim et al. 2016) and a highway layer."""

    def __init__(self, vocabulary=60, c=16, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, c, padding_idx=None)
        self.convs = nn.ModuleList(nn.Conv2d(1, 8, (k, c)) for k in (2, 3, 4))
        self.transform, self.gate = nn.Linear(24, 24), nn.Linear(24, 24)
        self.head = nn.Linear(24, classes)

    def forward(self, token):
        x = self.embed(token).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = torch.cat([F.adaptive_max_pool1d(i, 1).squeeze(2) for i in x], 1)
        t = torch.sigmoid(self.gate(x))
        return self.head(t * F.relu(self.transform(x)) + (1 - t) * x)


class LstmTagger(nn.Module):
    """Two directions of an LSTM with attention to its states; the last states of both directions joined."""

    def __init__(self, vocabulary=60, c=16, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, c)
        self.lstm = nn.LSTM(c, c, 2, batch_first=True, bidirectional=True)
        self.score = nn.Parameter(torch.randn(2 * c) * 0.2)
        self.head = nn.Linear(4 * c, classes)

    def forward(self, token):
        x, (h, _) = self.lstm(self.embed(token))
        a = torch.softmax(torch.tanh(x) @ self.score, 1)
        pooled = (x * a.unsqueeze(-1)).sum(1)
        return self.head(torch.cat([pooled, torch.cat((h[-2], h[-1]), 1)], 1))


class Whisper(nn.Module):
    """Convolutions of a spectrogram, sines, an encoder; a decoder with cross attention and tied scores."""

    class Attention(nn.Module):
        def __init__(self, c, heads):
            super().__init__()
            self.query, self.value, self.out = (nn.Linear(c, c) for _ in range(3))
            self.key = nn.Linear(c, c, bias=False)
            self.heads = heads

        def forward(self, x, memory=None, mask=None):
            q = self.query(x)
            k, v = (f(x if memory is None else memory) for f in (self.key, self.value))
            b, n, c = q.shape
            scale = (c // self.heads) ** -0.25
            q = q.view(*q.shape[:2], self.heads, -1).permute(0, 2, 1, 3) * scale
            k = k.view(*k.shape[:2], self.heads, -1).permute(0, 2, 3, 1) * scale
            v = v.view(*v.shape[:2], self.heads, -1).permute(0, 2, 1, 3)
            qk = q @ k
            if mask is not None:
                qk = qk + mask[:n, :n]
            w = F.softmax(qk, dim=-1)
            return self.out((w @ v).permute(0, 2, 1, 3).flatten(start_dim=2))

    def __init__(self, bands=8, c=24, heads=4, frames=20, vocabulary=40, length=9):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(bands, c, 3, padding=1), nn.Conv1d(c, c, 3, 2, 1)
        half = c // 2
        frequency = torch.exp(-math.log(10000) / (half - 1) * torch.arange(half))
        angle = torch.arange(frames // 2).float()[:, None] * frequency
        self.register_buffer("sines", torch.cat([angle.sin(), angle.cos()], 1))
        self.register_buffer("mask", torch.empty(length, length).fill_(-float("inf")).triu_(1), persistent=False)
        make = lambda: self.Attention(c, heads)  # noqa: E731
        self.encoder, self.decoder, self.cross = make(), make(), make()
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(7))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c)) for _ in range(2))
        self.embed = nn.Embedding(vocabulary, c)
        self.place = nn.Parameter(torch.randn(length, c) * 0.1)

    def forward(self, spectrum, token):
        x = F.gelu(self.conv2(F.gelu(self.conv1(spectrum)))).permute(0, 2, 1)
        x = x + self.sines.to(x.dtype)
        n = self.norms
        x = x + self.encoder(n[0](x))
        memory = n[2](x + self.mlps[0](n[1](x)))
        y = self.embed(token) + self.place[:token.shape[-1]]
        y = y + self.decoder(n[3](y), mask=self.mask)
        y = y + self.cross(n[4](y), memory)
        y = n[6](y + self.mlps[1](n[5](y)))
        return y @ torch.transpose(self.embed.weight.to(y.dtype), 0, 1)


class Rwkv(nn.Module):
    """Time mixing with the token before and a decay of each channel, step by step (Peng et al. 2023)."""

    def __init__(self, vocabulary=60, c=16):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, c), nn.LayerNorm(c)
        self.mix_k, self.mix_v, self.mix_r = (nn.Parameter(torch.rand(1, 1, c)) for _ in range(3))
        self.decay, self.first = nn.Parameter(torch.randn(c) * 0.2), nn.Parameter(torch.randn(c) * 0.2)
        self.key, self.value, self.receptance, self.out = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.scores = nn.Linear(c, vocabulary)

    def forward(self, token):
        x = self.norm(self.embed(token))
        before = self.shift(x)
        k = self.key(x * self.mix_k + before * (1 - self.mix_k))
        v = self.value(x * self.mix_v + before * (1 - self.mix_v))
        r = torch.sigmoid(self.receptance(x * self.mix_r + before * (1 - self.mix_r)))
        w = -torch.exp(self.decay)
        a = torch.zeros_like(k[:, 0])
        b = torch.zeros_like(a)
        out = []
        for t in range(x.shape[1]):
            e = torch.exp(self.first + k[:, t])
            out.append((a + e * v[:, t]) / (b + e))
            e = torch.exp(k[:, t])
            a = torch.exp(w) * a + e * v[:, t]
            b = torch.exp(w) * b + e
        return self.scores(x + self.out(r * torch.stack(out, 1)))


class Crnn(nn.Module):
    """Text in images (Shi et al. 2015): convolutions whose columns are the steps of an LSTM."""

    def __init__(self, classes=10):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2),
                                 nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(True),
                                 nn.MaxPool2d((2, 2), (2, 1), (0, 1)), nn.Conv2d(16, 16, (4, 2)), nn.ReLU())
        self.lstm, self.head = nn.LSTM(16, 12, bidirectional=True), nn.Linear(24, classes)

    def forward(self, image):
        x = self.net(image).squeeze(2).permute(2, 0, 1)
        y, _ = self.lstm(x)
        t, b, h = y.size()
        return self.head(y.view(t * b, h)).view(t, b, -1).permute(1, 0, 2)


class Tacotron(nn.Module):
    """CBHG's convolution bank and a decoder of LSTM cells with location-sensitive attention (Shen et al. 2018)."""

    def __init__(self, vocabulary=30, c=16, bands=6):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, c)
        self.bank = nn.ModuleList(nn.Conv1d(c, c, k, padding=k // 2) for k in (1, 3, 5))
        self.lstm = nn.LSTM(3 * c, c // 2, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(bands + c, c)
        self.q, self.m, self.e = nn.Linear(c, 8, bias=False), nn.Linear(c, 8, bias=False), nn.Linear(8, 1, bias=False)
        self.location, self.l = nn.Conv1d(2, 4, 3, padding=1, bias=False), nn.Linear(4, 8, bias=False)
        self.out = nn.Linear(2 * c, bands)

    def forward(self, token, frames):
        x = self.embed(token).transpose(1, 2)
        x = torch.cat([torch.relu(conv(x)) for conv in self.bank], 1).transpose(1, 2)
        memory, _ = self.lstm(x)
        keys = self.m(memory)
        b, n, c = memory.shape
        h, s = memory.new_zeros(b, c), memory.new_zeros(b, c)
        w, total, context = memory.new_zeros(b, n), memory.new_zeros(b, n), memory.new_zeros(b, c)
        out = []
        for t in range(frames.shape[1]):
            h, s = self.cell(torch.cat((frames[:, t], context), -1), (h, s))
            place = self.l(self.location(torch.stack((w, total), 1)).transpose(1, 2))
            w = torch.softmax(self.e(torch.tanh(self.q(h).unsqueeze(1) + keys + place)).squeeze(-1), 1)
            total = total + w
            context = torch.bmm(w.unsqueeze(1), memory).squeeze(1)
            out.append(self.out(torch.cat((h, context), -1)))
        return torch.stack(out, 1)


class HifiGan(nn.Module):
    """Weight normalization, transposed convolutions, dilated residual blocks (Kong et al. 2020)."""

    def __init__(self, bands=8, c=16, normalized=True):
        super().__init__()
        norm = nn.utils.weight_norm if normalized else (lambda m: m)
        self.pre = norm(nn.Conv1d(bands, c, 7, 1, 3))
        self.ups = nn.ModuleList(norm(nn.ConvTranspose1d(a, a // 2, 4, 2, 1)) for a in (c, c // 2))
        self.res = nn.ModuleList(norm(nn.Conv1d(a, a, 3, 1, d, d)) for a, d in ((c // 2, 3), (c // 4, 1)))
        self.post = norm(nn.Conv1d(c // 4, 5, 7, 1, 3))

    def forward(self, spectrum):
        x = self.pre(spectrum)
        for up, res in zip(self.ups, self.res):
            x = up(F.leaky_relu(x, 0.1))
            x = x + res(F.leaky_relu(x, 0.1))
        return torch.tanh(self.post(F.leaky_relu(x))).transpose(1, 2)


class ConvTasNet(nn.Module):
    """Separation: a learned encoder, temporal blocks, global layer normalization, masks (Luo and Mesgarani 2019)."""

    def __init__(self, c=12, speakers=2):
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, c, 8, 4, bias=False), nn.ConvTranspose1d(c, 1, 8, 4, bias=False)
        self.gamma, self.beta = nn.Parameter(torch.ones(1, c, 1)), nn.Parameter(torch.zeros(1, c, 1))
        self.wide, self.narrow = nn.Conv1d(c, 16, 1), nn.Conv1d(16, c, 1)
        self.deep = nn.Conv1d(16, 16, 3, padding=2, dilation=2, groups=16)
        self.act, self.mask = nn.PReLU(), nn.Conv1d(c, speakers * c, 1)
        self.speakers = speakers

    def norm(self, y):
        mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        var = torch.pow(y - mean, 2).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (y - mean) / torch.pow(var + 1e-8, 0.5) + self.beta

    def forward(self, wave):
        w = F.relu(self.encoder(wave.unsqueeze(1)))
        x = self.norm(w)
        x = x + self.narrow(self.act(self.deep(self.act(self.wide(x)))))
        b, c, t = w.shape
        m = F.softmax(self.mask(x).view(b, self.speakers, c, t), dim=1)
        s = (w.unsqueeze(1) * m).view(b * self.speakers, c, t)
        return self.decoder(s).view(b, self.speakers, -1).transpose(1, 2)


class NBeats(nn.Module):
    """Residual blocks on a series, with trend and seasons as fixed bases (Oreshkin et al. 2020); a moving average."""

    def __init__(self, back=12, ahead=5, c=16):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(back, c), nn.ReLU(), nn.Linear(c, c), nn.ReLU())
                                    for _ in range(2))
        self.theta = nn.ModuleList(nn.Linear(c, 2 * 3, bias=False) for _ in range(2))
        t = torch.linspace(0, 1, back + ahead)
        self.register_buffer("trend", torch.stack([t ** i for i in range(3)]))
        self.register_buffer("season", torch.stack([torch.cos(2 * math.pi * i * t) for i in range(3)]))
        self.average = nn.AvgPool1d(3, 1, 0)
        self.back, self.mix = back, nn.Linear(ahead, 3)

    def forward(self, series):
        padded = torch.cat([series[:, 0:1], series, series[:, -1:]], 1)
        trend = self.average(padded.unsqueeze(1)).squeeze(1)
        x, forecast = series - trend, trend[:, -1:]
        for block, theta, basis in zip(self.blocks, self.theta, (self.trend, self.season)):
            a, b = theta(block(x)).chunk(2, -1)
            basis = basis.to(x.dtype)
            x = x - a @ basis[:, :self.back]
            forecast = forecast + b @ basis[:, self.back:]
        return self.mix(forecast)


class PatchTst(nn.Module):
    """Patches of a series by unfold, each channel for itself, instance normalization and back (Nie et al. 2023)."""

    def __init__(self, length=16, patch=4, stride=2, c=16, ahead=5):
        super().__init__()
        self.patch, self.stride = patch, stride
        n = (length - patch) // stride + 1
        self.embed, self.place = nn.Linear(patch, c), nn.Parameter(torch.randn(n, c) * 0.1)
        self.layer = nn.TransformerEncoderLayer(c, 4, 32, 0.0, batch_first=True)
        self.head = nn.Linear(n * c, ahead)

    def forward(self, series):  # [batch, length, channels]
        mean = series.mean(1, keepdim=True)
        scale = torch.sqrt(torch.var(series, dim=1, keepdim=True, unbiased=False) + 1e-5)
        x = ((series - mean) / scale).permute(0, 2, 1)
        x = x.unfold(2, self.patch, self.stride)
        b, m, n, p = x.shape
        x = self.layer(self.embed(x.reshape(b * m, n, p)) + self.place)
        y = self.head(x.reshape(b, m, -1)).permute(0, 2, 1)
        return (y * scale + mean).permute(0, 2, 1)
