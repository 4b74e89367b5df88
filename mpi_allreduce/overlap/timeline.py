"""When things happened on one rank: kept while gradients are synchronised, exported for a viewer."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import numpy as np

__all__ = ["Event", "Timeline", "chrome_trace"]

KINDS = ("ready", "start", "end", "wait", "done")


class Event(NamedTuple):
    """Something that happened.

    ``kind``: a gradient became ``ready``; the allreduce of a bucket began (``start``), and was first seen complete
    (``end``); the rank began to ``wait`` for all, and was ``done``.
    """

    step: int
    kind: str
    bucket: int  # -1 for events of no bucket
    name: str  # of the parameter, or empty
    seconds: float  # on this rank's clock


@dataclass
class Timeline:
    """Events of one rank, in the order in which they happened."""

    events: list[Event] = field(default_factory=list)

    def add(self, step: int, kind: str, bucket: int = -1, name: str = "") -> None:
        """Note that something happens now."""
        self.events.append(Event(step, kind, bucket, name, perf_counter()))

    def exposed_seconds(self, step: int) -> float:
        """How long the rank waited at the end of a step: communication that nothing hid."""
        times = {event.kind: event.seconds for event in self.events if event.step == step and event.bucket < 0}
        return times["done"] - times["wait"] if "done" in times else 0.0

    def save(self, group) -> None:
        """Write to an h5py group: one dataset ``events`` of (step, kind, bucket, name, seconds)."""
        kind = np.dtype([("step", "i8"), ("kind", "S8"), ("bucket", "i4"), ("name", "S64"), ("seconds", "f8")])
        rows = [(e.step, e.kind.encode(), e.bucket, e.name.encode()[:64], e.seconds) for e in self.events]
        group.create_dataset("events", data=np.array(rows, kind), compression="gzip")


def chrome_trace(timelines: Iterable[Timeline], origins: Iterable[float]) -> str:
    """JSON for chrome://tracing or ui.perfetto.dev: a process for each rank, a lane for each bucket.

    Parameters
    ----------
    timelines : iterable of Timeline
        By rank.
    origins : iterable of float
        What each rank's clock showed at a common moment.
    """
    events: list[dict] = []
    for rank, (timeline, origin) in enumerate(zip(timelines, origins, strict=True)):
        begun: dict[tuple[int, int], float] = {}
        for event in timeline.events:
            at = (event.seconds - origin) * 1e6
            lane = event.bucket + 1
            common = {"pid": rank, "tid": lane, "ts": at}
            if event.kind == "ready":
                events.append({**common, "ph": "i", "s": "t", "name": f"ready {event.name}"})
            elif event.kind in ("start", "wait"):
                begun[event.step, lane] = at
            elif (event.step, lane) in begun:
                first = begun.pop((event.step, lane))
                name = "exposed" if event.kind == "done" else f"allreduce of bucket {event.bucket}"
                whole = {"ph": "X", "name": name, "ts": first, "dur": at - first}
                events.append({**common, **whole, "args": {"step": event.step}})
        events.append({"pid": rank, "ph": "M", "name": "process_name", "args": {"name": f"rank {rank}"}})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
