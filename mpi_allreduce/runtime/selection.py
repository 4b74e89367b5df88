"""``algorithm="auto"``: a name for a call, from the decision table or by rule; the same on all ranks."""

from dataclasses import replace

from mpi4py import MPI

from ..codecs import PowerSGD
from ..decisions import Choice, Situation, built_in
from .arguments import Call
from .communicator import Private
from .methods import AUTO, check_type, is_vendor, keeps_order
from .vendor import is_native

__all__ = ["choose", "resolved"]


def resolved(call: Call, state: Private) -> Call:
    """The call with ``auto`` replaced by a choice; collective for the first such call on a communicator."""
    prefix, inner = call.algorithm.rpartition(":")[::2]
    if inner != AUTO:
        return call
    choice = (
        choose(call, state)
        if call.codec is None or isinstance(call.codec, PowerSGD)
        else _choose_for_codec(call, state)
    )
    return replace(call, algorithm=f"{prefix}:{choice.algorithm}" if prefix else choice.algorithm, choice=choice)


def _situation(call: Call, state: Private) -> Situation:
    nodes, crowded = state.shape
    return Situation(
        library=state.library,
        ranks=state.comm.size,
        nodes=nodes,
        crowded=crowded,
        native=is_native(call.recvbuf.dtype, call.op),
    )


def _choose_for_codec(call: Call, state: Private) -> Choice:
    """A codec's user wants few bytes and a small error, whatever the table says of numbers that travel as they are."""
    situation = _situation(call, state)
    several = 1 < situation.nodes < situation.ranks
    name = "hierarchical:pairwise" if several and state.has_windows else "pairwise"
    reason = (
        f"with codec {call.codec.name} each contribution is encoded once, and each result once, for any number of ranks"
    )
    return Choice(name, reason, situation, call.recvbuf.nbytes)


def choose(call: Call, state: Private) -> Choice:
    """What ``auto`` means for a call; collective for the first such call on a communicator."""
    situation = _situation(call, state)
    on_device = call.device is not None and state.cuda_aware(call.device).aware  # it would have to leave the device

    def allowed(name: str) -> bool:
        base = name.partition(":")[0]
        if base == "shared" and state.spans_nodes:
            return False
        if base in ("shared", "hierarchical") and not state.has_windows:
            return False
        if on_device and (base in ("shared", "hierarchical") or (is_vendor(name) and name != "vendor")):
            return False  # libraries take a device's memory in fewer of their other collectives
        if name == "vendor_persistent" and MPI.Get_version()[0] < 4:
            return False
        try:
            check_type(name, call.op, call.recvbuf.dtype)
        except ValueError:
            return False
        return call.op.commutative or keeps_order(name) or is_vendor(name)

    nbytes = call.recvbuf.nbytes
    return state.decisions.choose(situation, nbytes, allowed) or built_in(situation, nbytes, allowed)
