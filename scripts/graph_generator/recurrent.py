"""Recurrent networks of the FlexFlow paper (Jia, Zaharia, Aiken 2018, arXiv 1807.05358, section 8), unrolled: one
operator a layer and step."""

from .builder import network


def embeddings(g, name, tokens, steps, vocabulary, channels):
    """The rows of one table for the tokens of each step."""
    return [g.add("embedding", f"{name}.t{t}", f"{tokens}:{t}", parameters=name, vocabulary=vocabulary,
                  channels=g.scaled(channels))
            for t in range(steps)]


def lstm(g, name, xs, hidden, state=None):
    """One layer over all steps: its h of each. state: the operator whose h and c it starts from, else zeros."""
    hs = []
    for t, x in enumerate(xs):
        inputs = [x, f"{state}:h", f"{state}:c"] if state else [x]
        state = g.add("lstm", f"{name}.t{t}", inputs, parameters=name, hidden=g.scaled(hidden))
        hs.append(state + ":h")
    return hs


def word_losses(g, xs, vocabulary):
    """A word's scores and loss at each step; the training loss is the mean over the steps."""
    for t, x in enumerate(xs):
        scores = g.linear(f"output.t{t}", x, vocabulary, activation=None, hidden=False, parameters="output")
        g.add("softmax_cross_entropy", f"loss.t{t}", [scores, f"label:{t}"],
              weight=1 / len(xs) if len(xs) > 1 else None)


@network(batch=64)
def rnntc(g):
    g.description = ("RNNTC, recurrent text classification of the FlexFlow paper (arXiv 1807.05358, section 8): 4 LSTM "
                     "layers of 1024 units, 40 "
                     "steps, softmax of 2 classes (Movie Reviews) from the last step. The paper does not give: a "
                     "vocabulary of 10,000 words in "
                     "1024 channels; 43,812,866 parameters.")
    steps, layers, vocabulary = g.size("steps", 40), g.size("layers", 4), g.size("vocabulary", 10000)
    g.input("token", dtype="i32", steps=steps)
    label = g.input("label", dtype="i32")
    xs = embeddings(g, "embedding", "token", steps, vocabulary, 1024)
    for layer in range(1, layers + 1):
        xs = lstm(g, f"lstm{layer}", xs, 1024)
    g.classifier("output", xs[-1], 2, label)


def language_model(g, default_steps):
    steps, layers, vocabulary = g.size("steps", default_steps), g.size("layers", 2), g.size("vocabulary", 10000)
    g.input("token", dtype="i32", steps=steps)
    g.input("label", dtype="i32", steps=steps)
    xs = embeddings(g, "embedding", "token", steps, vocabulary, 2048)
    for layer in range(1, layers + 1):
        xs = lstm(g, f"lstm{layer}", xs, 2048)
    word_losses(g, xs, vocabulary)


@network(batch=64)
def rnnlm(g):
    g.description = ("RNNLM, recurrent language model of the FlexFlow paper (arXiv 1807.05358, section 8): 2 LSTM "
                     "layers of 2048 units, 40 steps, "
                     "softmax of the next word at each step, 10,000 words (Penn Treebank). The paper does not give: "
                     "words in 2048 channels; "
                     "108,095,248 parameters.")
    language_model(g, 40)


@network(batch=64, name="rnnlm-2step")
def rnnlm_2step(g):
    g.description = ("RNNLM of the FlexFlow paper (arXiv 1807.05358, section 8) unrolled for 2 steps only, the variant "
                     "that the paper "
                     "searches exhaustively; 108,095,248 parameters.")
    language_model(g, 2)


@network(batch=64)
def nmt(g):
    g.description = ("NMT, neural machine translation of the FlexFlow paper (arXiv 1807.05358, section 8: 4 LSTM "
                     "layers of 1024 units, attention, "
                     "softmax; 40 steps): 2 layers encode, 2 decode, starting from the encoder's last states. "
                     "Attention as by Luong et al. "
                     "2015 (arXiv 1508.04025), general score. The paper does not give: two vocabularies of 32,000 "
                     "words in 1024 "
                     "channels; 135,052,544 parameters.")
    steps, layers, vocabulary = g.size("steps", 40), g.size("layers", 2), g.size("vocabulary", 32000)
    g.input("source", dtype="i32", steps=steps)
    g.input("target", dtype="i32", steps=steps)
    g.input("label", dtype="i32", steps=steps)
    xs = embeddings(g, "source_embedding", "source", steps, vocabulary, 1024)
    for layer in range(1, layers + 1):
        xs = lstm(g, f"encoder{layer}", xs, 1024)
    states = g.add("stack", "states", xs)
    xs = embeddings(g, "target_embedding", "target", steps, vocabulary, 1024)
    for layer in range(1, layers + 1):
        xs = lstm(g, f"decoder{layer}", xs, 1024, state=f"encoder{layer}.t{steps - 1}")
    xs = [g.add("attention", f"attention.t{t}", [x, states], parameters="attention", out_features=g.scaled(1024))
          for t, x in enumerate(xs)]
    word_losses(g, xs, vocabulary)
