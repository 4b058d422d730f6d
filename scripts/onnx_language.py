"""More small networks for onnx_models.py that people write by hand for text, speech and series, from the papers that
they cite: decoders as they differ today, shared layers, scans, cells, gates."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def causal(length, window=0):
    at = torch.arange(length)
    hidden = at[None] > at[:, None]
    if window:
        hidden = hidden | (at[:, None] - at[None] >= window)
    return hidden


class Rms(nn.Module):
    """Of a row's root mean square; `one_plus`: its weights are differences from 1 (Gemma)."""

    def __init__(self, c, one_plus=False):
        super().__init__()
        self.one_plus, self.weight = one_plus, nn.Parameter(0.1 * torch.randn(c) + (0 if one_plus else 1))

    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).type_as(x) if self.one_plus else self.weight * y.to(x.dtype)


def rotated(x, base=10000.0):
    """[batch, heads, length, channels], pairs as Hugging Face has them."""
    n = x.shape[-1]
    angles = torch.arange(x.shape[2]).float()[:, None] * (1.0 / base ** (torch.arange(0, n, 2).float() / n))[None]
    angles = torch.cat((angles, angles), -1)
    half = torch.cat((-x[..., n // 2:], x[..., :n // 2]), -1)
    return x * angles.cos().to(x.dtype) + half * angles.sin().to(x.dtype)


class Decoder(nn.Module):
    """Blocks of decoders as models of recent years have them. `style`: qwen2 (biases of queries, keys and values),
    qwen3 (normalized queries and keys), gemma (scaled embedding, tanh of scores, norms on both sides, windows in
    turns), phi (attention beside the layers, part of the channels turned), falcon (one head of keys), olmo
    (normalized over all heads, norm after)."""

    def __init__(self, style, vocabulary=60, c=16, heads=4, shared=2, layers=2, length=10):
        super().__init__()
        self.style, self.heads, self.shared = style, heads, 1 if style == "falcon" else shared
        d, k = c // heads, self.shared * (c // heads)
        self.embed = nn.Embedding(vocabulary, c)
        norm = (lambda n: Rms(n, True)) if style == "gemma" else nn.LayerNorm if style in ("phi", "falcon") else Rms
        many = lambda make: nn.ModuleList(make() for _ in range(layers))  # noqa: E731
        bias = style in ("qwen2", "phi")
        self.n1, self.n2, self.n3, self.n4 = many(lambda: norm(c)), many(lambda: norm(c)), many(lambda: norm(c)), many(
            lambda: norm(c))
        self.q, self.k, self.v = many(lambda: nn.Linear(c, c, bias)), many(lambda: nn.Linear(c, k, bias)), many(
            lambda: nn.Linear(c, k, bias))
        self.o = many(lambda: nn.Linear(c, c, style == "phi"))
        own = (c, k) if style == "olmo" else (d, d)
        self.qn, self.kn = many(lambda: norm(own[0])), many(lambda: norm(own[1]))
        self.gate, self.up, self.down = many(lambda: nn.Linear(c, 2 * c, bias=style == "phi")), many(
            lambda: nn.Linear(c, 2 * c, False)), many(lambda: nn.Linear(2 * c, c, style == "phi"))
        self.last, self.head = norm(c), nn.Linear(c, vocabulary, bias=style == "phi")
        if style == "gemma":
            self.head.weight = self.embed.weight
        self.register_buffer("all", torch.zeros(length, length).masked_fill(causal(length), float("-inf")))
        self.register_buffer("near", torch.zeros(length, length).masked_fill(causal(length, 4), float("-inf")))

    def attention(self, i, x):
        b, t, c = x.shape
        d, style = c // self.heads, self.style
        split = lambda y, heads: y.view(b, t, heads, d).transpose(1, 2)  # noqa: E731
        q, k, v = self.q[i](x), self.k[i](x), self.v[i](x)
        if style == "olmo":
            q, k = self.qn[i](q), self.kn[i](k)
        q, k, v = split(q, self.heads), split(k, self.shared), split(v, self.shared)
        if style == "qwen3":
            q, k = self.qn[i](q), self.kn[i](k)
        if style == "phi":
            q, k = (torch.cat((rotated(y[..., :d // 2]), y[..., d // 2:]), -1) for y in (q, k))
        else:
            q, k = rotated(q, 1e6 if style == "qwen2" else 10000.0), rotated(k, 1e6 if style == "qwen2" else 10000.0)
        if style != "falcon":
            k, v = (y[:, :, None].expand(b, self.shared, self.heads // self.shared, t, d).reshape(
                b, self.heads, t, d) for y in (k, v))
        if style == "gemma":
            scores = torch.matmul(q, k.transpose(2, 3)) * 6 ** -0.5
            scores = torch.tanh(scores / 50.0) * 50.0 + (self.near if i % 2 == 0 else self.all)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d) + self.all
        y = torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)
        return self.o[i](y.transpose(1, 2).contiguous().reshape(b, t, c))

    def mlp(self, i, x):
        if self.style in ("phi", "falcon"):
            return self.down[i](F.gelu(self.gate[i](x), approximate="tanh" if self.style == "phi" else "none"))
        act = (lambda y: F.gelu(y, approximate="tanh")) if self.style == "gemma" else F.silu
        return self.down[i](act(self.gate[i](x)) * self.up[i](x))

    def forward(self, token):
        x = self.embed(token)
        if self.style == "gemma":
            x = x * torch.tensor(x.shape[-1] ** 0.5, dtype=x.dtype)
        for i in range(len(self.q)):
            if self.style in ("phi", "falcon"):
                y = self.n1[i](x)
                x = x + self.attention(i, y) + self.mlp(i, y)
            elif self.style == "gemma":
                x = x + self.n2[i](self.attention(i, self.n1[i](x)))
                x = x + self.n4[i](self.mlp(i, self.n3[i](x)))
            elif self.style == "olmo":
                x = x + self.n1[i](self.attention(i, x))
                x = x + self.n2[i](self.mlp(i, x))
            else:
                x = x + self.attention(i, self.n1[i](x))
                x = x + self.mlp(i, self.n2[i](x))
        scores = self.head(self.last(x))
        return torch.tanh(scores / 30.0) * 30.0 if self.style == "gemma" else scores


class Opt(nn.Module):
    """Learned positions that begin at 2, relu, mask by the smallest float (Zhang et al. 2022)."""

    def __init__(self, vocabulary=60, c=16, heads=2, length=10):
        super().__init__()
        self.heads = heads
        self.embed, self.place = nn.Embedding(vocabulary, 8), nn.Embedding(length + 2, c)
        self.into, self.back = nn.Linear(8, c, bias=False), nn.Linear(c, 8, bias=False)
        self.n1, self.n2, self.n3 = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)

    def forward(self, token, mask):
        b, t = token.shape
        place = (torch.cumsum(torch.ones_like(mask[0]), 0) - 1).long() + 2
        x = self.into(self.embed(token)) + self.place(place)
        low = torch.finfo(torch.float32).min
        hidden = torch.full((t, t), low).masked_fill_(torch.arange(t) < (torch.arange(t) + 1).view(t, 1), 0)
        padding = 1.0 - mask[:, None, None, :].expand(b, 1, t, t).to(x.dtype)
        both = padding.masked_fill(padding.bool(), low) + hidden[None, None]
        y = self.n1(x)
        split = lambda z: z.view(b, t, self.heads, -1).transpose(1, 2).reshape(b * self.heads, t, -1)  # noqa: E731
        q, k, v = split(self.q(y) * (x.shape[-1] // self.heads) ** -0.5), split(self.k(y)), split(self.v(y))
        scores = torch.bmm(q, k.transpose(1, 2)).view(b, self.heads, t, t) + both
        scores = torch.max(scores, torch.tensor(low)).view(b * self.heads, t, t)
        y = torch.bmm(scores.softmax(-1), v).view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, -1)
        x = x + self.o(y)
        x = x + self.fc2(F.relu(self.fc1(self.n2(x))))
        return F.linear(self.back(self.n3(x)), self.embed.weight)


class Bart(nn.Module):
    """Encoder and decoder with norms after, positions from 2, one table for all, a mask of padding (Lewis et al.
    2020)."""

    def __init__(self, vocabulary=50, c=16, heads=2, length=12):
        super().__init__()
        self.heads = heads
        self.shared, self.of_source, self.of_target = nn.Embedding(vocabulary, c), nn.Embedding(
            length + 2, c), nn.Embedding(length + 2, c)
        layer = lambda: nn.ModuleDict({n: nn.Linear(c, c) for n in "qkvo"})  # noqa: E731
        self.a, self.b, self.c = layer(), layer(), layer()
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(7))
        self.f1, self.f2, self.g1, self.g2 = nn.Linear(c, 2 * c), nn.Linear(2 * c, c), nn.Linear(c, 2 * c), nn.Linear(
            2 * c, c)
        self.register_buffer("final_logits_bias", torch.zeros(1, vocabulary))

    def attend(self, w, x, memory, mask):
        split = lambda y: y.view(y.shape[0], -1, self.heads, y.shape[-1] // self.heads).transpose(1, 2)  # noqa: E731
        q, k, v = split(w["q"](x) * (x.shape[-1] // self.heads) ** -0.5), split(w["k"](memory)), split(w["v"](memory))
        y = (q @ k.transpose(2, 3) + mask).softmax(-1) @ v
        return w["o"](y.transpose(1, 2).reshape(x.shape))

    def forward(self, source, target, mask):
        n = self.norms
        at = lambda table, tokens: table(torch.arange(tokens.shape[1]) + 2)  # noqa: E731
        hidden = (1.0 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
        x = n[0](self.shared(source) * 4.0 + at(self.of_source, source))
        x = n[1](x + self.attend(self.a, x, x, hidden))
        memory = n[2](x + self.f2(F.gelu(self.f1(x))))
        t = target.shape[1]
        x = n[3](self.shared(target) * 4.0 + at(self.of_target, target))
        x = n[4](x + self.attend(self.b, x, x, torch.triu(torch.full((t, t), float("-inf")), 1)))
        x = n[5](x + self.attend(self.c, x, memory, hidden))
        x = n[6](x + self.g2(F.gelu(self.g1(x))))
        return F.linear(x, self.shared.weight) + self.final_logits_bias


class Albert(nn.Module):
    """One layer three times, a narrow embedding, tied head with a bias (Lan et al. 2020)."""

    def __init__(self, vocabulary=60, e=6, c=16, length=10):
        super().__init__()
        self.token, self.place, self.kind = nn.Embedding(vocabulary, e), nn.Embedding(length, e), nn.Embedding(2, e)
        self.norm, self.into = nn.LayerNorm(e, eps=1e-12), nn.Linear(e, c)
        self.attend, self.n1, self.n2 = nn.MultiheadAttention(c, 2, batch_first=True), nn.LayerNorm(c), nn.LayerNorm(c)
        self.f1, self.f2 = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.dense, self.n3, self.bias = nn.Linear(c, e), nn.LayerNorm(e), nn.Parameter(torch.randn(vocabulary))
        self.register_buffer("position_ids", torch.arange(length).expand((1, -1)))

    def forward(self, token):
        t = token.shape[1]
        kinds = torch.zeros_like(token)
        x = self.into(self.norm(self.token(token) + self.kind(kinds) + self.place(self.position_ids[:, :t])))
        for _ in range(3):
            x = self.n1(x + self.attend(x, x, x)[0])
            x = self.n2(x + self.f2(0.5 * (y := self.f1(x)) * (
                1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))))
        return self.n3(F.gelu(self.dense(x))) @ self.token.weight.t() + self.bias


class Deberta(nn.Module):
    """Scores from contents and from relative places, gathered by distance (He et al. 2021)."""

    def __init__(self, vocabulary=60, c=16, heads=2, reach=4, length=8):
        super().__init__()
        self.heads, self.reach = heads, reach
        self.embed, self.rel = nn.Embedding(vocabulary, c), nn.Embedding(2 * reach, c)
        self.norm, self.rel_norm = nn.LayerNorm(c, 1e-7), nn.LayerNorm(c, 1e-7)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c) for _ in range(4))
        self.head = nn.Linear(c, vocabulary)

    def forward(self, token):
        x = self.norm(self.embed(token))
        b, t, c = x.shape
        d = c // self.heads
        split = lambda y: y.view(y.shape[0], -1, self.heads, d).permute(0, 2, 1, 3)  # noqa: E731
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        rel = self.rel_norm(self.rel.weight)[None]
        pos_q, pos_k = split(self.q(rel)), split(self.k(rel))
        at = torch.arange(t)
        distance = torch.clamp(at[:, None] - at[None] + self.reach, 0, 2 * self.reach - 1)[None, None]
        index = distance.expand(b, self.heads, t, t)
        content = torch.gather(q @ pos_k.transpose(-1, -2), -1, index)
        places = torch.gather(k @ pos_q.transpose(-1, -2), -1, index).transpose(-1, -2)
        scores = (q @ k.transpose(-1, -2) + content + places) / math.sqrt(3 * d)
        return self.head(x + self.o((scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(b, t, c)))


class RetNet(nn.Module):
    """Retention in parallel: scores times powers of a decay by distance, normalized by head (Sun et al. 2023)."""

    def __init__(self, vocabulary=60, c=16, heads=2, length=10):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(vocabulary, c)
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(c, c, bias=False) for _ in range(5))
        self.norm, self.group, self.head = nn.LayerNorm(c), Rms(c // heads), nn.Linear(c, vocabulary)
        decay = torch.log(1 - 2.0 ** (-5 - torch.arange(heads).float()))
        at = torch.arange(length).float()
        distance = (at[:, None] - at[None]).masked_fill(causal(length), float("inf"))
        mask = torch.nan_to_num(torch.exp(distance * decay[:, None, None]))
        self.register_buffer("mask", mask / mask.sum(-1, keepdim=True).sqrt())

    def forward(self, token):
        x = self.embed(token)
        b, t, c = x.shape
        y = self.norm(x)
        split = lambda z: z.view(b, t, self.heads, -1).transpose(1, 2)  # noqa: E731
        q, k, v = rotated(split(self.q(y))), rotated(split(self.k(y)) * (c // self.heads) ** -0.5), split(self.v(y))
        scores = q @ k.transpose(-1, -2) * self.mask
        scores = scores / scores.detach().abs().sum(-1, keepdim=True).clamp(min=1, max=5e4)
        y = self.group((scores @ v).transpose(1, 2)).reshape(b, t, c)
        return self.head(x + self.o(F.silu(self.g(x)) * y))


class Mamba(nn.Module):
    """A state whose steps depend on the input, written as a loop over time (Gu and Dao 2023)."""

    def __init__(self, vocabulary=40, c=8, states=3, rank=2):
        super().__init__()
        self.inner, self.states, self.rank = 2 * c, states, rank
        self.embed, self.norm = nn.Embedding(vocabulary, c), Rms(c)
        self.into = nn.Linear(c, 4 * c, bias=False)
        self.conv = nn.Conv1d(2 * c, 2 * c, 4, groups=2 * c, padding=3)
        self.of_x, self.of_step = nn.Linear(2 * c, rank + 2 * states, bias=False), nn.Linear(rank, 2 * c)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1).float().repeat(2 * c, 1)))
        self.D, self.out, self.head = nn.Parameter(torch.ones(2 * c)), nn.Linear(2 * c, c, bias=False), nn.Linear(
            c, vocabulary, bias=False)

    def forward(self, token):
        x = self.embed(token)
        b, t, _ = x.shape
        u, gate = self.into(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[:, :, :t].transpose(1, 2))
        step, of_in, of_out = self.of_x(u).split([self.rank, self.states, self.states], -1)
        step = F.softplus(self.of_step(step))
        a = -torch.exp(self.A_log.float())
        keep = torch.exp(torch.einsum("bld,dn->bldn", step, a))
        new = torch.einsum("bld,bln,bld->bldn", step, of_in, u)
        state, ys = torch.zeros(b, self.inner, self.states, dtype=x.dtype), []
        for i in range(t):
            state = keep[:, i] * state + new[:, i]
            ys.append(torch.einsum("bdn,bn->bd", state, of_out[:, i]))
        y = (torch.stack(ys, 1) + u * self.D) * F.silu(gate)
        return self.head(x + self.out(y))


class Linformer(nn.Module):
    """Keys and values that a layer along the sequence makes fewer (Wang et al. 2020)."""

    def __init__(self, vocabulary=60, c=16, heads=2, length=12, k=4):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(vocabulary, c)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.of_k, self.of_v = nn.Parameter(0.3 * torch.randn(length, k)), nn.Parameter(0.3 * torch.randn(length, k))
        self.head = nn.Linear(c, 4)

    def forward(self, token):
        x = self.embed(token)
        b, n, c = x.shape
        d = c // self.heads
        k, v = torch.einsum("bnd,nk->bkd", self.k(x), self.of_k), torch.einsum("bnd,nk->bkd", self.v(x), self.of_v)
        q = self.q(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        k, v = (y.reshape(b, -1, self.heads, d).transpose(1, 2) for y in (k, v))
        y = torch.einsum("bhnk,bhkd->bhnd", (torch.einsum("bhnd,bhkd->bhnk", q, k) * d ** -0.5).softmax(-1), v)
        return self.head(self.o(y.transpose(1, 2).reshape(b, n, -1)).mean(1))


class Esim(nn.Module):
    """Two sentences aligned softly both ways, compared, pooled (Chen et al. 2017)."""

    def __init__(self, vocabulary=60, c=6, classes=3):
        super().__init__()
        self.embed, self.encoder = nn.Embedding(vocabulary, c), nn.LSTM(c, c, bidirectional=True, batch_first=True)
        self.compare, self.join = nn.Linear(8 * c, c), nn.LSTM(c, c, bidirectional=True, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8 * c, c), nn.Tanh(), nn.Linear(c, classes))

    def forward(self, first, second):
        a, b = self.encoder(self.embed(first))[0], self.encoder(self.embed(second))[0]
        e = a @ b.transpose(1, 2)
        a2, b2 = F.softmax(e, 2) @ b, F.softmax(e, 1).transpose(1, 2) @ a
        parts = []
        for x, y in ((a, a2), (b, b2)):
            v = self.join(F.relu(self.compare(torch.cat([x, y, x - y, x * y], -1))))[0]
            parts += [v.mean(1), v.max(1).values]
        return self.head(torch.cat(parts, -1))


class BiDaf(nn.Module):
    """Similarities by one weight of three parts, attention both ways, characters by a convolution (Seo et al. 2017)."""

    def __init__(self, vocabulary=60, letters=20, c=6):
        super().__init__()
        self.word, self.letter = nn.Embedding(vocabulary, c), nn.Embedding(letters, 4)
        self.conv = nn.Conv2d(1, c, (3, 4))
        self.gate, self.plain = nn.Linear(2 * c, 2 * c), nn.Linear(2 * c, 2 * c)
        self.encoder = nn.GRU(2 * c, c, bidirectional=True, batch_first=True)
        self.alpha, self.begin = nn.Linear(6 * c, 1, bias=False), nn.Linear(8 * c, 1)

    def encode(self, words, letters):
        b, t, n = letters.shape
        x = self.conv(self.letter(letters).view(b * t, 1, n, -1)).squeeze(3).max(2)[0].view(b, t, -1)
        x = torch.cat([self.word(words), x], -1)
        g = torch.sigmoid(self.gate(x))
        return self.encoder(g * F.relu(self.plain(x)) + (1 - g) * x)[0]

    def forward(self, context, context_letters, query, query_letters):
        c, q = self.encode(context, context_letters), self.encode(query, query_letters)
        b, n, m = c.shape[0], c.shape[1], q.shape[1]
        cc, qq = c.unsqueeze(2).expand(b, n, m, -1), q.unsqueeze(1).expand(b, n, m, -1)
        s = self.alpha(torch.cat([cc, qq, cc * qq], -1)).squeeze(-1)
        c2q = s.softmax(2) @ q
        q2c = torch.bmm(s.max(2)[0].softmax(1).unsqueeze(1), c).repeat(1, n, 1)
        return self.begin(torch.cat([c, c2q, c * c2q, c * q2c], -1)).squeeze(-1)


class CellModel(nn.Module):
    """An LSTM cell with normalized gates, written step by step (Ba et al. 2016), then torch's own cell."""

    def __init__(self, vocabulary=40, c=8):
        super().__init__()
        self.c, self.embed = c, nn.Embedding(vocabulary, c)
        self.ih, self.hh, self.ni, self.nh, self.nc = nn.Linear(c, 4 * c), nn.Linear(c, 4 * c), nn.LayerNorm(
            4 * c), nn.LayerNorm(4 * c), nn.LayerNorm(c)
        self.cell, self.head = nn.LSTMCell(c, c), nn.Linear(c, vocabulary)

    def forward(self, token):
        x = self.embed(token)
        h = c = x.new_zeros(x.shape[0], self.c)
        state, out = None, []
        for t in range(x.shape[1]):
            i, f, g, o = (self.ni(self.ih(x[:, t])) + self.nh(self.hh(h))).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.nc(c).tanh()
            state = self.cell(h, state)
            out.append(state[0])
        return self.head(torch.stack(out, 1))


class Tcn(nn.Module):
    """Causal convolutions with dilations whose ends are cut off (Bai et al. 2018), plain weights."""

    def __init__(self, c=6, classes=4):
        super().__init__()
        self.a, self.b = nn.ModuleList(), nn.ModuleList()
        for i in range(2):
            self.a.append(nn.Conv1d(3 if i == 0 else c, c, 3, padding=2 * 2 ** i, dilation=2 ** i))
            self.b.append(nn.Conv1d(c, c, 3, padding=2 * 2 ** i, dilation=2 ** i))
        self.skip, self.head = nn.Conv1d(3, c, 1), nn.Linear(c, classes)

    def forward(self, series):
        x = series
        for i, (a, b) in enumerate(zip(self.a, self.b)):
            cut = 2 * 2 ** i
            y = F.relu(b(F.relu(a(x)[:, :, :-cut].contiguous()))[:, :, :-cut].contiguous())
            x = F.relu(y + (self.skip(x) if i == 0 else x))
        return self.head(x[:, :, -1])


class FusionTransformer(nn.Module):
    """Selected variables, gated residuals, an LSTM whose states begin from what is static, attention whose heads share
    values (Lim et al. 2021); quantiles."""

    def __init__(self, variables=3, c=8, heads=2, quantiles=3):
        super().__init__()
        self.variables, self.heads = variables, heads
        self.each = nn.ModuleList(nn.Linear(1, c) for _ in range(variables))
        grn = lambda a, b: nn.ModuleDict({  # noqa: E731
            "a": nn.Linear(a, c), "b": nn.Linear(c, c), "g": nn.Linear(c, 2 * b), "s": nn.Linear(a, b),
            "n": nn.LayerNorm(b)})
        self.pick, self.static = grn(variables * c, variables), nn.Embedding(5, c)
        self.context, self.h, self.state = nn.Linear(c, c, bias=False), nn.Linear(c, c), nn.Linear(c, c)
        self.lstm, self.enrich, self.post = nn.LSTM(c, c, batch_first=True), grn(c, c), grn(c, c)
        self.q, self.k = nn.ModuleList(nn.Linear(c, c // 2) for _ in range(heads)), nn.ModuleList(
            nn.Linear(c, c // 2) for _ in range(heads))
        self.v, self.o, self.head = nn.Linear(c, c // 2), nn.Linear(c // 2, c), nn.Linear(c, quantiles)

    def gated(self, g, x, context=None):
        y = g["a"](x)
        if context is not None:
            y = y + context
        y = g["g"](g["b"](F.elu(y)))
        return g["n"](g["s"](x) + F.glu(y, -1))

    def forward(self, series, place):
        b, t, _ = series.shape
        s = self.static(place)
        parts = torch.stack([layer(series[:, :, i:i + 1]) for i, layer in enumerate(self.each)], -1)
        w = self.gated(self.pick, parts.flatten(2)).softmax(-1).unsqueeze(2)
        x = (parts * w).sum(-1)
        y = self.lstm(x, (self.h(s).unsqueeze(0), self.state(s).unsqueeze(0)))[0] + x
        y = self.gated(self.enrich, y, self.context(s).unsqueeze(1).expand(-1, t, -1))
        v, mask = self.v(y), torch.triu(torch.ones(t, t), 1) > 0
        heads = []
        for q, k in zip(self.q, self.k):
            scores = (torch.bmm(q(y), k(y).permute(0, 2, 1)) / 2).masked_fill(mask, -1e9)
            heads.append(torch.bmm(scores.softmax(2), v))
        y = y + self.o(torch.stack(heads, 2).mean(2))
        return self.head(self.gated(self.post, y))


class NHits(nn.Module):
    """Pools of several lengths and forecasts that are interpolated (Challu et al. 2023)."""

    def __init__(self, length=12, horizon=6):
        super().__init__()
        self.pools, self.points = (4, 2, 1), (2, 3, 6)
        self.fc = nn.ModuleList(nn.Sequential(nn.Linear(length // p, 10), nn.ReLU(), nn.Linear(10, length // p + n))
                                for p, n in zip(self.pools, self.points))
        self.length, self.horizon = length, horizon

    def forward(self, series):
        x, total = series, series[:, -1:]
        for fc, p, n in zip(self.fc, self.pools, self.points):
            theta = fc(F.max_pool1d(x.unsqueeze(1), p, p, ceil_mode=True).squeeze(1))
            back, ahead = theta[:, :-n], theta[:, -n:]
            x = x - F.interpolate(back[:, None], size=self.length, mode="linear", align_corners=False)[:, 0]
            total = total + F.interpolate(ahead[:, None], size=self.horizon, mode="linear")[:, 0]
        return total


class Decomposition(nn.Module):
    """Trend by an average with repeated ends, layers for both parts and along time (DLinear, TSMixer; Zeng et al. 2023,
    Chen et al. 2023)."""

    def __init__(self, length=12, channels=3, horizon=4):
        super().__init__()
        self.trend, self.rest, self.norm = nn.Linear(length, horizon), nn.Linear(length, horizon), nn.BatchNorm1d(
            length * channels)
        self.along, self.across = nn.Linear(length, length), nn.Linear(channels, channels)
        self.average = nn.AvgPool1d(5, stride=1, padding=0)

    def forward(self, series):
        b, t, c = series.shape
        x = self.norm(series.flatten(1)).view(b, t, c)
        x = x + F.relu(self.along(x.transpose(1, 2))).transpose(1, 2)
        x = x + F.relu(self.across(x))
        ends = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], 1)
        trend = self.average(ends.permute(0, 2, 1)).permute(0, 2, 1)
        mean = series.mean(1, keepdim=True)
        out = self.trend(trend.permute(0, 2, 1)) + self.rest((x - trend).permute(0, 2, 1))
        return out.permute(0, 2, 1) + mean


class Ecapa(nn.Module):
    """Speakers: groups one after the other, squeezed channels, mean and deviation by attention (Desplanques et al.
    2020)."""

    def __init__(self, features=8, c=8, classes=6):
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(features, c, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(c))
        self.group = nn.ModuleList(nn.Conv1d(c // 4, c // 4, 3, dilation=2, padding=2) for _ in range(3))
        self.squeeze = nn.Sequential(nn.Conv1d(c, 4, 1), nn.ReLU(), nn.Conv1d(4, c, 1), nn.Sigmoid())
        self.attend = nn.Sequential(nn.Conv1d(3 * c, 4, 1), nn.Tanh(), nn.Conv1d(4, c, 1))
        self.norm, self.head = nn.BatchNorm1d(2 * c), nn.Linear(2 * c, classes)

    def forward(self, spectrum):
        x = self.first(spectrum)
        parts = list(torch.chunk(x, 4, 1))
        for i, conv in enumerate(self.group):
            parts[i + 1] = F.relu(conv(parts[i + 1] + (parts[i] if i else 0)))
        y = torch.cat(parts, 1)
        x = x + y * self.squeeze(y.mean(2, keepdim=True))
        t = x.shape[-1]
        mean, std = x.mean(2, keepdim=True), torch.sqrt(x.var(2, unbiased=False, keepdim=True).clamp(min=1e-4))
        w = self.attend(torch.cat([x, mean.repeat(1, 1, t), std.repeat(1, 1, t)], 1)).softmax(2)
        mean = (x * w).sum(2)
        std = torch.sqrt(((x ** 2 * w).sum(2) - mean ** 2).clamp(min=1e-4))
        return self.head(self.norm(torch.cat([mean, std], 1)))


class DualPath(nn.Module):
    """Chunks of a signal, a recurrent layer within and one across them (Luo et al. 2020)."""

    def __init__(self, c=6, chunk=4):
        super().__init__()
        self.chunk = chunk
        self.encoder, self.norm = nn.Conv1d(1, c, 4, 2, bias=False), nn.GroupNorm(1, c, eps=1e-8)
        self.inside, self.across = nn.LSTM(c, c, batch_first=True, bidirectional=True), nn.LSTM(
            c, c, batch_first=True, bidirectional=True)
        self.a, self.b = nn.Linear(2 * c, c), nn.Linear(2 * c, c)
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(c, 2 * c, 1))
        self.decoder = nn.ConvTranspose1d(c, 1, 4, 2, bias=False)

    def forward(self, wave):
        x = F.relu(self.encoder(wave.unsqueeze(1)))
        b, c, n = x.shape
        y = self.norm(x).view(b, c, n // self.chunk, self.chunk)
        rows = y.permute(0, 2, 3, 1)
        rows = rows + self.a(self.inside(rows.reshape(-1, self.chunk, c))[0]).view(rows.shape)
        rows = rows.transpose(1, 2)
        rows = rows + self.b(self.across(rows.reshape(-1, n // self.chunk, c))[0]).view(rows.shape)
        y = rows.permute(0, 3, 2, 1).reshape(b, c, n)
        masks = torch.sigmoid(self.mask(y)).view(b, 2, c, n)
        first, second = (masks * x.unsqueeze(1)).unbind(1)
        return torch.stack([self.decoder(first).squeeze(1), self.decoder(second).squeeze(1)], -1)


class Demucs(nn.Module):
    """Gated convolutions down, an LSTM, transposed ones up, skips (Defossez et al. 2020)."""

    def __init__(self, c=6):
        super().__init__()
        self.down = nn.ModuleList(nn.Sequential(nn.Conv1d(a, b, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1))
                                  for a, b in ((1, c), (c, 2 * c)))
        self.up = nn.ModuleList(nn.Sequential(nn.Conv1d(b, 2 * b, 1), nn.GLU(1), nn.ConvTranspose1d(b, a, 4, 2))
                                for a, b in ((c, 2 * c), (3, c)))
        self.lstm = nn.LSTM(2 * c, 2 * c)

    def forward(self, wave):
        x = wave.unsqueeze(1)
        x = x / (1e-3 + x.std(-1, keepdim=True))
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.lstm(x.permute(2, 0, 1))[0].permute(1, 2, 0)
        for i, layer in enumerate(self.up):
            x = x + skips.pop(-1)[..., :x.shape[-1]]
            x = layer(x)
            x = F.relu(x) if i == 0 else x
        return x.transpose(1, 2)


class Transducer(nn.Module):
    """Speech and text joined at all pairs of positions (Graves 2012)."""

    def __init__(self, features=6, vocabulary=12, c=8):
        super().__init__()
        self.encoder, self.embed, self.decoder = nn.GRU(features, c, batch_first=True), nn.Embedding(
            vocabulary, c), nn.GRU(c, c, batch_first=True)
        self.a, self.b, self.out = nn.Linear(c, c), nn.Linear(c, c, bias=False), nn.Linear(c, vocabulary)

    def forward(self, spectrum, text):
        f = self.a(self.encoder(spectrum)[0]).unsqueeze(2)
        g = self.b(self.decoder(F.pad(self.embed(text), (0, 0, 1, 0)))[0]).unsqueeze(1)
        return self.out(torch.tanh(f + g)).flatten(1, 2)


class DecisionTransformer(nn.Module):
    """Returns, states and actions as neighbours in one sequence (Chen et al. 2021)."""

    def __init__(self, states=4, actions=3, c=16, length=5):
        super().__init__()
        self.r, self.s, self.a, self.t = nn.Linear(1, c), nn.Linear(states, c), nn.Embedding(actions, c), nn.Embedding(
            20, c)
        self.norm = nn.LayerNorm(c)
        self.layer = nn.TransformerEncoderLayer(c, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True)
        self.head, self.c = nn.Linear(c, actions), c

    def forward(self, returns, states, actions, steps):
        b, t = actions.shape
        at = self.t(steps)
        x = torch.stack((self.r(returns) + at, self.s(states) + at, self.a(actions) + at), 1)
        x = self.norm(x.permute(0, 2, 1, 3).reshape(b, 3 * t, self.c))
        mask = torch.triu(torch.full((3 * t, 3 * t), float("-inf")), 1)
        return self.head(self.layer(x, mask).reshape(b, t, 3, self.c).permute(0, 2, 1, 3)[:, 1])


class Dueling(nn.Module):
    """Value plus advantage less its mean (Wang et al. 2016), and quantiles by cosines (Dabney et al. 2018)."""

    def __init__(self, actions=4, c=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, c, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(c * 49, c), nn.ReLU())
        self.phi = nn.Linear(6, c)
        self.register_buffer("wave", math.pi * torch.arange(1, 7).float().view(1, 1, 6))
        self.value, self.advantage = nn.Linear(c, 1), nn.Linear(c, actions)

    def forward(self, image, tau):
        x = self.body(image).unsqueeze(1) * F.relu(self.phi(torch.cos(tau.unsqueeze(-1) * self.wave)))
        advantage = self.advantage(x)
        return (self.value(x) + advantage - advantage.mean(-1, keepdim=True)).mean(1)
