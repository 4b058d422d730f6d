"""Recommendation models."""

from .builder import network

CATEGORIES = 26  # of the Criteo data sets


@network(batch=2048)
def dlrm(g):
    g.description = ("DLRM (Naumov et al. 2019, arXiv 1906.00091) for Criteo-like data: 13 values and 26 categories, "
                     "in the sizes of the reference "
                     "implementation's Terabyte benchmark (bottom 512-256-64, top 512-512-256), but 100,000 rows in "
                     "each table; 167,355,970 parameters. "
                     "The interactions are the whole symmetric product instead of its lower triangle, and a softmax of "
                     "two classes replaces the sigmoid.")
    vocabulary = g.size("vocabulary", 100000)
    x = g.input("dense", (13,))
    g.input("category", dtype="i32", steps=CATEGORIES)
    label = g.input("label", dtype="i32")
    for layer, features in enumerate((512, 256, 64), start=1):
        x = g.linear(f"bottom{layer}", x, features)
    tables = [g.add("embedding", f"table{i}", f"category:{i}", vocabulary=vocabulary, channels=g.scaled(64))
              for i in range(CATEGORIES)]
    y = g.add("stack", "features", [x, *tables])
    y = g.add("matmul", "interactions", [y, y], transpose=True)
    y = g.add("flatten", "flatten", y)
    x = g.add("concat", "joined", [x, y])
    for layer, features in enumerate((512, 512, 256), start=1):
        x = g.linear(f"top{layer}", x, features)
    g.classifier("output", x, 2, label)
