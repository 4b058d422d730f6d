"""Small networks for onnx_models.py that people write by hand for images and video: attention of channels and places,
pyramids, encoders of patches."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Cbam(nn.Module):
    """Attention of channels and places (Woo et al. 2018): largest and mean along both."""

    def __init__(self, c=16, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.ReLU())
        self.mlp = nn.Sequential(nn.Linear(c, c // 4), nn.ReLU(), nn.Linear(c // 4, c))
        self.place = nn.Conv2d(2, 1, 7, padding=3)
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.stem(image)
        b, c = x.shape[:2]
        s = torch.sigmoid(self.mlp(F.adaptive_avg_pool2d(x, 1).view(b, c)) +
                          self.mlp(F.adaptive_max_pool2d(x, 1).view(b, c)))
        x = x * s.view(b, c, 1, 1).expand_as(x)
        p = torch.cat([x.max(1)[0].unsqueeze(1), x.mean(1).unsqueeze(1)], 1)
        x = x * torch.sigmoid(self.place(p))
        return self.head(x.mean((2, 3)))


class EfficientChannelAttention(nn.Module):
    """ECA (Wang et al. 2020): a convolution along the channels; GhostNet's cheap features; shuffle."""

    def __init__(self, c=16, classes=6):
        super().__init__()
        self.primary = nn.Sequential(nn.Conv2d(3, c // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(c // 2), nn.ReLU6())
        self.cheap = nn.Sequential(nn.Conv2d(c // 2, c // 2, 3, 1, 1, groups=c // 2, bias=False),
                                   nn.BatchNorm2d(c // 2), nn.Hardswish())
        self.along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.primary(image)
        x = torch.cat([x, self.cheap(x)], 1)
        y = F.adaptive_avg_pool2d(x, 1)
        y = self.along(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        x = x * torch.sigmoid(y).expand_as(x)
        x = x.view(x.shape[0], 4, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape)  # shuffled channels
        return self.head(F.dropout(x.mean([-2, -1]), 0.0))


class PyramidPooling(nn.Module):
    """PSPNet's (Zhao et al. 2017): averages of several sizes, enlarged and joined."""

    def __init__(self, c=16, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, c, 3, 1, 2, dilation=2), nn.ReLU())
        self.stages = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(k), nn.Conv2d(c, c // 4, 1, bias=False),
                                                  nn.ReLU()) for k in (1, 2, 4))
        self.head = nn.Conv2d(c + 3 * (c // 4), classes, 3, padding=1)

    def forward(self, image):
        x = self.stem(image)
        parts = [x] + [F.interpolate(stage(x), size=x.shape[2:], mode="bilinear", align_corners=False)
                       for stage in self.stages]
        return F.interpolate(self.head(torch.cat(parts, 1)), scale_factor=2, mode="bilinear", align_corners=True)


class HighResolution(nn.Module):
    """HRNet's exchange of two resolutions (Sun et al. 2019); heat maps."""

    def __init__(self, c=8, joints=5):
        super().__init__()
        conv = lambda a, b, s=1: nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False),  # noqa: E731
                                               nn.BatchNorm2d(b, momentum=0.1), nn.ReLU(inplace=True))
        self.a, self.b = conv(3, c), conv(c, 2 * c, 2)
        self.a2, self.b2 = conv(c, c), conv(2 * c, 2 * c)
        self.up, self.down = nn.Conv2d(2 * c, c, 1), nn.Conv2d(c, 2 * c, 3, 2, 1)
        self.head = nn.Conv2d(3 * c, joints, 1)

    def forward(self, image):
        a = self.a(image)
        b = self.b(a)
        a, b = self.a2(a), self.b2(b)
        a, b = F.relu(a + F.interpolate(self.up(b), size=a.shape[-2:], mode="bilinear")), F.relu(b + self.down(a))
        return self.head(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))


class Res2Net(nn.Module):
    """Groups of channels one after the other (Gao et al. 2019); selective kernels (Li et al. 2019)."""

    def __init__(self, c=16, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(c // 4, c // 4, 3, padding=1) for _ in range(3))
        self.k3, self.k5 = nn.Conv2d(c, c, 3, padding=1, groups=4), nn.Conv2d(c, c, 3, padding=2, dilation=2, groups=4)
        self.squeeze = nn.Linear(c, 8)
        self.pick = nn.Linear(8, 2 * c)
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = F.relu(self.stem(image))
        parts = torch.split(x, x.shape[1] // 4, 1)
        out, y = [parts[0]], 0
        for part, conv in zip(parts[1:], self.convs):
            y = F.relu(conv(part + y))
            out.append(y)
        x = x + torch.cat(out, 1)
        both = torch.stack([self.k3(x), self.k5(x)], 1)
        s = self.pick(F.relu(self.squeeze(both.sum(1).mean((2, 3))))).view(x.shape[0], 2, -1).softmax(1)
        return self.head((both * s[..., None, None]).sum(1).mean((2, 3)))


class NonLocal(nn.Module):
    """Embedded Gaussian (Wang et al. 2018), and bilinear pooling at the end."""

    def __init__(self, c=16, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, 2, 1)
        self.theta, self.phi, self.g = (nn.Conv2d(c, c // 2, 1) for _ in range(3))
        self.out = nn.Conv2d(c // 2, c, 1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(c * c, classes)

    def forward(self, image):
        x = self.stem(image)
        b, c, h, w = x.size()
        theta = self.theta(x).view(b, c // 2, -1).permute(0, 2, 1)
        phi = self.pool(self.phi(x)).view(b, c // 2, -1)
        g = self.pool(self.g(x)).view(b, c // 2, -1).permute(0, 2, 1)
        y = torch.matmul(torch.softmax(torch.matmul(theta, phi), -1), g).permute(0, 2, 1).contiguous()
        x = x + self.out(y.view(b, c // 2, h, w))
        x = x.view(b, c, h * w)
        x = torch.bmm(x, x.transpose(1, 2)) / (h * w)
        x = x.view(b, -1)
        x = torch.sqrt(F.relu(x) + 1e-5)
        return self.head(F.normalize(x))


class SegFormer(nn.Module):
    """Overlapping patches, attention with keys of fewer places, mix by a depthwise convolution (Xie et al. 2021)."""

    def __init__(self, c=16, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(3, c, 7, 4, 3)
        self.norm0, self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(c) for _ in range(4))
        self.q, self.kv, self.o = nn.Linear(c, c), nn.Linear(c, 2 * c), nn.Linear(c, c)
        self.reduce = nn.Conv2d(c, c, 2, 2)
        self.up, self.down = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.mix = nn.Conv2d(2 * c, 2 * c, 3, 1, 1, groups=2 * c)
        self.head = nn.Conv2d(c, classes, 1)

    def forward(self, image):
        x = self.patch(image)
        b, c, h, w = x.shape
        x = self.norm0(x.flatten(2).transpose(1, 2))
        y = self.norm1(x)
        q = self.q(y).reshape(b, h * w, 2, c // 2).permute(0, 2, 1, 3)
        r = self.reduce(y.permute(0, 2, 1).reshape(b, c, h, w)).reshape(b, c, -1).permute(0, 2, 1)
        kv = self.kv(self.norm2(r)).reshape(b, -1, 2, 2, c // 2).permute(2, 0, 3, 1, 4)
        k, v = kv[0], kv[1]
        a = ((q @ k.transpose(-2, -1)) * (c // 2) ** -0.5).softmax(-1)
        x = x + self.o((a @ v).transpose(1, 2).reshape(b, h * w, c))
        y = self.up(self.norm3(x))
        y = self.mix(y.transpose(1, 2).view(b, -1, h, w)).flatten(2).transpose(1, 2)
        x = x + self.down(F.gelu(y))
        return self.head(x.transpose(1, 2).reshape(b, c, h, w))


class PoolFormer(nn.Module):
    """Pools in the place of attention (Yu et al. 2022), layer scale, group normalization of one group; ConvMixer."""

    def __init__(self, c=16, classes=6):
        super().__init__()
        self.patch = nn.Conv2d(3, c, 7, 4, 2)
        self.norm1, self.norm2 = nn.GroupNorm(1, c), nn.GroupNorm(1, c)
        self.scale1, self.scale2 = nn.Parameter(0.1 * torch.ones(c)), nn.Parameter(0.1 * torch.ones(c))
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.up, self.down = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, c, 1)
        self.deep = nn.Conv2d(c, c, 5, groups=c, padding=2)
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = self.patch(image)
        y = self.norm1(x)
        x = x + self.scale1.unsqueeze(-1).unsqueeze(-1) * (self.pool(y) - y)
        x = x + self.scale2[:, None, None] * self.down(F.gelu(self.up(self.norm2(x))))
        x = x + F.gelu(self.deep(x))
        return self.head(x.mean([-2, -1]))


class RepVgg(nn.Module):
    """Three branches (Ding et al. 2021), blur pool with a fixed kernel (Zhang 2019), and a learned power mean (GeM)."""

    def __init__(self, c=12, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.k3, self.k1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 1, bias=False)
        self.n3, self.n1, self.n0 = (nn.BatchNorm2d(c) for _ in range(3))
        blur = torch.tensor([1.0, 2.0, 1.0])
        blur = blur[:, None] * blur[None, :]
        self.register_buffer("blur", (blur / blur.sum())[None, None].repeat(c, 1, 1, 1))
        self.head = nn.Linear(c, classes)

    def forward(self, image):
        x = F.relu(self.stem(image))
        x = F.relu(self.n3(self.k3(x)) + self.n1(self.k1(x)) + self.n0(x))
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.blur.to(x.dtype), stride=2, groups=x.shape[1])
        x = x.clamp(min=1e-6).pow(3.0).mean((-2, -1)).pow(1 / 3)
        return self.head(x)


class DiT(nn.Module):
    """Diffusion transformer (Peebles and Xie 2023): modulation by time and class, patches back to an image."""

    def __init__(self, c=32, patch=4, size=16):
        super().__init__()
        self.patch, self.c = patch, c
        self.embed = nn.Conv2d(3, c, patch, patch)
        self.register_buffer("place", torch.randn(1, (size // patch) ** 2, c))
        self.time = nn.Sequential(nn.Linear(16, c), nn.SiLU(), nn.Linear(c, c))
        self.class_of = nn.Embedding(11, c)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(c, elementwise_affine=False, eps=1e-6) for _ in range(3))
        self.attention = nn.MultiheadAttention(c, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(c, 64), nn.GELU(approximate="tanh"), nn.Linear(64, c))
        self.modulate, self.last = nn.Linear(c, 6 * c), nn.Linear(c, 2 * c)
        self.out = nn.Linear(c, patch * patch * 3)

    def forward(self, image, time, kind):
        x = self.embed(image).flatten(2).transpose(1, 2) + self.place.to(image.dtype)
        frequency = torch.exp(-math.log(10000) * torch.arange(0, 8, dtype=torch.float32) / 8).to(time.dtype)
        angle = time[:, None] * frequency[None]
        c = F.silu(self.time(torch.cat([torch.cos(angle), torch.sin(angle)], -1)) + self.class_of(kind))
        a, b, g, d, e, f = self.modulate(c).chunk(6, 1)
        y = self.norm1(x) * (1 + b.unsqueeze(1)) + a.unsqueeze(1)
        x = x + g.unsqueeze(1) * self.attention(y, y, y, need_weights=False)[0]
        y = self.norm2(x) * (1 + e.unsqueeze(1)) + d.unsqueeze(1)
        x = x + f.unsqueeze(1) * self.mlp(y)
        a, b = self.last(c).chunk(2, 1)
        x = self.out(self.norm3(x) * (1 + b.unsqueeze(1)) + a.unsqueeze(1))
        n, h = x.shape[0], int(x.shape[1] ** 0.5)
        x = x.reshape(n, h, h, self.patch, self.patch, 3)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(n, 3, h * self.patch, h * self.patch)


class MaskedAutoencoder(nn.Module):
    """Patchify by reshapes and an einsum, a learned token where a mask hides patches, decoder."""

    def __init__(self, c=24, patch=4):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, c)
        self.token = nn.Parameter(torch.randn(1, 1, c) * 0.02)
        self.place = nn.Parameter(torch.randn(1, 16, c) * 0.02)
        self.layer = nn.TransformerEncoderLayer(c, 4, 48, 0.0, "gelu", batch_first=True, norm_first=True)
        self.out = nn.Linear(c, 3 * patch * patch)

    def forward(self, image, mask):
        b, c, h, w = image.shape
        p = self.patch
        x = torch.einsum("nchpwq->nhwpqc", image.reshape(b, c, h // p, p, w // p, p)).reshape(b, -1, p * p * c)
        x = self.embed(x)
        m = mask.unsqueeze(-1)
        x = x * (1 - m) + self.token * m + self.place
        return self.out(self.layer(x))


class SlowFast(nn.Module):
    """Two rates of frames with lateral connections (Feichtenhofer et al. 2019)."""

    def __init__(self, classes=5):
        super().__init__()
        self.slow = nn.Conv3d(3, 8, (1, 5, 5), (1, 2, 2), (0, 2, 2))
        self.fast = nn.Conv3d(3, 2, (5, 5, 5), (1, 2, 2), (2, 2, 2))
        self.n1, self.n2 = nn.BatchNorm3d(8), nn.BatchNorm3d(2)
        self.lateral = nn.Conv3d(2, 4, (5, 1, 1), (4, 1, 1), (2, 0, 0))
        self.slow2, self.fast2 = nn.Conv3d(12, 16, (3, 1, 1), padding=(1, 0, 0)), nn.Conv3d(2, 4, (3, 3, 3), padding=1)
        self.head = nn.Linear(20, classes)

    def forward(self, video):
        slow, fast = video[:, :, ::4], video
        a, b = F.relu(self.n1(self.slow(slow))), F.relu(self.n2(self.fast(fast)))
        a = torch.cat([a, self.lateral(b)], 1)
        a, b = F.relu(self.slow2(a)), F.relu(self.fast2(b))
        x = torch.cat([F.adaptive_avg_pool3d(a, 1), F.adaptive_avg_pool3d(b, 1)], 1)
        return self.head(x.flatten(1))


class TemporalShift(nn.Module):
    """TSM (Lin et al. 2019): channels moved by a frame; frames as images of a larger batch; consensus."""

    def __init__(self, c=8, classes=5):
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, c, 3, 2, 1), nn.Conv2d(c, c, 3, padding=1)
        self.fc = nn.Linear(c, classes)

    def forward(self, video):  # [batch, frames, channels, height, width]
        b, t = video.shape[:2]
        x = F.relu(self.stem(video.view(-1, *video.shape[2:])))
        _, c, h, w = x.shape
        x = x.view(b, t, c, h, w)
        fold = c // 4
        left = F.pad(x[:, 1:, :fold], (0, 0, 0, 0, 0, 0, 0, 1))
        right = F.pad(x[:, :-1, fold:2 * fold], (0, 0, 0, 0, 0, 0, 1, 0))
        x = torch.cat([left, right, x[:, :, 2 * fold:]], 2).view(b * t, c, h, w)
        x = F.relu(self.conv(x)).mean([2, 3])
        return self.fc(x).view(b, t, -1).mean(1)
