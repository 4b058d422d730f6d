"""Networks for images."""

from .builder import network


@network(batch=64)
def lenet(g):
    g.description = ("LeNet-5 for 28x28 grey images (LeCun et al. 1998, Gradient-Based Learning Applied to Document "
                     "Recognition), "
                     "with its tanh units and average subsampling; padding instead of 32x32 images, all channels "
                     "connected, and a "
                     "linear last layer in place of radial basis functions: 61,706 parameters.")
    size = g.size("image", 28, least=12)
    x = g.input("image", (1, size, size))
    label = g.input("label", dtype="i32")
    x = g.conv2d("conv1", x, 6, 5, padding=2, activation=None)
    x = g.add("tanh", "tanh1", x)
    x = g.average_pool("pool1", x, 2)
    x = g.conv2d("conv2", x, 16, 5, activation=None)
    x = g.add("tanh", "tanh2", x)
    x = g.average_pool("pool2", x, 2)
    x = g.add("flatten", "flatten", x)
    x = g.linear("fc1", x, 120, activation=None)
    x = g.add("tanh", "tanh3", x)
    x = g.linear("fc2", x, 84, activation=None)
    x = g.add("tanh", "tanh4", x)
    g.classifier("fc3", x, 10, label)


@network(batch=256)
def alexnet(g):
    g.description = ("AlexNet (Krizhevsky, Sutskever, Hinton 2012, ImageNet Classification with Deep Convolutional "
                     "Neural Networks): "
                     "its two towers as two groups in conv2, conv4 and conv5; 60,965,224 parameters. The paper's "
                     "response "
                     "normalization does not divide by its 5 channels: its alpha of 1e-4 is 5e-4 here.")
    size = g.size("image", 227, least=67)
    x = g.input("image", (3, size, size))
    label = g.input("label", dtype="i32")
    normalize = {"size": 5, "alpha": 5e-4, "beta": 0.75, "bias": 2}
    x = g.conv2d("conv1", x, 96, 11, stride=4)
    x = g.add("local_response_normalization", "norm1", x, **normalize)
    x = g.max_pool("pool1", x, 3, stride=2)
    x = g.conv2d("conv2", x, 256, 5, padding=2, groups=2)
    x = g.add("local_response_normalization", "norm2", x, **normalize)
    x = g.max_pool("pool2", x, 3, stride=2)
    x = g.conv2d("conv3", x, 384, 3, padding=1)
    x = g.conv2d("conv4", x, 384, 3, padding=1, groups=2)
    x = g.conv2d("conv5", x, 256, 3, padding=1, groups=2)
    x = g.max_pool("pool5", x, 3, stride=2)
    x = g.add("flatten", "flatten", x)
    for layer in ("6", "7"):
        x = g.linear("fc" + layer, x, 4096)
        x = g.add("dropout", "dropout" + layer, x, rate=0.5)
    g.classifier("fc8", x, 1000, label)


@network(batch=64)
def vgg16(g):
    g.description = ("VGG-16 (Simonyan, Zisserman 2014, arXiv 1409.1556, table 1, configuration D) for ImageNet; "
                     "138,357,544 parameters.")
    size = g.size("image", 224, least=32)
    x = g.input("image", (3, size, size))
    label = g.input("label", dtype="i32")
    for block, (channels, layers) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], start=1):
        for layer in range(1, layers + 1):
            x = g.conv2d(f"conv{block}_{layer}", x, channels, 3, padding=1)
        x = g.max_pool(f"pool{block}", x, 2)
    x = g.add("flatten", "flatten", x)
    for layer in ("6", "7"):
        x = g.linear("fc" + layer, x, 4096)
        x = g.add("dropout", "dropout" + layer, x, rate=0.5)
    g.classifier("fc8", x, 1000, label)


def resnet(g, blocks):
    """Bottleneck residual network with so many blocks a stage."""
    size = g.size("image", 224)
    x = g.input("image", (3, size, size))
    label = g.input("label", dtype="i32")
    x = g.conv_norm("stem", x, 64, 7, stride=2, padding=3)
    x = g.max_pool("pool", x, 3, stride=2, padding=1)
    for stage, count in enumerate(blocks, start=1):
        channels = 64 * 2 ** (stage - 1)
        for block in range(1, count + 1):
            name = f"stage{stage}.block{block}"
            stride = 2 if stage > 1 and block == 1 else 1
            shortcut = x
            x = g.conv_norm(name + ".conv1", x, channels, 1)
            x = g.conv_norm(name + ".conv2", x, channels, 3, stride=stride, padding=1)
            x = g.conv_norm(name + ".conv3", x, 4 * channels, 1, activation=None)
            if block == 1:
                shortcut = g.conv_norm(name + ".shortcut", shortcut, 4 * channels, 1, stride=stride, activation=None)
            x = g.add("add", name + ".add", [x, shortcut])
            x = g.add("relu", name + ".relu", x)
    x = g.add("mean", "mean", x)
    g.classifier("fc", x, 1000, label)


@network(batch=64)
def resnet50(g):
    g.description = ("ResNet-50 (He, Zhang, Ren, Sun 2015, arXiv 1512.03385, table 1) for ImageNet, with the stride on "
                     "the 3x3 convolution "
                     "as in torchvision (v1.5; the paper has it on the first 1x1); 25,557,032 parameters.")
    resnet(g, (3, 4, 6, 3))


@network(batch=64)
def resnet101(g):
    g.description = ("ResNet-101 (He, Zhang, Ren, Sun 2015, arXiv 1512.03385, table 1) for ImageNet, with the stride "
                     "on the 3x3 convolution "
                     "as in torchvision (v1.5; the paper has it on the first 1x1); 44,549,160 parameters.")
    resnet(g, (3, 4, 23, 3))


@network(batch=64)
def inception_v3(g):
    g.description = ("Inception v3 (Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2015, arXiv 1512.00567) for ImageNet, "
                     "laid out as in torchvision, "
                     "without the auxiliary classifier; 23,834,568 parameters.")

    def conv(name, x, channels, kernel, stride=1, padding=0):
        return g.conv_norm(name, x, channels, kernel, stride, padding, epsilon=0.001)

    def chain(name, x, layers):
        """Convolutions one after another: (channels, kernel, and maybe stride), padded to keep the size where there is
        no stride."""
        for number, (channels, kernel, *stride) in enumerate(layers, start=1):
            height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
            padding = 0 if stride else (height // 2, width // 2)
            x = conv(f"{name}_{number}" if len(layers) > 1 else name, x, channels, kernel, *stride, padding=padding)
        return x

    def pooled(name, x, channels):
        x = g.average_pool(name + ".pool", x, 3, stride=1, padding=1, count_padding=True)
        return conv(name + ".pool_conv", x, channels, 1)

    def join(name, branches):
        return g.add("concat", name, branches)

    size = g.size("image", 299, least=75)
    x = g.input("image", (3, size, size))
    label = g.input("label", dtype="i32")
    x = conv("conv1a", x, 32, 3, stride=2)
    x = conv("conv2a", x, 32, 3)
    x = conv("conv2b", x, 64, 3, padding=1)
    x = g.max_pool("pool2", x, 3, stride=2)
    x = conv("conv3b", x, 80, 1)
    x = conv("conv4a", x, 192, 3)
    x = g.max_pool("pool4", x, 3, stride=2)
    for name, pool_channels in (("mixed5b", 32), ("mixed5c", 64), ("mixed5d", 64)):
        x = join(name, [conv(name + ".1x1", x, 64, 1),
                        chain(name + ".5x5", x, [(48, 1), (64, 5)]),
                        chain(name + ".double3x3", x, [(64, 1), (96, 3), (96, 3)]),
                        pooled(name, x, pool_channels)])
    name = "mixed6a"
    x = join(name, [conv(name + ".3x3", x, 384, 3, stride=2),
                    chain(name + ".double3x3", x, [(64, 1), (96, 3), (96, 3, 2)]),
                    g.max_pool(name + ".pool", x, 3, stride=2)])
    for name, inner in (("mixed6b", 128), ("mixed6c", 160), ("mixed6d", 160), ("mixed6e", 192)):
        row, column = (1, 7), (7, 1)
        x = join(name, [conv(name + ".1x1", x, 192, 1),
                        chain(name + ".7x7", x, [(inner, 1), (inner, row), (192, column)]),
                        chain(name + ".double7x7", x, [(inner, 1), (inner, column), (inner, row), (inner, column),
                                                       (192, row)]),
                        pooled(name, x, 192)])
    name = "mixed7a"
    x = join(name, [chain(name + ".3x3", x, [(192, 1), (320, 3, 2)]),
                    chain(name + ".7x7x3", x, [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)]),
                    g.max_pool(name + ".pool", x, 3, stride=2)])
    for name in ("mixed7b", "mixed7c"):
        branches = [conv(name + ".1x1", x, 320, 1)]
        for branch, layers in (("3x3", [(384, 1)]), ("double3x3", [(448, 1), (384, 3)])):
            y = chain(f"{name}.{branch}", x, layers)
            branches += [conv(f"{name}.{branch}_row", y, 384, (1, 3), padding=(0, 1)),
                         conv(f"{name}.{branch}_column", y, 384, (3, 1), padding=(1, 0))]
        x = join(name, [*branches, pooled(name, x, 192)])
    x = g.add("mean", "mean", x)
    x = g.add("dropout", "dropout", x, rate=0.5)
    g.classifier("fc", x, 1000, label)
