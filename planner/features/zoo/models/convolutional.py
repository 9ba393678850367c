"""Plain convolutional networks: SoyBean's, LeNet-5, AlexNet, VGG-16. Dropout is left out: it moves nothing."""

from __future__ import annotations

from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import Graph

CLASSES = 1000
"""Of ILSVRC 2012."""


def cnn(layers: int, filters: int, image: int, *, batch: int, optimizer: str = "sgd") -> Graph:
    """Equal 3x3 convolutions without bias, as many input as output channels, same padding (SoyBean, Fig. 9).

    The loss is the mean squared distance from a target of the output's shape.

    Args:
        layers: how many convolutions.
        filters: channels of every tensor.
        image: rows and columns.
        batch: samples.
        optimizer: its name.
    """
    model = Forward(f"cnn-{layers}x{filters}-{image}")
    x = model.input("x", batch, filters, image, image)
    for number in range(1, layers + 1):
        x = model.conv(f"conv{number}", x, filters, 3, pad=1)
    return training_step(model, x, loss="mse", optimizer=optimizer)


def lenet_5(*, batch: int, optimizer: str = "sgd") -> Graph:
    """LeNet-5 on 32x32 images with tanh and average pooling: 61,706 parameters.

    LeCun et al. 1998, with every connection of C3 present, pooling without weights and a fully-connected output.
    """
    model = Forward("lenet-5")
    x = model.input("x", batch, 1, 32, 32)
    for number, filters in ((1, 6), (2, 16)):
        x = model.conv(f"conv{number}", x, filters, 5, bias=True)
        x = model.each(f"tanh{number}", "Tanh", x)
        x = model.pool(f"pool{number}", "AveragePool", x, 2, stride=2)
    x = model.flatten("flat", x)
    for number, width in ((1, 120), (2, 84)):
        x = model.linear(f"fc{number}", x, width)
        x = model.each(f"fc{number}.tanh", "Tanh", x)
    x = model.linear("fc3", x, 10)
    return training_step(model, x, loss="softmax_cross_entropy", optimizer=optimizer)


def alexnet(*, batch: int, optimizer: str = "sgd") -> Graph:
    """AlexNet in one tower, on 224x224 images: 61,100,840 parameters with biases.

    Krizhevsky 2014, "One weird trick" (64, 192, 384, 256, 256 channels), as torchvision has it; the two towers of 2012
    have 60,965,224.
    """
    model = Forward("alexnet")
    x = model.input("x", batch, 3, 224, 224)
    layers = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False))
    for number, (filters, kernel, stride, pad, pools) in enumerate((*layers, (256, 3, 1, 1, True)), start=1):
        x = model.conv(f"conv{number}", x, filters, kernel, stride=stride, pad=pad, bias=True)
        x = model.relu(f"relu{number}", x)
        if pools:
            x = model.pool(f"pool{number}", "MaxPool", x, 3, stride=2)
    return _classified(model, x, optimizer)


def vgg_16(*, batch: int, optimizer: str = "sgd") -> Graph:
    """VGG-16 on 224x224 images (Simonyan and Zisserman 2014, configuration D): 138,357,544 parameters."""
    model = Forward("vgg-16")
    x = model.input("x", batch, 3, 224, 224)
    for group, (convolutions, filters) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for number in range(1, convolutions + 1):
            x = model.conv(f"conv{group}_{number}", x, filters, 3, pad=1, bias=True)
            x = model.relu(f"relu{group}_{number}", x)
        x = model.pool(f"pool{group}", "MaxPool", x, 2, stride=2)
    return _classified(model, x, optimizer)


def _classified(model: Forward, x: str, optimizer: str) -> Graph:
    """The three fully-connected layers that AlexNet and VGG end with."""
    x = model.flatten("flat", x)
    for number in (1, 2):
        x = model.linear(f"fc{number}", x, 4096)
        x = model.relu(f"fc{number}.relu", x)
    x = model.linear("fc3", x, CLASSES)
    return training_step(model, x, loss="softmax_cross_entropy", optimizer=optimizer)
