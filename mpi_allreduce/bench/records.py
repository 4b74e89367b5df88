"""Records of benchmark launches in HDF5, readable by h5py alone.

Layout, version 1::

    /                        attributes: format = "mpi_allreduce.bench", version = 1
    /launch-0001             one group for each launch; attributes: started (ISO 8601, UTC), label, finished (bool)
        environment          string, JSON: see environment.describe
        environment-2 ...    the same for each time that the launch was resumed
        settings             string, JSON: see settings.Settings
        probes/001           one group for each elementary operation (none in records of older versions); attributes:
                             kind, place, bytes, messages, delay (see probes.Probe)
            seconds          float64 [repetition]
        visits/00001         one group for each visit of a case, numbered as they were made (the order is shuffled)
            attributes       the case: algorithm, bytes, count, dtype, op, codec, memory, mode, skew, data, in_place,
                             ranks, buffers; pass (from 0); wrong, error, identical, repeatable (see
                             validation.Validation); rounds (-1 if unknown), sent_bytes (by the busiest rank, -1 if
                             unknown; with a codec at most), scratch_bytes, chosen (the algorithm that ran, where it
                             was ``auto``), reason (why, or empty), native_op (false if the vendor had to call back a
                             kernel of ours); warmups, ended_by, baseline (seconds, 0 if not skewed);
                             max_error, bound (of error; 0 without a codec); with a codec: wire_bytes (as counted, by
                             the busiest rank), encode_seconds, decode_seconds (means of all runs, of the rank that
                             spent most on both)
                             instead, where the case could not be run: skipped (the reason)
            seconds          float64 [repetition, rank], from each rank's own arrival to its end
            delays           float64 [repetition, rank], only with skew: how late each rank arrived on purpose

A reader must ignore groups, attributes and datasets that it does not know; the version grows when a meaning changes.

After each visit an extended copy of the file is put in its place in one step (of a file so large that this takes more
than 0.05 s: so often that it takes a twentieth of the time).  So a launch that is killed at any moment, or a full disk,
leaves a readable file with the finished visits.  Launches that append to one file at the same
time take turns by a lock (``.FILE.lock``), held only meanwhile.
"""

import fcntl
import io
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np

from .statistics import completion, summarise

__all__ = ["FORMAT", "VERSION", "Recorder", "extend", "pool", "read", "read_launches", "read_probes"]

FORMAT = "mpi_allreduce.bench"
VERSION = 1
CHEAP_SECONDS = 0.05  # a file that is written faster than that is written after each visit,
FLUSH_RATIO = 20  # a larger one when this many times as long has passed as writing took
SPARE_BYTES = 16 << 20
LOCK_SECONDS = 60.0
CASE_KEYS = (
    "algorithm", "bytes", "dtype", "op", "codec", "memory", "mode", "skew", "data", "in_place", "ranks",
)  # fmt: skip
_MERGED = {"wrong": max, "error": max, "identical": all, "repeatable": all, "warmups": sum}
_OF_VISITS = {*_MERGED, "pass", "ended_by"}


class Recorder:
    """Writes one launch, from one process.

    Parameters
    ----------
    path : path
        Made, with its folder, if missing; otherwise the launch is appended.
    environment, settings : dict
        Plain values.
    label : str
    resume : str, optional
        Name of the unfinished launch to go on with, instead of a new one; ``settings`` and ``label`` stay its own.

    Raises
    ------
    OSError
        If the file cannot be written; the message says what to do.
    ValueError
        If it exists and is not a record of this kind.
    """

    def __init__(self, path: str | Path, environment: dict, settings: dict, label: str = "", resume: str = ""):
        self.path = Path(path).resolve()
        self.visits = 0
        self._pending: list[Callable[[h5py.File], None]] = []
        self._flushed = self._cost = 0.0
        self.launch = resume
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _check_space(self.path)

        def start(file: h5py.File) -> None:
            _check_format(file, self.path)
            if resume:
                self.visits = len(file[resume]["visits"])
                parts = sum(name.startswith("environment") for name in file[resume])
                file[resume][f"environment-{parts + 1}"] = json.dumps(environment)
                return
            number = 1 + max((int(name.rpartition("-")[2]) for name in file if name.startswith("launch-")), default=0)
            self.launch = f"launch-{number:04d}"
            group = file.create_group(self.launch)
            group.attrs.update({"started": environment.get("started", ""), "label": label, "finished": False})
            group["environment"] = json.dumps(environment)
            group["settings"] = json.dumps(settings)
            group.create_group("visits")

        extend(self.path, start)

    def add(self, attributes: dict[str, object], seconds: np.ndarray | None, delays: np.ndarray | None = None) -> None:
        """Keep one visit.

        Parameters
        ----------
        attributes : dict
            Numbers and strings.
        seconds, delays : ndarray, shape (repetitions, ranks), or None
        """
        self.visits += 1
        visit = f"{self.launch}/visits/{self.visits:05d}"

        def write(file: h5py.File) -> None:
            group = file.create_group(visit)
            group.attrs.update(attributes)
            for name, values in (("seconds", seconds), ("delays", delays)):
                if values is not None:
                    group.create_dataset(name, data=values, compression="gzip", shuffle=True)

        self._pending.append(write)
        if self._cost < CHEAP_SECONDS or time.monotonic() - self._flushed > FLUSH_RATIO * self._cost:
            self.flush()

    def add_probes(self, probes: Iterable[object]) -> None:
        """Keep what was measured beside the cases: a sequence of :class:`~mpi_allreduce.bench.probes.Probe`."""

        def write(file: h5py.File) -> None:
            for number, probe in enumerate(probes, 1):
                attributes = asdict(probe)
                group = file.create_group(f"{self.launch}/probes/{number:03d}")
                group["seconds"] = attributes.pop("seconds")
                group.attrs.update(attributes)

        self._pending.append(write)

    def flush(self) -> None:
        """Bring what is pending to the file."""
        started = time.monotonic()
        pending, self._pending = self._pending, []

        def write(file: h5py.File) -> None:
            for part in pending:
                part(file)

        if pending:
            extend(self.path, write)
        self._flushed = time.monotonic()
        self._cost = self._flushed - started

    def finish(self) -> None:
        """Mark the launch as complete."""

        def write(file: h5py.File) -> None:
            file[self.launch].attrs["finished"] = True

        self._pending.append(write)
        self.flush()


def read(path: str | Path, launch: str | None = None) -> list[dict[str, object]]:
    """All cases of a record as a table: one flat dict for each row, e.g. for ``pandas.DataFrame(read(path))``.

    Parameters
    ----------
    path : path
    launch : str, optional
        Only this launch.

    Returns
    -------
    list of dict
        ``launch``, ``label``; the attributes listed in :mod:`mpi_allreduce.bench.records`; for cases that were timed
        ``seconds``, ``delays`` (or None) and ``visit`` (the number of the visit of each repetition) as arrays of all
        visits, the fields of :class:`~mpi_allreduce.bench.statistics.Summary` in seconds, and ``algbw`` = bytes /
        median and ``busbw`` = algbw * 2 (p - 1) / p in bytes per second.

    Raises
    ------
    ValueError
        If the file is not such a record, or a newer version's.
    """
    rows = []
    with _opened(path) as file:
        for name in _launches(file) if launch is None else [launch]:
            cases: dict[tuple, list[h5py.Group]] = {}
            for _, group in sorted(file[name]["visits"].items()):
                cases.setdefault(tuple(_plain(group.attrs[key]) for key in CASE_KEYS), []).append(group)
            rows += [{"launch": name, "label": file[name].attrs["label"], **_row(groups)} for groups in cases.values()]
    return rows


def pool(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows of several launches as one row for each case, the launch being the unit.

    Parameters
    ----------
    rows : list of dict
        As :func:`read` gives them, of any number of launches and files.

    Returns
    -------
    list of dict
        ``median``, ``low`` and ``high`` are the median of the launches' medians and its confidence interval (the
        range of fewer than six), ``visits`` the number of launches, ``p99`` the median of theirs.
    """
    cases: dict[tuple, list[dict[str, object]]] = {}
    for row in rows:
        if "median" in row:
            cases.setdefault(tuple(row[key] for key in CASE_KEYS), []).append(row)
    return [_pooled(launches) for launches in cases.values()]


def _pooled(launches: list[dict[str, object]]) -> dict[str, object]:
    medians = np.array([row["median"] for row in launches])
    summary = summarise([medians])
    pooled = {key: merge([row[key] for row in launches]) for key, merge in _MERGED.items()}
    pooled |= {key: getattr(summary, key) for key in ("median", "low", "high", "minimum", "maximum")}
    pooled |= {"p99": float(np.median([row["p99"] for row in launches])), "visits": len(launches)}
    pooled |= bandwidths(launches[0]["bytes"], launches[0]["ranks"], summary.median)
    return {**launches[0], **pooled}


def bandwidths(size: int, ranks: int, seconds: float) -> dict[str, float]:
    """``algbw`` and ``busbw`` in bytes per second."""
    return {"algbw": size / seconds, "busbw": size / seconds * 2 * (ranks - 1) / ranks}


def read_launches(path: str | Path) -> dict[str, dict[str, object]]:
    """Per launch: its attributes, ``environment`` and ``settings``."""
    with _opened(path) as file:
        return {
            name: {
                **{key: _plain(value) for key, value in group.attrs.items()},
                "environment": json.loads(group["environment"][()]),
                "settings": json.loads(group["settings"][()]),
            }
            for name in _launches(file)
            for group in [file[name]]
        }


def read_probes(path: str | Path) -> dict[str, list[dict[str, object]]]:
    """Per launch: the elementary operations that were timed, as flat dicts with ``seconds`` an array."""
    with _opened(path) as file:
        return {
            name: [
                {**{key: _plain(value) for key, value in group.attrs.items()}, "seconds": group["seconds"][()]}
                for group in file[name].get("probes", {}).values()
            ]
            for name in _launches(file)
        }


@contextmanager
def _opened(path: str | Path) -> Iterator[h5py.File]:
    """A record to read from.  HDF5's own errors do not always name the file."""
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from error
    with file:
        _check_format(file, path)
        yield file


def _row(groups: list[h5py.Group]) -> dict[str, object]:
    """One case from its visits."""
    attributes = [{key: _plain(value) for key, value in group.attrs.items()} for group in groups]
    row = {key: value for key, value in attributes[0].items() if key not in _OF_VISITS}
    if "skipped" in row:
        return row
    row |= {key: merge([visit[key] for visit in attributes]) for key, merge in _MERGED.items()}
    seconds = [group["seconds"][()] for group in groups]
    delays = [group["delays"][()] if "delays" in group else None for group in groups]
    summary = summarise([completion(s, d) for s, d in zip(seconds, delays, strict=True)])
    return {
        **row,
        "seconds": np.concatenate(seconds),
        "delays": None if delays[0] is None else np.concatenate(delays),
        "visit": np.repeat(np.arange(len(groups)), [len(s) for s in seconds]),
        **asdict(summary),
        **bandwidths(row["bytes"], row["ranks"], summary.median),
    }


def _launches(file: h5py.File) -> list[str]:
    return sorted(name for name in file if name.startswith("launch-"))


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _check_format(file: h5py.File, path: str | Path) -> None:
    if not file.keys() and "format" not in file.attrs and file.mode != "r":
        file.attrs.update({"format": FORMAT, "version": VERSION})
    if file.attrs.get("format") != FORMAT:
        raise ValueError(f"{path} is an HDF5 file, but not a record of this benchmark")
    if file.attrs["version"] > VERSION:
        raise ValueError(f"{path} has layout version {file.attrs['version']}; this program knows up to {VERSION}")


def _check_space(path: Path) -> None:
    """A file system that is all but full would fail in the middle of the night."""
    free = shutil.disk_usage(path.parent).free
    needed = SPARE_BYTES + 2 * (path.stat().st_size if path.exists() else 0)
    if free < needed:
        raise OSError(
            f"{path.parent}: {free / 2**20:.0f} MiB are free, {needed / 2**20:.0f} MiB should be; "
            "make room, or choose another file system with --out"
        )


def extend(path: Path, write: Callable[[h5py.File], None]) -> None:
    """Let ``write`` change a copy of the file, then put it in the old one's place.

    Raises
    ------
    OSError
        If the file cannot be read or written; what it held is still there.
    """
    draft = path.with_name(f".{path.name}.draft")
    with _locked(path):
        # In memory, as HDF5 does not survive a full disk; Python's own write raises cleanly.
        try:
            image = io.BytesIO(path.read_bytes() if path.exists() else b"")
            with h5py.File(image, "r+" if image.getbuffer().nbytes else "w") as file:
                write(file)
        except OSError as error:
            raise OSError(f"{path}: {error}; choose another file with --out") from error
        try:
            with open(draft, "wb") as written:
                written.write(image.getbuffer())
                written.flush()
                os.fsync(written.fileno())
            os.replace(draft, path)
        except OSError as error:
            raise OSError(
                f"{path} cannot be written: {error.strerror}; what it held is still there. "
                "Mend that, or choose another folder with --out"
            ) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise OSError(f"{path.parent} cannot be written: {error.strerror}; choose another folder with --out") from error
    try:
        _take_lock(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, lock: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(
                    f"{lock} has been locked by another process for {LOCK_SECONDS:g} s; "
                    "end that process, or choose another file with --out"
                ) from None
            time.sleep(0.02)
        except OSError as error:  # some network file systems know no locks
            message = f"{lock}: {error.strerror}; do not let several launches append to this file at once"
            return warnings.warn(message, stacklevel=5)
