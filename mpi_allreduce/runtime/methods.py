"""All that ``algorithm=`` may name: schedules, and the ways of execution that are none."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..algorithms import get, names, unknown
from ..codecs import PowerSGD
from ..memory import Operator
from .compressed import bind_compressed
from .execution import Execution, Task
from .hierarchical import bind_hierarchical
from .lowrank import bind_lowrank
from .nccl import bind_nccl, check_nccl
from .reproducible import bind_reproducible, check_reproducible
from .scheduled import bind_schedule
from .shared import bind_shared
from .staging import bind_staged, needs_host
from .vendor import VENDORS, bind_vendor

AUTO = "auto"  # is replaced by one of the others before anything is bound

__all__ = [
    "AUTO", "algorithm_names", "bind", "check_codec", "check_name", "check_type", "is_vendor", "keeps_order"
]  # fmt: skip


@dataclass(frozen=True)
class Method:
    """A way of execution that is no schedule.

    Attributes
    ----------
    bind : callable
        Makes it from a :class:`Task`; collective.
    ordered : bool
        True if operands are combined in rank order.
    check_inner : callable, optional
        Refuses what may not follow, as ``ring`` does in ``hierarchical:ring``; without it nothing may.
    check_type : callable, optional
        Refuses operators and dtypes.
    no_codec : str
        Why there can be no codec; empty if there can.
    """

    bind: Callable[[Task], Execution]
    ordered: bool
    check_inner: Callable[[str], object] | None = None
    check_type: Callable[[Operator, np.dtype], None] | None = None
    no_codec: str = ""


def _check_added(name: str) -> None:
    """Anything may add integers."""
    if name.partition(":")[0] == "reproducible":
        raise ValueError(f"algorithm: reproducible:{name} says it twice")
    check_name(name)


METHODS = {
    "shared": Method(bind_shared, ordered=True),
    "hierarchical": Method(bind_hierarchical, ordered=False, check_inner=get),
    "reproducible": Method(
        lambda task: bind_reproducible(task, bind),
        False,
        check_inner=_check_added,
        check_type=check_reproducible,
        no_codec="what a codec drops depends on the number of ranks and on the algorithm",
    ),
    "nccl": Method(bind_nccl, ordered=False, check_type=check_nccl, no_codec="NCCL sends numbers as they are"),
    **dict.fromkeys(VENDORS, Method(bind_vendor, ordered=True, no_codec="the MPI library sends numbers as they are")),
}


def algorithm_names(*, ordered: bool | None = None) -> list[str]:
    """What ``algorithm=`` may be for every operator and dtype: schedules, ways that are none, then the vendor's own."""
    others = [n for n, m in METHODS.items() if m.check_type is None and ordered in (None, m.ordered)]
    return names(ordered=ordered) + others


def check_name(name: str) -> None:
    """Refuse what names nothing.

    Raises
    ------
    ValueError
        Listing all names.
    """
    base, colon, parameter = name.partition(":")
    if name == AUTO:
        return
    if base in names():
        get(name)
    elif base not in METHODS:
        raise unknown(name, [*algorithm_names(), AUTO])
    elif colon and METHODS[base].check_inner:
        METHODS[base].check_inner(parameter)
    elif colon:
        raise ValueError(f"algorithm: {base} takes no parameter, got {name!r}")


def check_type(name: str, op: Operator, dtype: np.dtype) -> None:
    """Refuse operators and dtypes that this way of execution cannot serve.

    Raises
    ------
    ValueError
    """
    method = METHODS.get(name.partition(":")[0])
    if method and method.check_type:
        method.check_type(op, dtype)


def check_codec(name: str) -> None:
    """Refuse a way of execution that cannot use a codec.

    Raises
    ------
    ValueError
    """
    method = METHODS.get(name.partition(":")[0])
    if method and method.no_codec:
        raise ValueError(
            f"codec: {name} cannot use one, as {method.no_codec}; choose another algorithm, for instance pairwise, or "
            'codec="none"'
        )


def is_vendor(name: str) -> bool:
    """Whether the MPI library does it."""
    return name in VENDORS


def keeps_order(name: str) -> bool:
    """Whether operands are combined in rank order, so that operators need not commute."""
    method = METHODS.get(name.partition(":")[0])
    return name == AUTO or (method.ordered if method else get(name).ordered)


def bind(task: Task) -> Execution:
    """Make the execution that a task names."""
    if task.device is not None and needs_host(task):
        return bind_staged(task, bind)
    if isinstance(task.codec, PowerSGD):
        return bind_lowrank(task, bind)
    method = METHODS.get(task.name.partition(":")[0])
    if method:
        return method.bind(task)
    return bind_schedule(task) if task.codec is None else bind_compressed(task)
