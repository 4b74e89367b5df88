"""When things happened on one rank: kept while gradients are synchronised, exported for a viewer."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import numpy as np

__all__ = ["Event", "Timeline", "chrome_trace"]


MOST_EVENTS = 1 << 17


class Event(NamedTuple):
    """Something that happened.

    ``kind``: a gradient became ``ready``; the allreduce of a bucket began (``start``), its ``first`` message was seen
    to have arrived (unknown for MPI_Iallreduce), the last one had arrived and was reduced (``end``); the rank began to
    ``wait`` for all, and was ``done``.
    """

    step: int
    kind: str
    bucket: int  # -1 for events of no bucket
    name: str  # of the parameter, or empty
    seconds: float  # on this rank's clock


@dataclass
class Timeline:
    """Events of one rank.

    Attributes
    ----------
    events : list of Event
        In the order in which they happened, once a step is done.
    origin : float
        When the first step began, on this rank's clock.
    """

    events: list[Event] = field(default_factory=list)
    origin: float = 0.0
    _settled: int = 0  # events of steps that are done

    def begin(self) -> None:
        """Forget all; time counts from now."""
        self.events.clear()
        self._settled = 0
        self.origin = perf_counter()

    def add(self, step: int, kind: str, bucket: int = -1, name: str = "", seconds: float | None = None) -> None:
        """Note what happens now, or is known only now to have happened at ``seconds``."""
        self.events.append(Event(step, kind, bucket, name, perf_counter() if seconds is None else seconds))

    def end_step(self) -> None:
        """Put what became known late in its place; of very many steps the oldest are forgotten."""
        step = self.events[self._settled :]
        self.events[self._settled :] = sorted(step, key=lambda event: event.seconds)
        if len(self.events) > MOST_EVENTS:
            del self.events[: MOST_EVENTS // 2]
        self._settled = len(self.events)

    def exposed_seconds(self, step: int) -> float:
        """How long the rank waited at the end of a step: communication that nothing hid."""
        times = {event.kind: event.seconds for event in self.events if event.step == step and event.bucket < 0}
        return times["done"] - times["wait"] if "done" in times else 0.0

    def save(self, group) -> None:
        """Write to an h5py group: ``events``, rows of (step, kind, bucket, name, seconds since ``origin``)."""
        kind = np.dtype([("step", "i8"), ("kind", "S8"), ("bucket", "i4"), ("name", "S64"), ("seconds", "f8")])
        rows = [(e.step, e.kind.encode(), e.bucket, e.name.encode()[:64], e.seconds - self.origin) for e in self.events]
        group.create_dataset("events", data=np.array(rows, kind), compression="gzip")

    @classmethod
    def load(cls, group) -> "Timeline":
        """What :meth:`save` wrote; ``origin`` is zero."""
        rows = group["events"][()].tolist()
        return cls([Event(step, kind.decode(), bucket, name.decode(), at) for step, kind, bucket, name, at in rows])


def chrome_trace(timelines: Iterable[Timeline]) -> str:
    """JSON for chrome://tracing or ui.perfetto.dev: a process for each rank (timelines come by rank), a lane for each
    bucket.
    """
    events: list[dict] = []
    for rank, timeline in enumerate(timelines):
        begun: dict[tuple[int, int], float] = {}
        for event in timeline.events:
            at = (event.seconds - timeline.origin) * 1e6
            lane = event.bucket + 1
            common = {"pid": rank, "tid": lane, "ts": at}
            if event.kind in ("ready", "first"):
                name = f"ready {event.name}" if event.kind == "ready" else "first message arrived"
                events.append({**common, "ph": "i", "s": "t", "name": name})
            elif event.kind in ("start", "wait"):
                begun[event.step, lane] = at
            elif (event.step, lane) in begun:
                first = begun.pop((event.step, lane))
                name = "exposed" if event.kind == "done" else f"allreduce of bucket {event.bucket}"
                whole = {"ph": "X", "name": name, "ts": first, "dur": at - first}
                events.append({**common, **whole, "args": {"step": event.step}})
        events.append({"pid": rank, "ph": "M", "name": "process_name", "args": {"name": f"rank {rank}"}})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
