"""What codecs, feedback, accumulation and staleness do to convergence: many trainings in one launch, several seeds.

Usage: mpirun -n 8 python analysis/convergence.py [--seeds 5] [--epochs 20] [--data digits] [--only codecs|others]

Printed are the median and the range over seeds of the accuracy on the test images and of the last loss,
and the bytes that a rank sent.  A difference counts only if it holds for all seeds, seed by seed.
"""

import argparse
import sys

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

from mpi_allreduce.overlap.training import Trainer, TrainSettings

CODECS = ["fp16", "int8", "int8:tensor", "int4", "int2", "topk:0.01", "topk:0.001"]
ACCUMULATE = [1, 2, 4, 8]
DELAYS = [0, 1, 4, 8]


def variants(which: str) -> dict[str, dict]:
    """By name: what differs from the defaults."""
    chosen: dict[str, dict] = {"float32": {}}
    if which in ("codecs", "all"):
        for codec in CODECS:
            chosen[codec] = {"codec": codec}
            chosen[f"{codec}, feedback"] = {"codec": codec, "error_feedback": True}
            if codec.startswith("topk"):
                chosen[f"{codec}, feedback, momentum"] = {
                    "codec": codec, "error_feedback": True, "momentum_correction": True,
                }  # fmt: skip
    if which in ("others", "all"):
        chosen |= {f"accumulate {k}": {"accumulate": k} for k in ACCUMULATE[1:]}
        for rate, momentum in ((0.1, 0.0), (0.02, 0.9)):
            for delay in DELAYS:
                chosen[f"rate {rate:g}, momentum {momentum:g}, delay {delay}"] = {
                    "delay": delay, "rate": rate, "momentum": momentum,
                }  # fmt: skip
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--network", default="mlp")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", default="all", choices=("all", "codecs", "others"))
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    common = {"data": args.data, "network": args.network, "epochs": args.epochs, "batch": args.batch, "rate": 0.02}
    say(comm, f"{comm.size} ranks, {common}, {args.seeds} seeds: medians, and the range over seeds")
    say(comm, f"{'':38} {'accuracy':>24} {'loss':>24} {'KiB sent':>10} {'beside float32':>16}")
    base: list[float] = []
    for name, changes in variants(args.only).items():
        ends = [train(comm, TrainSettings(**{**common, **changes}, seed=seed)) for seed in range(1, args.seeds + 1)]
        accuracies = [last.accuracy for last, _ in ends]
        base = base or accuracies
        differences = [mine - theirs for mine, theirs in zip(accuracies, base, strict=True)]
        verdict = "worse" if max(differences) < 0 else "better" if min(differences) > 0 else "not shown"
        say(
            comm,
            f"{name:38} {spread(accuracies, 4):>24} {spread([last.loss for last, _ in ends], 4):>24} "
            f"{ends[0][1] / 1024:10.0f} {verdict:>16}",
        )
    return 0


def train(comm: MPI.Intracomm, settings: TrainSettings):
    """(The last epoch, bytes sent in all.)"""
    trainer = Trainer(settings, comm)
    with np.errstate(all="ignore"):  # stale gradients may diverge
        epochs = list(trainer.run())
    trainer.free()
    return epochs[-1], sum(epoch.sent_bytes for epoch in epochs)


def spread(values: list[float], digits: int) -> str:
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def say(comm: MPI.Intracomm, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
