"""What the programs of this folder draw: records, read once and sorted by what may be compared; no MPI."""

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np

from mpi_allreduce.bench import read, read_launches
from mpi_allreduce.bench.heading import heading
from mpi_allreduce.bench.records import FORMAT as BENCH
from mpi_allreduce.bench.settings import Case
from mpi_allreduce.bench.statistics import completion
from mpi_allreduce.codecs import NONE
from mpi_allreduce.library import library_name
from mpi_allreduce.overlap.reading import FORMAT as OVERLAP
from mpi_allreduce.overlap.reading import OverlapLaunch, Training, read_overlap, read_training

__all__ = ["Launch", "Material", "Setup", "is_ours", "label", "load"]

# Settings of MPI libraries that change which algorithm of theirs runs, or over what.
_KNOBS = re.compile(
    r"(?!.*IFACE)(MPIR_CVAR_|OMPI_MCA_(coll|pml|btl|mtl)|I_MPI_(ADJUST|FABRICS|COLL)|UCX_TLS|UCX_NET|FI_PROVIDER)"
)
_CONDITIONS = ("op", "dtype", "in_place", "mode", "buffers", "skew", "data", "memory", "line_rate")
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError)


@dataclass(frozen=True, order=True)
class Setup:
    """What must be the same for times to be compared, or to be launches of one experiment.

    Attributes
    ----------
    library, machine : str
    conditions, knobs : tuple of (str, str)
        How it was measured; and the variables set that steer the MPI library.
    nodes : int
    per_node : tuple of int
        Ranks on the nodes, each number once.
    ranks : int
    """

    library: str
    machine: str
    conditions: tuple[tuple[str, str], ...]
    knobs: tuple[tuple[str, str], ...]
    nodes: int
    per_node: tuple[int, ...]
    ranks: int

    @classmethod
    def of(cls, environment: dict, settings: dict) -> "Setup":
        """The setup of a launch."""
        conditions = {key: settings[key] for key in _CONDITIONS if key in settings}
        conditions |= {key: environment[key] for key in ("bound_by", "device", "cuda_aware") if environment.get(key)}
        hosts = environment["hosts"]
        return cls(
            library=library_name(environment["mpi_library"]),
            machine=f"{environment['cpu']}, {environment['cores_on_host']} cores",
            conditions=tuple(sorted((key, str(value)) for key, value in conditions.items())),
            knobs=tuple(sorted((k, str(v)) for k, v in environment.get("variables", {}).items() if _KNOBS.match(k))),
            nodes=len(hosts),
            per_node=tuple(sorted(set(hosts.values()))),
            ranks=environment["ranks"],
        )

    @property
    def shape(self) -> str:
        """``8 ranks, 4 x 2``: nodes and ranks on each."""
        return f"{self.ranks} ranks, {self.nodes} x {'-'.join(map(str, self.per_node))}"

    @property
    def family(self) -> tuple:
        """The same for setups that differ in their number of ranks on one node, or in their number of nodes only.

        Binding may differ as well: it is given up where ranks outnumber cores.
        """
        conditions = tuple(pair for pair in self.conditions if pair[0] != "bound_by")
        spread = "on one node" if self.nodes == 1 else f"{'-'.join(map(str, self.per_node))} on each node"
        return self.library, self.machine, conditions, self.knobs, spread

    def __str__(self) -> str:
        knobs = "".join(f", {key}={value}" for key, value in self.knobs)
        return f"{self.shape}, {self.library}{knobs}"


@dataclass(frozen=True)
class Launch:
    """One launch of the benchmark.

    Attributes
    ----------
    path : Path
    name, started : str
    setup : Setup
    title : str
        All of the setup in words.
    environment : dict
    rows : tuple of dict
        Its cases, as :func:`mpi_allreduce.bench.read` gives them, without those that were skipped or wrong.
    wrong : tuple of str
        Cases whose results were wrong.
    """

    path: Path
    name: str
    started: str
    setup: Setup
    title: str
    environment: dict[str, object]
    rows: tuple[dict[str, object], ...] = field(repr=False)
    wrong: tuple[str, ...]

    @cached_property
    def visits(self) -> dict[Case, np.ndarray]:
        """Seconds: the median of each visit of each case."""
        return {Case(row["algorithm"], row["bytes"], row["codec"]): _visit_medians(row) for row in self.rows}


def _visit_medians(row: dict) -> np.ndarray:
    times = completion(row["seconds"], row["delays"])
    return np.array([np.median(times[row["visit"] == visit]) for visit in np.unique(row["visit"])])


@dataclass(frozen=True)
class Material:
    """All that could be read, and what could not.

    Attributes
    ----------
    launches : tuple of Launch
    overlaps : tuple of OverlapLaunch
    trainings : tuple of Training
    problems : tuple of str
        One line for each file or launch that could not be read.
    """

    launches: tuple[Launch, ...] = ()
    overlaps: tuple[OverlapLaunch, ...] = ()
    trainings: tuple[Training, ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.launches or self.overlaps or self.trainings)

    @cached_property
    def setups(self) -> dict[Setup, list[Launch]]:
        """Launches with anything timed, between ranks, by setup."""
        found = defaultdict(list)
        for launch in self.launches:
            if launch.rows and launch.setup.ranks > 1:
                found[launch.setup].append(launch)
        return dict(sorted(found.items()))

    @cached_property
    def labels(self) -> list[str]:
        """Algorithms without a codec; MPI's own come first, then ours by name: the order of styles in all figures."""
        names = {row["algorithm"] for launch in self.launches for row in launch.rows if row["codec"] == NONE}
        return sorted(names, key=lambda name: (is_ours(name), name))


def label(row: dict) -> str:
    """Algorithm, and codec if there is one."""
    return row["algorithm"] if row["codec"] == NONE else f"{row['algorithm']} {row['codec']}"


def is_ours(algorithm: str) -> bool:
    """Whether an algorithm is this package's."""
    return not algorithm.startswith(("vendor", "nccl"))


def load(paths: Iterable[Path], launch: str | None = None) -> Material:
    """Read records of any kind; what cannot be read becomes one of ``problems``.

    Parameters
    ----------
    paths : iterable of path
    launch : str, optional
        Only launches of this name.
    """
    launches, overlaps, trainings, problems = [], [], [], []

    def attempt(what: str, into: list, reader: Callable[[], Sequence]) -> None:
        try:
            into += reader()
        except _UNREADABLE as error:
            text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            problems.append(text if str(what) in text else f"{what}: {text}")

    for path in dict.fromkeys(map(Path, paths)):
        kinds: list[str] = []
        attempt(path, kinds, lambda path=path: [_kind(path)])
        if kinds == [BENCH]:
            facts: list[tuple[str, dict]] = []
            attempt(path, facts, lambda path=path: read_launches(path).items())
            for name, of in facts:
                if launch in (None, name):
                    attempt(f"{path} {name}", launches, lambda a=(path, name, of): [_launch(*a)])
        elif kinds:
            attempt(path, overlaps, lambda path=path: read_overlap(path))
            attempt(path, trainings, lambda path=path: read_training(path))
    launches.sort(key=lambda found: found.started)
    return Material(tuple(launches), tuple(overlaps), tuple(trainings), tuple(problems))


def _kind(path: Path) -> str:
    if not path.exists():
        raise OSError(f"{path}: there is no such file")
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            kind = file.attrs.get("format")
    except OSError as error:
        raise OSError(f"{path} is no HDF5 file, or was cut short ({error})") from error
    if kind not in (BENCH, OVERLAP):
        raise ValueError(f"{path} is an HDF5 file, but no record of bench, overlap or train")
    return kind


def _launch(path: Path, name: str, facts: dict) -> Launch:
    environment, settings = facts["environment"], facts["settings"]
    rows = read(path, name)
    return Launch(
        path=path,
        name=name,
        started=facts["started"],
        setup=Setup.of(environment, settings),
        title=heading(environment, settings),
        environment=environment,
        rows=tuple(row for row in rows if "median" in row and not row["wrong"]),
        wrong=tuple(f"{label(row)}, {row['bytes']} B" for row in rows if row.get("wrong")),
    )


def tell(problems: Iterable[str]) -> None:
    """Say on standard error what could not be read."""
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
