"""Records of the ``overlap`` experiment and of trainings in HDF5, readable by h5py alone; one file may hold both.

Layout::

    /                        attribute: format = "mpi_allreduce.overlap"
    /overlap-0001            a group for each launch of ``overlap``
        environment          string, JSON: see bench.environment.describe
        settings             string, JSON: see driver.OverlapSettings
        001 ring none ...    a group for each case; attributes: driver.OverlapCase's, driver.Result's, measures.Hidden's
            seconds, computing   float64 [iteration, rank]
            bucket_seconds       float64 [iteration, bucket], each alone, of the slowest rank
            trace                string, JSON for a viewer: the last iteration
            timeline/0 ...       of each rank, the last iteration: see timeline.Timeline.save
    /train-0001              a group for each launch of ``train``, or of a series of trainings
        environment
        0001                 a group for each training; attribute: name
            settings         string, JSON: see training.TrainSettings
            epochs           rows of training.Epoch, of rank 0
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

from ..bench.environment import describe
from ..bench.records import extend
from .reading import FORMAT
from .training import Epoch, TrainSettings

__all__ = ["Launch", "write_training"]

_KINDS = {int: "i8", float: "f8"}
_EPOCH = np.dtype([(field.name, _KINDS[field.type]) for field in fields(Epoch)])


class Launch:
    """The group of one launch, in a file that is made if it is missing; collective.

    Parameters
    ----------
    path : path
        The same on all ranks.
    comm : Intracomm
    kind : str
        ``overlap`` or ``train``.
    settings : dict, optional
        Plain values.

    Raises
    ------
    ValueError
        On all ranks: if the file is a record of another kind.
    OSError
        On all ranks: if it cannot be written.
    """

    def __init__(self, path: Path, comm: MPI.Intracomm, kind: str, settings: dict | None = None):
        self.path = path
        self.name = ""
        environment = describe(comm, "nobody")  # collective
        problem = None
        if comm.rank == 0:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                extend(path, lambda file: self._begin(file, kind, environment, settings))
            except (ValueError, OSError) as error:
                problem = error
        problem = comm.bcast(problem)
        if problem is not None:
            raise problem

    def write(self, change: Callable[[h5py.Group], object]) -> None:
        """Let ``change`` add to the group; from one process.  What was recorded before is never lost."""
        extend(self.path, lambda file: change(file[self.name]))

    def _begin(self, file: h5py.File, kind: str, environment: dict, settings: dict | None) -> None:
        if file.keys() and file.attrs.get("format") != FORMAT:
            raise ValueError(f"{self.path} is a record of another kind; choose another file with --out")
        file.attrs["format"] = FORMAT
        self.name = f"{kind}-{1 + sum(key.startswith(f'{kind}-') for key in file):04d}"
        group = file.create_group(self.name)
        group["environment"] = json.dumps(environment)
        if settings is not None:
            group["settings"] = json.dumps(settings)


def write_training(group: h5py.Group, number: int, name: str, settings: TrainSettings, epochs: Sequence[Epoch]) -> None:
    """Write a training, or write it anew with more epochs.

    Parameters
    ----------
    group : Group
        Of the launch.
    number : int
        Of the training, from 1.
    name : str
        For people.
    settings : TrainSettings
    epochs : sequence of Epoch
    """
    key = f"{number:04d}"
    if key in group:
        del group[key]
    made = group.create_group(key)
    made.attrs["name"] = name
    made["settings"] = json.dumps(asdict(settings))
    made["epochs"] = np.array([tuple(asdict(epoch).values()) for epoch in epochs], _EPOCH)
