"""Models as tables of parameter shapes, in the order of the forward pass; and how long each takes to compute."""

import json
from itertools import pairwise
from pathlib import Path

__all__ = ["bert_base", "model", "resnet50"]

Shapes = dict[str, tuple[int, ...]]


def resnet50() -> Shapes:
    """The 161 parameters of ResNet-50 for 1000 classes: 25,557,032 numbers.

    Source: K. He et al.: Deep residual learning for image recognition, CVPR 2016; stride in the 3 x 3 convolutions.
    """
    shapes: Shapes = {"conv1": (64, 3, 7, 7), **_norm("bn1", 64)}
    inputs = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            outputs = 4 * width
            for i, shape in enumerate(((width, inputs, 1, 1), (width, width, 3, 3), (outputs, width, 1, 1)), 1):
                shapes |= {f"{at}.conv{i}": shape, **_norm(f"{at}.bn{i}", shape[0])}
            if block == 0:
                shapes |= {f"{at}.downsample": (outputs, inputs, 1, 1), **_norm(f"{at}.downsample.bn", outputs)}
            inputs = outputs
    return {**shapes, "fc.weight": (1000, 2048), "fc.bias": (1000,)}


def bert_base() -> Shapes:
    """The 199 parameters of BERT-base, uncased, with its pooler: 109,482,240 numbers.

    Source: J. Devlin et al.: BERT, NAACL 2019.
    """
    width, inner = 768, 3072
    shapes: Shapes = {
        "embeddings.word": (30522, width), "embeddings.position": (512, width), "embeddings.type": (2, width),
        **_norm("embeddings.norm", width),
    }  # fmt: skip
    for layer in range(12):
        at = f"layer{layer}"
        for name in ("query", "key", "value", "output"):
            shapes |= _linear(f"{at}.attention.{name}", width, width)
        shapes |= _norm(f"{at}.attention.norm", width)
        shapes |= {**_linear(f"{at}.inner", inner, width), **_linear(f"{at}.outer", width, inner)}
        shapes |= _norm(f"{at}.norm", width)
    return {**shapes, **_linear("pooler", width, width)}


def model(name: str) -> Shapes:
    """``resnet50``, ``bert-base``, ``mlp:784,512,10``, or a JSON file of ``{"name": [shape], ...}``.

    Raises
    ------
    ValueError
    """
    if name in _MODELS:
        return _MODELS[name]()
    base, _, text = name.partition(":")
    if base == "mlp":
        try:
            widths = [int(width) for width in text.split(",")]
        except ValueError:
            widths = []
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"model: mlp is followed by two or more widths, as in mlp:784,512,10, got {name!r}")
        shapes: Shapes = {}
        for i, (inputs, outputs) in enumerate(pairwise(widths)):
            shapes |= _linear(f"layer{i}", outputs, inputs)
        return shapes
    try:
        table = json.loads(Path(name).read_text())
        shapes = {str(key): tuple(int(n) for n in shape) for key, shape in table.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        known = ", ".join(_MODELS)
        raise ValueError(
            f"model: expected {known}, mlp:WIDTHS or a JSON file of shapes, got {name!r}: {error}"
        ) from None
    if not shapes or any(n < 1 for shape in shapes.values() for n in shape):
        raise ValueError(f"model: {name} needs at least one parameter, and sizes from 1 on")
    return shapes


def _linear(name: str, outputs: int, inputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


_MODELS = {"resnet50": resnet50, "bert-base": bert_base}
