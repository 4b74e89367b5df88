"""Small networks with hand-written gradients, on NumPy or any module that has its functions (``xp``, e.g. cupy)."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

__all__ = ["NETWORKS", "ConvolutionNet", "Mlp", "Network", "network"]

Parameters = dict[str, np.ndarray]
Ready = Callable[[str, np.ndarray], object]


class Network(ABC):
    """A classifier.

    Attributes
    ----------
    shapes : dict of str to tuple
        Of the parameters, in the order of the forward pass.
    """

    shapes: dict[str, tuple[int, ...]]

    def initial(self, seed: int) -> Parameters:
        """Weights by He's rule, biases zero; the same for the same seed."""
        rng = np.random.default_rng(seed)
        return {
            name: rng.standard_normal(shape).astype(np.float32) * np.float32((2 / np.prod(shape[1:])) ** 0.5)
            if len(shape) > 1
            else np.zeros(shape, np.float32)
            for name, shape in self.shapes.items()
        }

    @abstractmethod
    def forward(self, parameters: Parameters, images: np.ndarray, xp=np) -> tuple[np.ndarray, list]:
        """(logits, shape (batch, classes); what the backward pass needs)."""

    @abstractmethod
    def backward(self, parameters: Parameters, kept: list, slope: np.ndarray, ready: Ready, xp=np) -> None:
        """Call ``ready(name, gradient)`` for each parameter, from the last layer to the first."""

    def gradient(self, parameters: Parameters, images, labels, total: int, ready: Ready, xp=np) -> float:
        """The loss of some images of a batch of ``total``, as their part of its mean.

        Its gradient is given to ``ready``, parameter by parameter: summed over all parts of the batch, on one rank or
        many, it is that of the whole batch.
        """
        logits, kept = self.forward(parameters, images, xp)
        loss, slope = cross_entropy(logits, labels, total, xp)
        self.backward(parameters, kept, slope, ready, xp)
        return loss


def cross_entropy(logits, labels, total: int, xp=np):
    """The sum of the losses divided by ``total``, and its slope along the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = xp.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = xp.arange(len(labels))
    loss = float((xp.log(sums[:, 0]) - shifted[rows, labels]).sum()) / total
    slope = exponentials / sums
    slope[rows, labels] -= 1
    return loss, slope / np.float32(total)


class Mlp(Network):
    """Fully connected layers with ReLU between them.

    Parameters
    ----------
    widths : sequence of int
        Of the input, the hidden layers and the output.
    """

    def __init__(self, widths):
        self.depth = len(widths) - 1
        self.shapes = {}
        for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            self.shapes |= {f"weight{i}": (outputs, inputs), f"bias{i}": (outputs,)}

    def forward(self, parameters, images, xp=np):
        """See :class:`Network`; ``images`` of shape (batch, pixels)."""
        values, kept = images, []
        for i in range(self.depth):
            kept.append(values)
            values = values @ parameters[f"weight{i}"].T + parameters[f"bias{i}"]
            if i + 1 < self.depth:
                values = xp.maximum(values, 0)
        return values, kept

    def backward(self, parameters, kept, slope, ready, xp=np):
        """See :class:`Network`."""
        for i in reversed(range(self.depth)):
            ready(f"bias{i}", slope.sum(axis=0))
            ready(f"weight{i}", slope.T @ kept[i])
            if i:
                slope = (slope @ parameters[f"weight{i}"]) * (kept[i] > 0)


class ConvolutionNet(Network):
    """Two 3 x 3 convolutions with ReLU, the second with stride 2, then a fully connected layer.

    Parameters
    ----------
    side : int
        Images are side x side pixels.
    channels : tuple of int
        Of the two convolutions.
    classes : int
    """

    def __init__(self, side: int, channels: tuple[int, int] = (8, 16), classes: int = 10):
        self.side = side
        first, second = channels
        self.reduced = (side - 3) // 2
        self.shapes = {
            "kernel0": (first, 9), "offset0": (first,),
            "kernel1": (second, first * 9), "offset1": (second,),
            "weight": (classes, second * self.reduced**2), "bias": (classes,),
        }  # fmt: skip

    def forward(self, parameters, images, xp=np):
        """See :class:`Network`; ``images`` of shape (batch, pixels)."""
        values = images.reshape(len(images), 1, self.side, self.side)
        kept = []
        for i, stride in enumerate((1, 2)):
            patches = _patches(values, stride, xp)
            out = patches @ parameters[f"kernel{i}"].T + parameters[f"offset{i}"]
            out = xp.maximum(out, 0)
            kept.append((values.shape, patches, out))
            values = out.transpose(0, 3, 1, 2)
        flat = values.reshape(len(images), values.shape[1] * self.reduced**2)  # -1 would not do for no images
        kept.append(flat)
        return flat @ parameters["weight"].T + parameters["bias"], kept

    def backward(self, parameters, kept, slope, ready, xp=np):
        """See :class:`Network`."""
        *layers, flat = kept
        ready("bias", slope.sum(axis=0))
        ready("weight", slope.T @ flat)
        slope = slope @ parameters["weight"]
        for i, stride in reversed(list(enumerate((1, 2)))):
            shape, patches, out = layers[i]
            batch, height, width, channels = out.shape
            if i == 1:
                slope = slope.reshape(batch, channels, height, width)
            slope = slope.transpose(0, 2, 3, 1) * (out > 0)
            flat_slope = slope.reshape(batch * height * width, channels)
            ready(f"offset{i}", flat_slope.sum(axis=0))
            ready(f"kernel{i}", flat_slope.T @ patches.reshape(len(flat_slope), patches.shape[-1]))
            if i:
                slope = _unpatched(slope @ parameters[f"kernel{i}"], shape, stride, xp)


def _patches(values, stride: int, xp):
    """(batch, channels, h, w) -> (batch, h', w', channels * 9): what each position of a 3 x 3 kernel sees."""
    windows = xp.lib.stride_tricks.sliding_window_view(values, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    batch, channels, height, width = windows.shape[:4]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(batch, height, width, channels * 9)


def _unpatched(patches, shape, stride: int, xp):
    """The transpose of :func:`_patches`: what was seen several times is summed."""
    values = xp.zeros(shape, patches.dtype)
    batch, height, width = patches.shape[:3]
    seen = patches.reshape(batch, height, width, shape[1], 3, 3)
    for row in range(3):
        for column in range(3):
            rows = slice(row, row + stride * (height - 1) + 1, stride)
            columns = slice(column, column + stride * (width - 1) + 1, stride)
            values[:, :, rows, columns] += seen[..., row, column].transpose(0, 3, 1, 2)
    return values


NETWORKS = ("mlp", "conv")


def network(name: str, pixels: int, classes: int) -> Network:
    """``mlp`` (two hidden layers of 128), ``mlp:256,64`` or ``conv``, for square images of so many pixels.

    Raises
    ------
    ValueError
    """
    base, _, text = name.partition(":")
    if base == "conv" and not text:
        return ConvolutionNet(round(pixels**0.5), classes=classes)
    if base == "mlp":
        try:
            hidden = [int(width) for width in text.split(",")] if text else [128, 128]
        except ValueError:
            hidden = [0]
        if min(hidden) > 0:
            return Mlp([pixels, *hidden, classes])
    raise ValueError(f"network: expected {', '.join(NETWORKS)} or mlp:WIDTH,WIDTH, got {name!r}")
