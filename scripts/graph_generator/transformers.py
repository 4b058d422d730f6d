"""Transformers."""

import functools

from .builder import network

HEAD = 64  # channels of a head of BERT and GPT-2, at any width


def attend(g, name, x, hidden, head=HEAD, causal=None, dropout=True):
    """Multi-head attention, its output projection and dropout."""
    x = g.add("multi_head_attention", name + ".attention", x, heads=hidden // head, causal=causal)
    x = g.add("linear", name + ".projection", x, out_features=hidden)
    return g.add("dropout", name + ".dropout1", x, rate=0.1) if dropout else x


def feed_forward(g, name, x, hidden):
    x = g.add("linear", name + ".expand", x, out_features=4 * hidden)
    x = g.add("gelu", name + ".gelu", x)
    x = g.add("linear", name + ".contract", x, out_features=hidden)
    return g.add("dropout", name + ".dropout2", x, rate=0.1)


def feed_forward_relu(g, name, x, hidden, inner):
    x = g.add("linear", name + ".expand", x, out_features=inner, activation="relu")
    return g.add("linear", name + ".contract", x, out_features=hidden)


def mixture_of_experts(g, name, x, hidden, inner, experts, group_samples, capacity_factor=None):
    """Two linear layers of the two best of so many experts, and the loss that balances these."""
    group_samples = group_samples if group_samples != 1 else None
    gate = g.add("linear", name + ".gate", x, out_features=experts, bias=False)
    slots = g.add("top_k_gating", name + ".gating", gate, capacity_factor=capacity_factor, group_samples=group_samples)
    g.add("load_balancing_loss", name + ".balance", gate, group_samples=group_samples)
    x = g.add("dispatch", name + ".dispatch", [x, slots])
    x = g.add("expert_linear", name + ".expand", x, out_features=inner, activation="relu")
    x = g.add("expert_linear", name + ".contract", x, out_features=hidden)
    return g.add("combine", name + ".combine", [x, slots, slots + ":weight"])


def sparse_language_model(g, length, layers, vocabulary, hidden, inner, **mixture):
    """Causal, normalization in front of each block; every second layer is a mixture of experts."""
    x = embed(g, length, vocabulary, hidden)
    label = g.input("label", (length,), dtype="i32")
    for layer in range(1, layers + 1):
        name = f"layer{layer}"
        y = g.add("layer_norm", name + ".norm1", x)
        x = g.add("add", name + ".add1", [x, attend(g, name, y, hidden, causal=True, dropout=False)])
        y = g.add("layer_norm", name + ".norm2", x)
        y = (mixture_of_experts(g, name, y, hidden, inner, **mixture) if layer % 2 == 0
             else feed_forward_relu(g, name, y, hidden, inner))
        x = g.add("add", name + ".add2", [x, y])
    x = g.add("layer_norm", "norm", x)
    score(g, x, label, vocabulary)


def embed(g, length, vocabulary, hidden):
    """Token and position; the table is the parameter group "tokens"."""
    token = g.input("token", (length,), dtype="i32")
    x = g.add("embedding", "tokens", token, parameters="tokens", vocabulary=vocabulary, channels=hidden)
    return g.add("position_embedding", "positions", x)


def score(g, x, label, vocabulary):
    """The loss at every position, of scores by the table of the embedding."""
    x = g.add("linear", "output", x, parameters="tokens", out_features=vocabulary, bias=False)
    g.add("softmax_cross_entropy", "loss", [x, label])


@network(batch=32, name="bert-base")
def bert_base(g):
    g.description = ("BERT base, uncased (Devlin, Chang, Lee, Toutanova 2018, arXiv 1810.04805), pre-trained on masked "
                     "words: 12 layers of 768 "
                     "channels and 12 heads, 128 positions; 109,187,328 parameters. The published one has rows for 512 "
                     "positions, token types, "
                     "a bias of the word scores, next-sentence prediction, and dropout of the attention's weights, all "
                     "left out here; and its "
                     "loss is that of the masked positions, here of every position.")
    length, layers, vocabulary = g.size("steps", 128), g.size("layers", 12), g.size("vocabulary", 30522)
    hidden = g.scaled(768, HEAD)
    x = embed(g, length, vocabulary, hidden)
    label = g.input("label", (length,), dtype="i32")
    x = g.add("layer_norm", "norm", x, epsilon=1e-12)
    x = g.add("dropout", "dropout", x, rate=0.1)
    for layer in range(1, layers + 1):
        name = f"layer{layer}"
        x = g.add("add", name + ".add1", [x, attend(g, name, x, hidden)])
        x = g.add("layer_norm", name + ".norm1", x, epsilon=1e-12)
        x = g.add("add", name + ".add2", [x, feed_forward(g, name, x, hidden)])
        x = g.add("layer_norm", name + ".norm2", x, epsilon=1e-12)
    x = g.add("linear", "head", x, out_features=hidden)
    x = g.add("gelu", "head.gelu", x)
    x = g.add("layer_norm", "head.norm", x, epsilon=1e-12)
    score(g, x, label, vocabulary)


@network(batch=8, name="gpt2-small")
def gpt2_small(g):
    g.description = ("GPT-2 small (Radford, Wu, Child, Luan, Amodei, Sutskever 2019, Language Models are Unsupervised "
                     "Multitask Learners): 12 layers "
                     "of 768 channels and 12 heads, 1024 positions; 124,439,808 parameters. Without the published "
                     "dropout of the "
                     "attention's weights, and with gelu by the error function instead of tanh.")
    add_gpt(g, hidden=768, head=HEAD, layers=12, length=1024, vocabulary=50257)


def add_gpt(g, hidden, head, layers, length, vocabulary):
    """Layers that normalize first, causal attention, and a last normalization."""
    length, layers = g.size("steps", length), g.size("layers", layers)
    vocabulary, hidden = g.size("vocabulary", vocabulary), g.scaled(hidden, head)
    x = embed(g, length, vocabulary, hidden)
    label = g.input("label", (length,), dtype="i32")
    x = g.add("dropout", "dropout", x, rate=0.1)
    for layer in range(1, layers + 1):
        name = f"layer{layer}"
        y = g.add("layer_norm", name + ".norm1", x)
        x = g.add("add", name + ".add1", [x, attend(g, name, y, hidden, head, causal=True)])
        y = g.add("layer_norm", name + ".norm2", x)
        x = g.add("add", name + ".add2", [x, feed_forward(g, name, y, hidden)])
    x = g.add("layer_norm", "norm", x)
    score(g, x, label, vocabulary)


# Narayanan et al. 2021, table 1: billions of parameters -> channels, heads, layers
MEGATRON = {"1.7": (2304, 24, 24), "3.6": (3072, 32, 30), "7.5": (4096, 32, 36), "18.4": (6144, 48, 40),
            "175": (12288, 96, 96)}


def megatron_gpt(g, size):
    hidden, heads, layers = MEGATRON[size]
    length, vocabulary = 2048, 51200
    # Four matrices of attention and two of four times the width; biases and two normalizations; tables of tokens and
    # positions; the last normalization.
    parameters = layers * (12 * hidden**2 + 13 * hidden) + (vocabulary + length) * hidden + 2 * hidden
    where = "section 5.1, GPT-3 of Brown et al. 2020" if size == "175" else "table 1"
    g.description = (f"The GPT of {size} billion parameters of Narayanan et al. 2021, Efficient Large-Scale Language "
                     f"Model Training on GPU Clusters Using Megatron-LM (SC'21, arXiv 2104.04473), {where}: "
                     f"{layers} layers of {hidden} channels and {heads} heads, {length} positions, a vocabulary of "
                     f"{vocabulary}; {parameters:,} parameters. Without dropout of the attention's weights, and with "
                     "gelu by the error function instead of tanh. The published runs have batches of 512 and more, in "
                     "micro-batches.")
    add_gpt(g, hidden, hidden // heads, layers, length, vocabulary)


for billions in MEGATRON:
    network(batch=1536 if billions == "175" else 16,
            name=f"gpt-{billions}b")(functools.partial(megatron_gpt, size=billions))


def gated_experts(g, name, x, hidden, wide, experts):
    """Three linear layers of the two best of so many experts, two of them multiplied, and the loss that balances these;
    its weight is Hugging Face's 0.001, times the square of the number of experts, by which its formula is larger."""
    gate = g.add("linear", name + ".gate", x, out_features=experts, bias=False)
    slots = g.add("top_k_gating", name + ".gating", gate, top_k=2, random_routing=False)
    g.add("load_balancing_loss", name + ".balance", gate, weight=0.001 * experts**2)
    x = g.add("dispatch", name + ".dispatch", [x, slots])
    x = g.add("identity", name + ".experts.in", x, sample_axis=1)
    y = g.add("expert_linear", name + ".experts.gate", x, out_features=wide, bias=False)
    y = g.add("silu", name + ".silu", y, sample_axis=1)
    x = g.add("expert_linear", name + ".experts.up", x, out_features=wide, bias=False)
    x = g.add("mul", name + ".mul", [y, x], sample_axis=1)
    x = g.add("expert_linear", name + ".experts.down", x, out_features=hidden, bias=False)
    x = g.add("identity", name + ".experts.out", x, sample_axis=1)
    return g.add("combine", name + ".combine", [x, slots, slots + ":weight"])


def llama(g, hidden, heads, key_value_heads, wide, layers, length, vocabulary, rotary_base=10000, epsilon=1e-5,
          experts=0):
    """A LLaMA of these sizes, `wide` being the hidden features of its feed-forward layers; with experts instead of
    these a Mixtral. At other widths it has more or fewer heads of as many channels, and as many queries to a head of
    keys and values."""
    group, head = heads // key_value_heads, hidden // heads
    hidden = g.scaled(hidden, group * head)
    heads, wide = hidden // head, g.scaled(wide)
    length, layers, vocabulary = g.size("steps", length), g.size("layers", layers), g.size("vocabulary", vocabulary)

    def linear(name, x, features):
        return g.add("linear", name, x, out_features=features, bias=False)

    token = g.input("token", (length,), dtype="i32")
    label = g.input("label", (length,), dtype="i32")
    x = g.add("embedding", "tokens", token, vocabulary=vocabulary, channels=hidden)
    for layer in range(1, layers + 1):
        name = f"layer{layer}"
        y = g.add("rms_norm", name + ".norm1", x, epsilon=epsilon)
        y = g.add("multi_head_attention", name + ".attention", y, heads=heads,
                  key_value_heads=heads // group if group > 1 else None, causal=True, rotary_base=rotary_base,
                  bias=False)
        x = g.add("add", name + ".add1", [x, linear(name + ".projection", y, hidden)])
        y = g.add("rms_norm", name + ".norm2", x, epsilon=epsilon)
        if experts:
            y = gated_experts(g, name, y, hidden, wide, experts)
        else:
            gate = g.add("silu", name + ".silu", linear(name + ".gate", y, wide))
            y = linear(name + ".down", g.add("mul", name + ".mul", [gate, linear(name + ".up", y, wide)]), hidden)
        x = g.add("add", name + ".add2", [x, y])
    x = g.add("rms_norm", "norm", x, epsilon=epsilon)
    g.add("softmax_cross_entropy", "loss", [linear("output", x, vocabulary), label])


# The Llama team 2024, The Llama 3 Herd of Models, arXiv 2407.21783, table 3: billions of parameters -> channels, heads,
# hidden features, layers, parameters
LLAMA3 = {"70": (8192, 64, 28672, 80, 70553706496), "405": (16384, 128, 53248, 126, 405853388800)}


def llama3(g, size):
    hidden, heads, wide, layers, parameters = LLAMA3[size]
    g.description = (f"Llama 3 of {size} billion parameters (arXiv 2407.21783, table 3): {layers} layers of {hidden} "
                     f"channels, {heads} heads of queries and 8 of keys and values, {wide} hidden features, a "
                     f"vocabulary of 128256; {parameters:,} parameters. Sequences of 8192 tokens, as at the beginning "
                     "of its training; rotary positions are not scaled.")
    llama(g, hidden, heads, 8, wide, layers, length=8192, vocabulary=128256, rotary_base=500000)


for billions in LLAMA3:
    network(batch=2048, name=f"llama3-{billions}b")(functools.partial(llama3, size=billions))


@network(batch=1024, name="mixtral-8x22b")
def mixtral_8x22b(g):
    g.description = ("Mixtral 8x22B (Mistral AI 2024; architecture: Jiang et al. 2024, arXiv 2401.04088): 56 layers of "
                     "6144 channels, 48 heads of queries and 8 of keys and values, 8 experts of 16384 hidden features "
                     "of which a token takes two, a vocabulary of 32000; 140,620,634,112 parameters. Experts have "
                     "places for as many tokens as each gets if they are used evenly; the published model drops none.")
    llama(g, 6144, 48, 8, 16384, layers=56, length=4096, vocabulary=32000, rotary_base=1000000, experts=8)


@network(batch=16, name="llama-tiny")
def llama_tiny(g):
    g.description = ("A small network of LLaMA's operators (Touvron et al. 2023, arXiv 2302.13971), with the grouped "
                     "queries of its larger successors (arXiv 2307.09288): 2 layers of 64 channels, 4 heads of queries "
                     "and 2 of keys and values, 64 positions, 256 tokens; 131,392 parameters. Trains on two CPU ranks "
                     "in seconds.")
    llama(g, hidden=64, heads=4, key_value_heads=2, wide=192, layers=2, length=64, vocabulary=256)


@network(batch=16, name="moe-tiny")
def moe_tiny(g):
    g.description = ("A small language model with a mixture of experts, as GShard's (Lepikhin et al. 2020, arXiv "
                     "2006.16668): 2 layers of 128 channels and 2 heads, the second with 4 experts of 256 hidden "
                     "channels of which a token takes two, 20 positions, 1000 words; 594,048 parameters.")
    length, layers, vocabulary = g.size("steps", 20), g.size("layers", 2), g.size("vocabulary", 1000)
    hidden = g.scaled(128, HEAD)
    sparse_language_model(g, length, layers, vocabulary, hidden, 2 * hidden, experts=4, group_samples=1,
                          capacity_factor=1.25)


# (experts, layers) -> (batch, sequences of a group, parameters): 4 million tokens on 2048 cores, 1 million on 512 and
# on 128, a group being the tokens of a core.
GSHARD = {
    (128, 12): (1024, 8, 13077733376), (128, 36): (1024, 8, 39165562880),
    (512, 12): (1024, 2, 51756032000), (512, 36): (1024, 2, 155200458752),
    (2048, 12): (4096, 2, 206469226496), (2048, 36): (4096, 2, 619340042240),
}


def gshard_moe(experts, default_layers):
    """One of the transformers of GShard's table of results."""
    batch, group_samples, parameters = GSHARD[experts, default_layers]

    @network(batch=batch, name=f"gshard-moe-{experts}e-{default_layers}l")
    def build(g):
        g.description = (f"GShard's transformer with {experts} experts and {default_layers} layers (Lepikhin et al. "
                         f"2020, arXiv 2006.16668, table 1): 1024 channels, 16 heads, 8192 hidden channels, a mixture "
                         f"of experts with top-2 gating in every second layer; {batch} sequences of 1024 tokens, "
                         f"gated in groups of {group_samples}; {parameters:,} parameters. The published one is an "
                         "encoder and a decoder for translation; here all layers are one causal stack with a "
                         "vocabulary of 32000, whose embedding also scores. Sequence length and vocabulary are ours.")
        length, layers = g.size("steps", 1024), g.size("layers", default_layers)
        vocabulary, hidden = g.size("vocabulary", 32000), g.scaled(1024, HEAD)
        sparse_language_model(g, length, layers, vocabulary, hidden, g.scaled(8192), experts=experts,
                              group_samples=group_samples)


for sizes in GSHARD:
    gshard_moe(*sizes)
