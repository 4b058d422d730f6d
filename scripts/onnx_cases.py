"""Which networks onnx_models.py exports, by kind: torchvision's, those of onnx_networks.py (transformers, LSTMs),
onnx_handwritten.py (a few of each kind), onnx_vision.py, onnx_pictures.py, onnx_sequences.py, onnx_language.py,
onnx_interactions.py and onnx_recent.py, with inputs and labels drawn at random."""
import torch

try:
    import torchvision
except ImportError:  # tests use the networks that are written by hand
    torchvision = None

import onnx_handwritten as own
import onnx_interactions as interactions
import onnx_language as language
import onnx_networks as networks
import onnx_pictures as pictures
import onnx_recent as recent
import onnx_sequences as sequences
import onnx_vision as seen
from onnx_comparison import Case, outputs_of, scores_of

SECOND_BIASES = ("lstm.bias_hh_l0", "lstm.bias_hh_l1", "lstm.bias_hh_l0_reverse")


def prepared(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)) and module.affine:
            torch.nn.init.uniform_(module.weight, 0.8, 1.2)
            torch.nn.init.uniform_(module.bias, 2.5, 3.5)
    return model


def case(model, inputs, **settings):
    """Labels are drawn for the model's first output."""
    prepared(model).train()
    with torch.no_grad():
        scores = scores_of(outputs_of(model(*inputs.values()))[0])
    label = torch.randint(0, scores.shape[-1], scores.shape[:-1])
    return Case("", model, inputs, label, **settings)


def images(samples, size, channels=3):
    return {"image": torch.randn(samples, channels, size, size)}


def integers(high, *shape):
    return torch.randint(0, high, shape)


def vision(name, samples=2, size=64, **arguments):
    settings = {}
    if name in ("inception_v3", "googlenet"):
        settings["loss_weights"] = (1, 0.4) if name == "inception_v3" else (1, 0.3, 0.3)
        arguments["init_weights"] = True
    return lambda: case(getattr(torchvision.models, name)(weights=None, **arguments), images(samples, size), **settings)


def still(name, samples, size):
    """Of networks whose functions say the probability of stochastic depth themselves: without it afterwards."""
    def make():
        model = getattr(torchvision.models, name)(weights=None)
        for module in model.modules():
            if isinstance(module, torchvision.ops.StochasticDepth):
                module.p = 0.0
        return case(model, images(samples, size))
    return make


def segmentation(name, size=64, auxiliary=True):
    return lambda: case(getattr(torchvision.models.segmentation, name)(
        weights=None, weights_backbone=None, num_classes=8, **({"aux_loss": True} if auxiliary else {})),
        images(2, size), **({"loss_weights": (1, 0.5)} if auxiliary else {}))


def video(name, frames=8, size=32):
    return lambda: case(getattr(torchvision.models.video, name)(weights=None, num_classes=10),
                        {"video": torch.randn(2, 3, frames, size, size)})


def tokens(model, samples, length, vocabulary, **settings):
    return case(model, {"token": integers(vocabulary, samples, length)}, **settings)


def pairs(model, vocabulary, **settings):
    return case(model, {"source": integers(vocabulary, 4, 9), "target": integers(vocabulary, 4, 7)}, **settings)


def graph(model):
    adjacency = (torch.rand(4, 7, 7) < 0.4).float()
    adjacency = ((adjacency + adjacency.transpose(1, 2) + torch.eye(7)) > 0).float()
    return case(model, {"nodes": torch.randn(4, 7, 6), "adjacency": adjacency})


STILL = {"stochastic_depth_prob": 0.0}

KINDS = {
    "classification": {
        "AlexNet": vision("alexnet", 4, 224),
        "VGG-11": vision("vgg11", 2, 224),
        "VGG-16 with batch normalization": vision("vgg16_bn", 2, 224),
        "ResNet-18": vision("resnet18", 4, 128),
        "ResNet-50": vision("resnet50", 4, 128),
        "ResNeXt-50": vision("resnext50_32x4d", 2, 64),
        "Wide ResNet-50": vision("wide_resnet50_2", 2, 64),
        "Inception-v3, auxiliary head": vision("inception_v3", 2, 299),
        "GoogLeNet, auxiliary heads": vision("googlenet", 2, 128),
        "MobileNet-v2": vision("mobilenet_v2", 4, 128),
        "MobileNet-v3 small": vision("mobilenet_v3_small", 4, 128),
        "MobileNet-v3 large": vision("mobilenet_v3_large", 4, 128),
        "MNASNet": vision("mnasnet0_5", 2, 64),
        "ShuffleNet-v2": vision("shufflenet_v2_x0_5", 2, 64),
        "SqueezeNet": vision("squeezenet1_1", 2, 64),
        "DenseNet-121": vision("densenet121", 4, 128),
        "EfficientNet-B0": vision("efficientnet_b0", 4, 128, **STILL),
        "EfficientNet-v2 small": vision("efficientnet_v2_s", 2, 64, **STILL),
        "RegNet-Y 400MF": vision("regnet_y_400mf", 2, 64),
        "RegNet-X 400MF": vision("regnet_x_400mf", 2, 64),
        "ConvNeXt tiny": vision("convnext_tiny", 2, 64, **STILL),
        "ViT-B/32": vision("vit_b_32", 2, 224),
        "Swin tiny": still("swin_t", 2, 64),
        "Swin-v2 tiny": still("swin_v2_t", 2, 64),
        "MaxViT tiny": still("maxvit_t", 2, 224),
        "MLP-Mixer": lambda: case(own.VisionMixer(), images(4, 32)),
        "CBAM": lambda: case(seen.Cbam(), images(4, 16)),
        "ECA and GhostNet": lambda: case(seen.EfficientChannelAttention(), images(4, 16)),
        "Res2Net": lambda: case(seen.Res2Net(), images(4, 16)),
        "non-local network": lambda: case(seen.NonLocal(), images(4, 16)),
        "PoolFormer": lambda: case(seen.PoolFormer(), images(4, 32)),
        "RepVGG": lambda: case(seen.RepVgg(), images(4, 16)),
        "CoAtNet": lambda: case(pictures.CoAtNet(), images(4, 16)),
        "MobileViT": lambda: case(pictures.MobileVit(), images(2, 16)),
        "CvT": lambda: case(pictures.CvT(), images(2, 16)),
        "CaiT": lambda: case(pictures.CaiT(), images(2, 16)),
        "BEiT": lambda: case(pictures.Beit(), images(2, 16)),
        "XCiT": lambda: case(pictures.Xcit(), images(2, 16)),
        "Perceiver": lambda: case(pictures.Perceiver(), images(2, 8)),
        "slot attention": lambda: case(pictures.SlotAttention(), images(2, 16)),
        "capsules": lambda: case(pictures.Capsules(), images(2, 16)),
        "Siamese": lambda: case(pictures.Siamese(), {"first": torch.randn(4, 3, 16, 16),
                                                     "second": torch.randn(4, 3, 16, 16)}),
        "ConvMixer": lambda: case(pictures.ConvMixer(), images(4, 12)),
        "involution": lambda: case(pictures.Involution(), images(2, 12)),
    },
    "segmentation": {
        "FCN, ResNet-50": segmentation("fcn_resnet50"),
        "DeepLab-v3, ResNet-50": segmentation("deeplabv3_resnet50"),
        "DeepLab-v3, MobileNet-v3": segmentation("deeplabv3_mobilenet_v3_large"),
        "LR-ASPP": segmentation("lraspp_mobilenet_v3_large", auxiliary=False),
        "U-Net, transposed convolutions": lambda: case(own.UNet(), images(2, 32)),
        "U-Net, bilinear": lambda: case(own.UNet(up="bilinear", norm="group"), images(2, 32)),
        "U-Net, nearest": lambda: case(own.UNet(up="nearest", norm="instance"), images(2, 32)),
        "PSPNet": lambda: case(seen.PyramidPooling(), images(2, 16)),
        "HRNet": lambda: case(seen.HighResolution(), images(2, 16)),
        "SegFormer": lambda: case(seen.SegFormer(), images(2, 32)),
        "MaskFormer": lambda: case(pictures.MaskFormer(), images(2, 16)),
        "attention U-Net": lambda: case(pictures.AttentionUNet(), images(2, 16)),
    },
    "detection backbone": {
        "cross-stage backbone with focus": lambda: case(own.DetectionBackbone(), images(2, 32)),
        "feature pyramid": lambda: case(own.FeaturePyramid(), images(2, 32)),
        "DETR": lambda: case(own.Detr(), images(2, 32)),
        "YOLOv8": lambda: case(pictures.Yolo(), images(2, 32)),
        "CenterNet": lambda: case(pictures.CenterNet(), images(2, 16)),
        "BiFPN": lambda: case(pictures.BiFpn(), images(2, 32)),
        "hourglass": lambda: case(pictures.Hourglass(), images(2, 16)),
    },
    "generation of images": {
        "DCGAN generator": lambda: case(own.DcganGenerator(), {"z": torch.randn(4, 32)}),
        "DCGAN discriminator": lambda: case(own.DcganDiscriminator(), images(4, 32)),
        "VAE": lambda: case(own.ConvVae(), {**images(4, 32), "noise": torch.randn(4, 16)}),
        "diffusion U-Net": lambda: case(own.DiffusionUNet(), {**images(2, 16), "time": 50 * torch.rand(2)}),
        "style generator": lambda: case(own.StyleGenerator(), {"z": torch.randn(4, 16)}),
        "super-resolution": lambda: case(own.SuperResolution(), images(2, 16)),
        "CycleGAN generator": lambda: case(own.CycleGenerator(), images(2, 16)),
        "DiT": lambda: case(seen.DiT(), {**images(2, 16), "time": 50 * torch.rand(2), "kind": integers(11, 2)}),
        "RRDB": lambda: case(pictures.Rrdb(), images(2, 8)),
        "SPADE": lambda: case(pictures.Spade(), {"z": torch.randn(2, 8), "segments": torch.randn(2, 4, 16, 16)}),
        "AdaIN": lambda: case(pictures.AdaIn(), {"content": torch.randn(2, 3, 9, 9), "style": torch.randn(2, 3, 9, 9)}),
        "discrete VAE, soft codes": lambda: case(pictures.SoftCodes(), {**images(2, 8),
                                                                        "noise": torch.randn(2, 6, 4, 4)}),
        "Glow": lambda: case(interactions.Glow(), images(2, 8)),
        "MAE": lambda: case(seen.MaskedAutoencoder(), {**images(2, 16), "mask": (torch.rand(2, 16) < 0.5).float()}),
    },
    "language": {
        "LSTM language model": lambda: tokens(networks.LstmLanguageModel(2000, 200, 2), 4, 20, 2000,
                                              untied=SECOND_BIASES),
        "LSTM language model, tied weights": lambda: tokens(networks.LstmLanguageModel(2000, 200, 2, tied=True), 4, 20,
                                                            2000, untied=SECOND_BIASES),
        "LSTM of two directions": lambda: tokens(networks.LstmLanguageModel(2000, 200, 1, bidirectional=True), 4, 20,
                                                 2000, untied=SECOND_BIASES),
        "GRU language model": lambda: tokens(own.GruLanguageModel(), 4, 10, 100),
        "GRU of two directions": lambda: tokens(own.GruLanguageModel(layers=1, bidirectional=True), 4, 10, 100),
        "RNN language model": lambda: tokens(own.GruLanguageModel("RNN", nonlinearity="relu"), 4, 10, 100),
        "GPT, tied weights": lambda: tokens(networks.Gpt(2000, 192, 6, 64, 4), 4, 64, 2000),
        "GPT, gelu by tanh, symbolic sizes": lambda: tokens(
            networks.Gpt(2000, 192, 6, 64, 4, gelu="tanh", tied=False), 4, 64, 2000,
            dynamic={"token": {0: "batch", 1: "length"}}, arguments=("--size", "length=64")),
        "LLaMA": lambda: tokens(networks.Llama(2000, 192, 6, 64, 4), 4, 64, 2000, like=False),
        "LLaMA, grouped queries": lambda: tokens(own.GroupedLlama(), 2, 12, 100),
        "nn.TransformerEncoder": lambda: tokens(networks.Encoder(2000, 192, 6, 4, 10), 4, 64, 2000),
        "nn.TransformerEncoder, sequence first": lambda: tokens(
            networks.Encoder(2000, 192, 6, 4, 10, batch_first=False, norm_first=True), 4, 64, 2000),
        "nn.TransformerEncoder, causal mask": lambda: tokens(networks.Encoder(2000, 192, 6, 4, 10, mask=64), 4, 64,
                                                             2000, like=False),
        "BERT": lambda: case(own.Bert(), {"token": integers(100, 3, 16), "segment": integers(2, 3, 16),
                                          "mask": (torch.arange(16)[None] < torch.tensor([[16], [11], [7]])).float()}),
        "gMLP": lambda: tokens(own.GatedMlp(), 4, 16, 100),
        "GPT-NeoX": lambda: tokens(networks.RotaryDecoder("neox"), 2, 12, 60),
        "GPT-J": lambda: tokens(networks.RotaryDecoder("gptj"), 2, 12, 60),
        "Mistral": lambda: tokens(networks.RotaryDecoder("llama", kv=2), 2, 12, 60),
        "BLOOM, ALiBi": lambda: tokens(sequences.Alibi(), 2, 12, 60),
        "Transformer-XL": lambda: tokens(sequences.TransformerXl(), 2, 9, 60),
        "linear attention": lambda: tokens(sequences.Performer(), 2, 12, 60),
        **{name: (lambda style: lambda: tokens(language.Decoder(style), 2, 10, 60))(style) for name, style in (
            ("Qwen 2", "qwen2"), ("Qwen 3", "qwen3"), ("Gemma 2", "gemma"), ("Phi", "phi"), ("Falcon", "falcon"),
            ("OLMo 2", "olmo"))},
        "OPT": lambda: case(language.Opt(), {"token": integers(60, 3, 8), "mask": (
            torch.arange(8)[None] < torch.tensor([[8], [5], [7]])).long()}),
        "ALBERT": lambda: tokens(language.Albert(), 2, 10, 60),
        "DeBERTa": lambda: tokens(language.Deberta(), 2, 8, 60),
        "RetNet": lambda: tokens(language.RetNet(), 2, 10, 60),
        "Mamba": lambda: tokens(language.Mamba(), 2, 6, 40),
        "Linformer": lambda: tokens(language.Linformer(), 2, 12, 60),
        "ESIM": lambda: case(language.Esim(), {"first": integers(60, 3, 6), "second": integers(60, 3, 5)}, untied=tuple(
            f"{part}.bias_hh_l0{direction}" for part in ("encoder", "join") for direction in ("", "_reverse"))),
        "BiDAF": lambda: case(language.BiDaf(), {
            "context": integers(60, 2, 6), "context_letters": integers(20, 2, 6, 5), "query": integers(60, 2, 4),
            "query_letters": integers(20, 2, 4, 5)}),
        "LSTM cells": lambda: tokens(language.CellModel(), 2, 5, 40),
        "TextCNN": lambda: tokens(sequences.TextCnn(), 4, 12, 60),
        "LSTM tagger": lambda: tokens(sequences.LstmTagger(), 4, 9, 60, untied=tuple(
            f"lstm.bias_hh_l{layer}{direction}" for layer in (0, 1) for direction in ("", "_reverse"))),
        "RWKV": lambda: tokens(sequences.Rwkv(), 2, 7, 60),
    },
    "translation": {
        "GRU encoder and decoder, attention": lambda: pairs(own.Seq2Seq(), 60),
        "LSTM encoder and decoder": lambda: pairs(own.Seq2Seq("LSTM", attention=False), 60, untied=(
            "encoder.bias_hh_l0", "decoder.bias_hh_l0")),
        "additive attention, GRU cells": lambda: pairs(own.Bahdanau(), 50),
        "nn.Transformer": lambda: pairs(own.TranslationTransformer(), 60),
        "T5": lambda: pairs(own.T5Model(), 60),
        "BART": lambda: case(language.Bart(), {"source": integers(50, 3, 8), "target": integers(50, 3, 6), "mask": (
            torch.arange(8)[None] < torch.tensor([[8], [5], [7]])).long()}),
    },
    "speech": {
        "wav2vec": lambda: case(own.Wav2Vec(), {"wave": torch.randn(2, 400)}),
        "Conformer": lambda: case(own.Conformer(), {"spectrum": torch.randn(2, 40, 20)}),
        "Deep Speech": lambda: case(own.DeepSpeech(), {"spectrum": torch.randn(2, 20, 11)}),
        "WaveNet": lambda: tokens(own.WaveNet(), 2, 20, 32),
        "Whisper": lambda: case(sequences.Whisper(), {"spectrum": torch.randn(2, 8, 20), "token": integers(40, 2, 9)}),
        "Tacotron 2": lambda: case(sequences.Tacotron(), {"token": integers(30, 2, 8), "frames": torch.randn(2, 4, 6)},
                                   untied=SECOND_BIASES),
        "HiFi-GAN": lambda: case(sequences.HifiGan(), {"spectrum": torch.randn(2, 8, 6)}),
        "HiFi-GAN, plain weights": lambda: case(sequences.HifiGan(normalized=False),
                                                {"spectrum": torch.randn(2, 8, 6)}),
        "ECAPA-TDNN": lambda: case(language.Ecapa(), {"spectrum": torch.randn(4, 8, 12)}),
        "dual-path RNN": lambda: case(language.DualPath(), {"wave": torch.randn(2, 34)}),
        "Demucs": lambda: case(language.Demucs(), {"wave": torch.randn(2, 46)}, untied=SECOND_BIASES),
        "RNN transducer": lambda: case(language.Transducer(), {"spectrum": torch.randn(2, 5, 6),
                                                               "text": integers(12, 2, 3)}),
        "Conv-TasNet": lambda: case(sequences.ConvTasNet(), {"wave": torch.randn(2, 64)}),
    },
    "text in images and time series": {
        "CRNN": lambda: case(sequences.Crnn(), images(2, 16, 1), untied=SECOND_BIASES),
        "N-BEATS": lambda: case(sequences.NBeats(), {"series": torch.randn(4, 12)}),
        "TCN": lambda: case(language.Tcn(), {"series": torch.randn(4, 3, 16)}),
        "temporal fusion transformer": lambda: case(
            language.FusionTransformer(), {"series": torch.randn(3, 6, 3), "place": integers(5, 3)},
            untied=SECOND_BIASES),
        "N-HiTS": lambda: case(language.NHits(), {"series": torch.randn(4, 12)}),
        "DLinear and TSMixer": lambda: case(language.Decomposition(), {"series": torch.randn(4, 12, 3)}),
        "decision transformer": lambda: case(language.DecisionTransformer(), {
            "returns": torch.randn(2, 5, 1), "states": torch.randn(2, 5, 4), "actions": integers(3, 2, 5),
            "steps": integers(20, 2, 5)}),
        "dueling DQN, quantiles": lambda: case(language.Dueling(), {**images(2, 16), "tau": torch.rand(2, 3)}),
        "PatchTST": lambda: case(sequences.PatchTst(), {"series": torch.randn(2, 16, 3)}),
    },
    "recommendation": {
        "DLRM": lambda: case(own.Dlrm(), {"dense": torch.randn(8, 5), "category": integers(10, 8, 3)}),
        "DeepFM": lambda: case(own.DeepFm(), {"category": integers(20, 8, 4)}),
        "DCN": lambda: case(own.CrossNetwork(), {"dense": torch.randn(8, 12)}),
        "two towers": lambda: case(own.TwoTower(), {"user": integers(40, 8), "candidates": integers(50, 8, 5)}),
        "DIN": lambda: case(own.Din(), {"history": integers(50, 8, 6), "item": integers(50, 8),
                                        "mask": (torch.rand(8, 6) < 0.7).float()}),
        "NCF": lambda: case(own.NeuralCollaborativeFiltering(), {"user": integers(40, 8), "item": integers(50, 8)}),
        "AutoInt": lambda: case(interactions.AutoInt(), {"category": integers(10, 4, 3), "dense": torch.randn(4, 3)}),
        "xDeepFM": lambda: case(interactions.XDeepFm(), {"category": integers(20, 4, 4)}),
        "DCN-v2": lambda: case(interactions.CrossNetV2(), {"category": integers(20, 6, 4)}),
        "FFM, AFM and FiBiNET": lambda: case(interactions.FieldPairs(), {"category": integers(10, 6, 3)}),
        "ESMM": lambda: case(interactions.Esmm(), {"user": integers(12, 6), "history": integers(30, 6, 5),
                                                   "item": integers(30, 6)}),
        "DIEN": lambda: case(interactions.Dien(), {"history": integers(30, 4, 5), "item": integers(30, 4)}),
        "SASRec": lambda: case(interactions.SasRec(), {"history": integers(50, 4, 8)}),
        "FT-Transformer": lambda: case(interactions.FeatureTokenizer(), {"numbers": torch.randn(4, 4),
                                                                         "categories": integers(5, 4, 2)}),
        "MMoE": lambda: case(interactions.SoftExperts(), {"x": torch.randn(6, 12)}, loss_weights=(1, 0.5)),
    },
    "graph or set": {
        "DeepSets, sum": lambda: case(own.DeepSets(), {"points": torch.randn(4, 10, 3)}),
        "DeepSets, maximum": lambda: case(own.DeepSets(pool="max"), {"points": torch.randn(4, 10, 3)}),
        "Set Transformer": lambda: case(own.SetTransformer(), {"points": torch.randn(4, 10, 3)}),
        "GCN": lambda: graph(own.GraphConvolution()),
        "GCN, one graph": lambda: case(own.GraphConvolution(fixed=7), {"nodes": torch.randn(4, 7, 6)}),
        "GAT": lambda: graph(own.GraphAttention()),
        "GIN": lambda: graph(own.GraphIsomorphism()),
        "PointNet": lambda: case(own.PointNet(), {"points": torch.randn(4, 3, 20)}),
        "MPNN": lambda: case(interactions.MessagePassing(), {"nodes": torch.randn(4, 7, 6),
                                                             "adjacency": (torch.rand(4, 7, 7) < 0.4).float()}),
        "EGNN": lambda: case(interactions.Equivariant(), {"kind": integers(5, 3, 6), "place": torch.randn(3, 6, 3)}),
        "EdgeConv": lambda: case(interactions.EdgeConvolution(), {"nodes": torch.randn(4, 7, 6)}),
        **{name: (lambda kind: lambda: case(interactions.FixedGraph(kind), {"nodes": torch.randn(4, 7, 6)}))(kind)
           for name, kind in (("GraphSAGE, one graph", "sage"), ("GATv2, one graph", "gat"),
                              ("ChebNet, one graph", "chebyshev"), ("APPNP, one graph", "appnp"))},
        "Graphormer": lambda: case(interactions.Graphormer(), {"kind": integers(8, 2, 6), "degree": integers(6, 2, 6),
                                                               "distance": integers(5, 2, 6, 6)}),
        "SchNet": lambda: case(interactions.SchNet(), {"kind": integers(6, 3, 5), "place": torch.randn(3, 5, 3)}),
        "NeRF": lambda: case(interactions.Nerf(), {"points": torch.randn(4, 5, 3)}),
        "RealNVP": lambda: case(interactions.CouplingFlow(), {"x": torch.randn(4, 8)}),
    },
    "video": {
        "C3D": lambda: case(own.C3d(), {"video": torch.randn(2, 3, 8, 16, 16)}),
        "R3D-18": video("r3d_18"),
        "MC3-18": video("mc3_18"),
        "R(2+1)D-18": video("r2plus1d_18"),
        "ConvLSTM": lambda: case(own.ConvLstm(), {"video": torch.randn(2, 3, 3, 8, 8)}),
        "TimeSformer": lambda: case(own.TimeSformer(), {"video": torch.randn(2, 3, 2, 16, 16)}),
        "X3D": lambda: case(pictures.X3d(), {"video": torch.randn(2, 3, 4, 16, 16)}),
        "ViViT": lambda: case(pictures.ViVit(), {"video": torch.randn(2, 3, 4, 16, 16)}),
        "cost volume": lambda: case(pictures.CostVolume(), {"first": torch.randn(2, 3, 16, 16),
                                                            "second": torch.randn(2, 3, 16, 16)}),
        "SlowFast": lambda: case(seen.SlowFast(), {"video": torch.randn(2, 3, 8, 16, 16)}),
        "TSM": lambda: case(seen.TemporalShift(), {"video": torch.randn(2, 4, 3, 16, 16)}),
    },
}
KINDS["classification"] |= {
    "Swin V2": lambda: case(recent.SwinV2(), images(2, 16)),
    "ViT with registers": lambda: case(recent.Registers(), images(3, 16)),
    "MaxViT": lambda: case(recent.MaxVit(), images(2, 16)),
    "FastKAN, Chebyshev polynomials": lambda: case(recent.BasisFunctions(), {"x": torch.randn(6, 5)}),
    "neural differential equation": lambda: case(recent.RungeKutta(), {"x": torch.randn(6, 6)}),
}
KINDS["generation of images"] |= {
    "NAFNet and Restormer": lambda: case(recent.Restoration(), images(2, 8)),
    "MMDiT": lambda: case(recent.TwoStreams(), {**images(2, 8), "prompt": integers(20, 2, 5), "step": torch.rand(2)}),
}
KINDS["language"] |= {
    "multi-head latent attention": lambda: case(recent.LatentAttention(), {"tokens": integers(30, 2, 6)}),
    "xLSTM, matrix memory": lambda: case(recent.MatrixMemory(), {"tokens": integers(30, 2, 6)}),
    "Gemma 3": lambda: case(recent.Gemma3(), {"tokens": integers(30, 2, 6)}),
}
KINDS["speech"]["E-Branchformer"] = lambda: case(recent.Branches(), {"spectrum": torch.randn(2, 19, 16)})
KINDS["text in images and time series"]["iTransformer"] = lambda: case(recent.InvertedTransformer(),
                                                                       {"series": torch.randn(4, 12, 4)})
KINDS["recommendation"] |= {
    "TabTransformer": lambda: case(recent.TabTransformer(), {"category": integers(4, 4, 3),
                                                             "dense": torch.randn(4, 4)}),
    "PLE and MaskNet": lambda: case(recent.LayeredExtraction(), {"x": torch.randn(6, 10)}, loss_weights=(1, 0.5)),
}
CASES = {name: make for kind in KINDS.values() for name, make in kind.items()}
KIND_OF = {name: kind for kind, cases in KINDS.items() for name in cases}
