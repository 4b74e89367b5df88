"""Do all ranks make the same call?  Asked on demand, and answered with the same error everywhere."""

import os
from collections import Counter
from collections.abc import Callable

from mpi4py import MPI

from .arguments import Call

__all__ = ["DisagreementError", "agree", "wanted"]


class DisagreementError(ValueError):
    """The ranks of a communicator make calls that do not fit together; raised on every rank, with the same text."""


def wanted(check: bool | None) -> bool:
    """The argument ``check``, or where it is None the environment variable MPI_ALLREDUCE_CHECK."""
    return os.environ.get("MPI_ALLREDUCE_CHECK", "0") not in ("", "0") if check is None else check


def agree(comm: MPI.Intracomm, check_arguments: Callable[[], Call]) -> Call:
    """Check this rank's arguments, then compare them with those of all others; collective, a small allgather.

    Raises
    ------
    DisagreementError
        On every rank: if arguments are bad on any rank, or differ in count, dtype, operator or algorithm.  The
        message names the ranks.
    """
    call, error = None, None
    try:
        call = check_arguments()
        mine = call.signature()
    except (TypeError, ValueError, ImportError) as raised:
        error = raised
        mine = f"{type(raised).__name__}: {raised}"
    signatures = comm.allgather(mine)
    failures = {rank: text for rank, text in enumerate(signatures) if isinstance(text, str)}
    if len(failures) == comm.size and len(set(failures.values())) == 1:
        raise error
    problems = _bad_ranks(failures) + _differences({r: s for r, s in enumerate(signatures) if r not in failures})
    if problems:
        raise DisagreementError("; ".join(problems)) from error
    return call


def _bad_ranks(failures: dict[int, str]) -> list[str]:
    ranks_by_text: dict[str, list[int]] = {}
    for rank, text in failures.items():
        ranks_by_text.setdefault(text, []).append(rank)
    return [f"on {_ranks(ranks)}: {text}" for text, ranks in ranks_by_text.items()]


def _differences(signatures: dict[int, dict[str, object]]) -> list[str]:
    """One sentence for each argument that is not the same everywhere; the majority is taken as meant."""
    problems = []
    for name in next(iter(signatures.values()), {}):
        values = {rank: signature[name] for rank, signature in signatures.items()}
        (usual, times), *others = Counter(values.values()).most_common()
        if others:
            ranks_by_value = {value: [rank for rank, v in values.items() if v == value] for value, _ in others}
            odd = ", ".join(f"{value!r} on {_ranks(ranks)}" for value, ranks in ranks_by_value.items())
            problems.append(f"{name}: {odd}, but {usual!r} on {times} other rank{'s' * (times > 1)}")
    return problems


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown}"
