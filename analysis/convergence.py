"""What codecs, feedback, accumulation and staleness do to convergence: many trainings in one launch, several seeds.

Usage: mpirun -n 8 python analysis/convergence.py [--seeds 5] [--epochs 20] [--data digits] [--out FILE.h5] [PART ...]

PART is some of codecs, accumulation, staleness; all by default.  Each training is repeated with several seeds (of the
weights and of the order of the images), the same seeds for every variant.  Printed are the mean accuracy on the test
images, its mean difference from the first line's, seed by seed, with a 95 % interval (Student's t on those differences;
* if zero is outside), the mean loss in the last epoch, what rank 0 sent, and how far the parameters end from the first
line's (relative L2 norm, the largest of all seeds).  Training is deterministic, so nothing but the seed varies.  Needs
the extra [train].
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
from mpi4py import MPI
from scipy.stats import ttest_rel
from threadpoolctl import threadpool_limits

from mpi_allreduce import NonFiniteError
from mpi_allreduce.overlap.records import Launch, write_training
from mpi_allreduce.overlap.training import Epoch, Trainer, TrainSettings

CODECS = ["fp16", "int8", "int8:tensor", "int4", "int2", "topk:0.01", "topk:0.001"]
ACCUMULATE = [1, 2, 4, 8]
DELAYS = [0, 1, 4, 8]


def codecs(s: dict) -> Iterator[tuple[str, dict]]:
    """Each codec without and with feedback, and with feedback that keeps the momentum."""
    yield "float32", s
    for codec in CODECS:
        yield codec, {**s, "codec": codec}
        yield f"{codec}, feedback", {**s, "codec": codec, "error_feedback": True}
        correction = {"codec": codec, "error_feedback": True, "momentum_correction": True}
        yield f"{codec}, feedback and momentum correction", {**s, **correction}


def accumulation(s: dict) -> Iterator[tuple[str, dict]]:
    """The same images for an update in K parts, then parts of the same size and K of them for an update."""
    for k in ACCUMULATE:
        yield f"{s['batch']} images in {k} micro-batches", {**s, "accumulate": k}
    smallest = s["batch"] // max(ACCUMULATE)
    for k in ACCUMULATE:
        yield f"{k} micro-batches of {smallest} images", {**s, "accumulate": k, "batch": smallest * k}


def staleness(s: dict) -> Iterator[tuple[str, dict]]:
    """Stale gradients, with the momentum and without."""
    for momentum in (s["momentum"], 0.0):
        rate = s["rate"] * (1 - momentum) / (1 - s["momentum"])  # the same length of the steps in the long run
        for delay in DELAYS:
            changes = {"delay": delay, "momentum": momentum, "rate": rate}
            yield f"delay {delay}, momentum {momentum:g}, rate {rate:g}", {**s, **changes}


PARTS = {"codecs": codecs, "accumulation": accumulation, "staleness": staleness}
HEADING = f"accuracy {'difference, 95 % interval':>32} {'loss':>9} {'KiB sent':>9} {'parameters':>11}"


@dataclass
class Ends:
    """What the trainings of one variant came to, by seed."""

    accuracy: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    sent: int = 0
    parameters: list[np.ndarray] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", default=[], help=", ".join(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--network", default="mlp")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--algorithm", default="pairwise", help="the same for all: bytes are comparable")
    parser.add_argument("--out", type=Path, default=Path("results/convergence.h5"), metavar="FILE.h5")
    options = vars(parser.parse_args())
    parts, seeds, path = options.pop("parts") or list(PARTS), options.pop("seeds"), options.pop("out")
    comm = MPI.COMM_WORLD
    launch = Launch(path, comm, "train")
    numbers = count(1)
    say(comm, f"{comm.size} ranks, {', '.join(f'{k} {v}' for k, v in options.items())}, {seeds} seeds")
    for part in parts:
        say(comm, f"\n{part:48} {HEADING}")
        base = None
        for name, settings in PARTS[part](options):
            ends = Ends()
            for seed in range(1, seeds + 1):
                train(comm, TrainSettings(**settings, seed=seed), name, ends, launch, next(numbers))
            base = base or ends
            say(comm, line(name, ends, base))
    say(comm, f"\nRecord: {path}")
    return 0


def train(comm: MPI.Intracomm, settings: TrainSettings, name: str, ends: Ends, launch: Launch, number: int) -> None:
    """Add one training to what a variant came to."""
    trainer = Trainer(settings, comm)
    epochs: list[Epoch] = []
    with np.errstate(all="ignore"):  # some diverge
        try:
            for epoch in trainer.run():
                epochs.append(epoch)
            trainer.free()
        except NonFiniteError:
            pass
        ends.accuracy.append(trainer.accuracy())
    ends.loss.append(epochs[-1].loss if len(epochs) == settings.epochs else np.inf)
    ends.sent = sum(epoch.sent_bytes for epoch in epochs)
    ends.parameters.append(np.concatenate([values.ravel() for values in trainer.parameters.values()]))
    if comm.rank == 0:
        launch.write(lambda group: write_training(group, number, name, settings, epochs))


def line(name: str, ends: Ends, base: Ends) -> str:
    if ends is base:
        difference = ""
    elif np.ptp(np.subtract(ends.accuracy, base.accuracy)) == 0:
        difference = f"{ends.accuracy[0] - base.accuracy[0]:+.4f} for every seed"
    else:
        low, high = ttest_rel(ends.accuracy, base.accuracy).confidence_interval(0.95)
        mean = np.mean(np.subtract(ends.accuracy, base.accuracy))
        sure = " *" if low > 0 or high < 0 else "  "
        difference = f"{mean:+.4f} ({low:+.4f} .. {high:+.4f}){sure}"
    apart = max(
        np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
        for mine, theirs in zip(ends.parameters, base.parameters, strict=True)
    )
    return (
        f"{name:48} {np.mean(ends.accuracy):8.4f} {difference:>32} {np.mean(ends.loss):9.4f} {ends.sent / 1024:9.0f} "
        f"{apart:11.1e}"
    )


def say(comm: MPI.Intracomm, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
