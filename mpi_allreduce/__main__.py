"""The command line: ``python -m mpi_allreduce COMMAND``; each sub-command lives in its room."""

import argparse
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

from . import __version__
from .bench.command import add_bench, add_show
from .bench.information import add_info
from .errors import UsageError
from .overlap.command import add_overlap, add_train
from .simulate.command import add_verify
from .simulate.scaling import add_simulate
from .tuning.advise_command import add_advise
from .tuning.command import add_tune
from .tuning.fit_command import add_fit
from .tuning.guidelines_command import add_guidelines

_RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "PALS_RANKID",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
)


def main(arguments: list[str] | None = None) -> int:
    """Run one sub-command.

    Returns
    -------
    int
        Exit status: 0, 1 if something was found wrong, 2 for bad usage.
    """
    args = _parse(arguments)
    try:
        return args.run(args)
    except UsageError as error:  # the same on every rank
        if _launched_rank() == 0:
            print(f"mpi_allreduce {args.command}: error: {error}", file=sys.stderr)
        return 2
    except BaseException:
        _abort_job()
        raise


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    """Every rank parses, one speaks; MPI is not started for that, so help works everywhere."""
    parser = argparse.ArgumentParser(
        prog="mpi_allreduce", description="Allreduce algorithms: proved, timed against MPI_Allreduce, recorded."
    )
    parser.add_argument("--version", action="version", version=f"mpi_allreduce {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        add_info, add_bench, add_show, add_verify, add_simulate, add_fit, add_tune, add_guidelines, add_advise,
        add_overlap, add_train,
    ):  # fmt: skip
        add(commands)
    if _launched_rank() == 0:
        return parser.parse_args(arguments)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return parser.parse_args(arguments)


def _launched_rank() -> int:
    """Rank of this process as the launcher tells it, without MPI; 0 if there is no launcher."""
    return next((int(os.environ[name]) for name in _RANK_VARIABLES if name in os.environ), 0)


def _abort_job() -> None:
    """One rank failed: show where, and end the others, which would wait for it forever."""
    if "mpi4py.MPI" not in sys.modules:
        return
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.size > 1:
        trace = traceback.format_exc()
        sys.stdout.flush()
        print(f"rank {MPI.COMM_WORLD.rank} on {MPI.Get_processor_name()} failed:\n{trace}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    sys.exit(main())
