"""Reading what ``overlap`` and ``train`` recorded; no MPI.  The layout is documented in ``records.py``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from .timeline import Timeline

__all__ = ["FORMAT", "OverlapLaunch", "Training", "read_overlap", "read_training"]

FORMAT = "mpi_allreduce.overlap"


@dataclass(frozen=True)
class OverlapLaunch:
    """One launch of ``overlap``.

    Attributes
    ----------
    name : str
    environment, settings : dict
    cases : tuple of dict
        The attributes of each case; ``raw``, a dict of its arrays ``seconds`` and ``computing`` [iteration, rank] and
        ``bucket_seconds`` [iteration, bucket]; and ``timelines``, those of all ranks.
    """

    name: str
    environment: dict[str, object]
    settings: dict[str, object]
    cases: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes
    ----------
    launch, name : str
    environment, settings : dict
    epochs : ndarray
        A row of ``training.Epoch``'s fields for each epoch that was finished.
    """

    launch: str
    name: str
    environment: dict[str, object]
    settings: dict[str, object]
    epochs: np.ndarray


def read_overlap(path: str | Path) -> list[OverlapLaunch]:
    """The launches of ``overlap`` in a file.

    Raises
    ------
    OSError, ValueError
        If it cannot be read, or is a record of another kind.
    """
    with _opened(path) as file:
        return [
            OverlapLaunch(name, _json(group, "environment"), _json(group, "settings"), tuple(_cases(group)))
            for name, group in file.items()
            if name.startswith("overlap-")
        ]


def read_training(path: str | Path) -> list[Training]:
    """The trainings in a file, of all its launches; errors as those of :func:`read_overlap`."""
    with _opened(path) as file:
        return [
            Training(name, made.attrs["name"], _json(group, "environment"), _json(made, "settings"), made["epochs"][()])
            for name, group in file.items()
            if name.startswith("train-")
            for made in group.values()
            if isinstance(made, h5py.Group)
        ]


def _cases(launch: h5py.Group) -> Iterator[dict[str, object]]:
    for group in launch.values():
        if isinstance(group, h5py.Group):
            yield {
                **{key: value.item() if isinstance(value, np.generic) else value for key, value in group.attrs.items()},
                "raw": {key: group[key][()] for key in ("seconds", "computing", "bucket_seconds")},
                "timelines": [Timeline.load(group["timeline"][rank]) for rank in sorted(group["timeline"], key=int)],
            }


def _json(group: h5py.Group, name: str) -> dict[str, object]:
    return json.loads(group[name][()])


@contextmanager
def _opened(path: str | Path) -> Iterator[h5py.File]:
    """HDF5's own errors do not always name the file."""
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from error
    with file:
        if file.attrs.get("format") != FORMAT:
            raise ValueError(f"{path} is an HDF5 file, but no record of overlap or train")
        yield file
