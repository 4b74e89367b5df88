"""What each MPI library lets one force, and how its rules are written.

``python -m mpi_allreduce.tuning.vendors openmpi|mpich|impi`` prints the launches of a sweep, one a line: a label, then
VARIABLE=VALUE words.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OWN", "VENDORS", "Clause", "Forcing", "Vendor", "forced_by", "read_base"]

OWN = "own"  # the library's own choice, under the variables that its rules need
END = 2**31 - 1  # the largest size that Intel MPI accepts


@dataclass(frozen=True)
class Forcing:
    """An algorithm that the library was made to use.

    Attributes
    ----------
    name : str
    parameters : tuple of (str, str)
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return ":".join((self.name, *(f"{key}={value}" for key, value in self.parameters)))

    @classmethod
    def parse(cls, text: str) -> "Forcing":
        """The inverse of ``str``."""
        name, *parameters = text.split(":")
        return cls(name, tuple(tuple(p.split("=")) for p in parameters))


@dataclass(frozen=True)
class Clause:
    """What is used for messages of ``first`` to ``last`` bytes, both included; ``last`` is None for all above."""

    first: int
    last: int | None
    forcing: Forcing


@dataclass(frozen=True)
class Vendor:
    """One MPI library.

    Attributes
    ----------
    libraries : tuple of str
        How the names of :func:`mpi_allreduce.library.library_name` begin.
    variable : str
        Forces an algorithm.
    values : dict of str to str
        Name of an algorithm to the variable's value.
    parameters : dict of str to dict of str to (str, str)
        Name of an algorithm to its parameters, each with variable and default.
    always : dict of str to str
        Variables without which the library does not look at forced algorithms or rules.
    rules : str
        The variable that names the rules, or holds them.
    sweep : tuple of str
        What is worth trying, as :class:`Forcing` writes it.
    keeps : bool
        Whether a rule can say "as without rules".
    write : callable
        (clauses, ranks, base) -> text.
    inline : bool
        Whether the rules are the variable's value, and not a file.
    """

    libraries: tuple[str, ...]
    variable: str
    values: Mapping[str, str]
    parameters: Mapping[str, Mapping[str, tuple[str, str]]]
    always: Mapping[str, str]
    rules: str
    sweep: tuple[str, ...]
    keeps: bool
    write: Callable[[Sequence[Clause], int, str], str]
    inline: bool = False

    def forcing(self, variables: Mapping[str, str]) -> Forcing | None:
        """What a launch with these variables was made to use; None if nothing.

        Raises
        ------
        ValueError
            If it is an algorithm that is not known here, or the launch ran under rules.
        """
        value = variables.get(self.variable)
        if self.rules in variables and (self.rules != self.variable or not value.isdigit()):
            raise ValueError(f"{self.rules}={variables[self.rules]}: it ran under rules")
        if value is None:
            return None
        name = next((name for name, known in self.values.items() if known == value), None)
        if name is None:
            raise ValueError(f"{self.variable}={value}: expected one of {', '.join(self.values.values())}")
        own = self.parameters.get(name, {})
        given = [(key, variables.get(variable, default)) for key, (variable, default) in own.items()]
        return Forcing(name, tuple((key, v) for key, v in given if v != own[key][1]))

    def settings(self, forcing: Forcing) -> dict[str, str]:
        """The variables that make the library use it."""
        own = {key: default for key, (_, default) in self.parameters.get(forcing.name, {}).items()}
        values = {self.parameters[forcing.name][key][0]: v for key, v in (own | dict(forcing.parameters)).items()}
        return {**self.always, self.variable: self.values[forcing.name], **values}

    def environment(self, text: str, path: Path | None) -> dict[str, str]:
        """The variables with which a program uses the rules ``text``, written to ``path``."""
        return {**self.always, self.rules: text.strip() if self.inline else str(path.resolve())}

    def parameter(self, forcing: Forcing, key: str) -> str:
        """One parameter's value."""
        return dict(forcing.parameters).get(key, self.parameters.get(forcing.name, {}).get(key, ("", "0"))[1])


def _openmpi(clauses: Sequence[Clause], ranks: int, base: str) -> str:
    """The classic rule file of coll_tuned: a rule holds from its size to that of the next."""
    vendor = VENDORS["openmpi"]
    sizes = {2: (), ranks: clauses, ranks + 1: ()}  # a size's rules hold for all communicators up to the next
    lines = ["# MPI_Allreduce, by mpi_allreduce tune --export openmpi", "1 # collectives", "2 # MPI_Allreduce"]
    lines.append(f"{len(sizes)} # sizes of communicators")
    for size, rules in sizes.items():
        rules = rules or (Clause(0, None, Forcing(OWN)),)
        lines += [f"{size} # ranks", f"{len(rules)} # rules: bytes algorithm faninout segment"]
        for clause in rules:
            segment = vendor.parameter(clause.forcing, "segsize")
            lines.append(f"{clause.first} {vendor.values[clause.forcing.name]} 0 {segment} # {clause.forcing}")
    return "\n".join(lines) + "\n"


def _mpich(clauses: Sequence[Clause], ranks: int, base: str) -> str:
    """The library's own selection, changed for MPI_Allreduce on communicators of this size only."""
    vendor, tree = VENDORS["mpich"], json.loads(base)
    before = tree["collective=allreduce"]["comm_type=intra"]
    choice = {}
    for clause in clauses:
        leaf = before
        if clause.forcing.name != OWN:
            own = vendor.parameters.get(clause.forcing.name, {})
            parameters = {f"{key}={vendor.parameter(clause.forcing, key)}": {} for key in own}
            leaf = {f"algorithm=MPIR_Allreduce_intra_{vendor.values[clause.forcing.name]}": parameters}
        if clause.forcing.name == "smp":  # it splits a communicator into its nodes, and then again asks these rules
            leaf = {"comm_hierarchy=parent": leaf, "comm_hierarchy=any": before}
        choice["avg_msg_size=any" if clause.last is None else f"avg_msg_size<={clause.last}"] = leaf
    # Rules are obeyed unchecked: Rabenseifner's algorithm would end a program that has an operator of its own.
    built_in = {"is_op_built_in=yes": {"count<pow2": before, "count=any": choice}, "is_op_built_in=no": before}
    safe = {"is_commutative=yes": built_in, "is_commutative=no": before}
    sizes = {f"comm_size<={ranks - 1}": before, f"comm_size<={ranks}": safe, "comm_size=any": before}
    tree["collective=allreduce"]["comm_type=intra"] = sizes
    return json.dumps(tree, indent=1) + "\n"


def _impi(clauses: Sequence[Clause], ranks: int, base: str) -> str:
    """Contiguous clauses, as one for some sizes only leaks to others."""
    values = VENDORS["impi"].values
    return ";".join(f"{values[c.forcing.name]}:{c.first}-{END if c.last is None else c.last}" for c in clauses) + "\n"


_RADIX = "MPIR_CVAR_ALLREDUCE_RECEXCH_KVAL"
_SINGLE = ("MPIR_CVAR_ALLREDUCE_RECEXCH_SINGLE_PHASE_RECV", "0")
VENDORS = {
    "openmpi": Vendor(
        libraries=("Open MPI",),
        variable="OMPI_MCA_coll_tuned_allreduce_algorithm",
        values={
            OWN: "0", "basic_linear": "1", "nonoverlapping": "2", "recursive_doubling": "3", "ring": "4",
            "segmented_ring": "5", "rabenseifner": "6",
        },
        parameters={"segmented_ring": {"segsize": ("OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize", "0")}},
        always={"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_han_priority": "0"},
        rules="OMPI_MCA_coll_tuned_dynamic_rules_filename",
        sweep=(
            OWN, "basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring:segsize=65536",
            "segmented_ring:segsize=1048576", "rabenseifner",
        ),
        keeps=True,
        write=_openmpi,
    ),
    "mpich": Vendor(
        libraries=("MPICH", "Cray MPICH"),
        variable="MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM",
        values={OWN: "auto"} | {name: name for name in (
            "smp", "recursive_doubling", "recursive_multiplying", "reduce_scatter_allgather", "tree", "recexch", "ring",
            "k_reduce_scatter_allgather",
        )},
        parameters={
            "recursive_multiplying": {"k": ("MPIR_CVAR_ALLREDUCE_RECURSIVE_MULTIPLYING_KVAL", "2")},
            "tree": {
                "tree_type": ("MPIR_CVAR_ALLREDUCE_TREE_TYPE", "kary"),
                "k": ("MPIR_CVAR_ALLREDUCE_TREE_KVAL", "2"),
                "chunk_size": ("MPIR_CVAR_ALLREDUCE_TREE_PIPELINE_CHUNK_SIZE", "0"),
                "buffer_per_child": ("MPIR_CVAR_ALLREDUCE_TREE_BUFFER_PER_CHILD", "0"),
            },
            "recexch": {"k": (_RADIX, "2"), "single_phase_recv": _SINGLE},
            "k_reduce_scatter_allgather": {"k": (_RADIX, "2"), "single_phase_recv": _SINGLE},
        },
        # The device's compositions of this collective come first otherwise; those of other collectives stay.
        always={"MPIR_CVAR_DEVICE_COLLECTIVES": "percoll", "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0"},
        rules="MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
        sweep=(
            OWN, "smp", "recursive_doubling", "recursive_multiplying:k=4", "reduce_scatter_allgather", "tree",
            "tree:tree_type=knomial_1:k=4", "tree:chunk_size=65536", "recexch:k=4", "ring",
            "k_reduce_scatter_allgather:k=4",
        ),
        keeps=True,
        write=_mpich,
    ),
    "impi": Vendor(
        libraries=("Intel MPI",),
        variable="I_MPI_ADJUST_ALLREDUCE",
        values={
            OWN: "0", "recursive_doubling": "1", "rabenseifner": "2", "reduce_bcast": "3", "reduce_bcast_topology": "4",
            "binomial_gather_scatter": "5", "binomial_gather_scatter_topology": "6", "shumilin_ring": "7", "ring": "8",
            "knomial": "9", "shm_flat": "10", "shm_knomial": "11", "shm_knary": "12",
        },
        parameters={},
        always={},
        rules="I_MPI_ADJUST_ALLREDUCE",
        sweep=(
            OWN, "recursive_doubling", "rabenseifner", "reduce_bcast", "binomial_gather_scatter", "shumilin_ring",
            "ring", "knomial", "shm_flat", "shm_knomial", "shm_knary",
        ),
        keeps=False,  # 0 is a choice of its own, but without the tables that the library ships: not the default
        write=_impi,
        inline=True,
    ),
}  # fmt: skip


def forced_by(variables: Mapping[str, str]) -> str:
    """The variable that forced an algorithm in a launch with these; empty if none did.  Rules force nothing."""
    for vendor in VENDORS.values():
        value = variables.get(vendor.variable, "")
        if value and (vendor.variable != vendor.rules or value.isdigit()):
            return f"{vendor.variable}={value}"
    return ""


def read_base(path: Path) -> str:
    """MPICH's whole generic selection, from a JSON file or from inside the library itself.

    Raises
    ------
    OSError, ValueError
        If it is not there.
    """
    for match in re.finditer(rb"\{[\t\n\r -~]{200,}", path.read_bytes()):
        try:
            found, end = json.JSONDecoder().raw_decode(text := match.group().decode())
        except ValueError:
            continue
        # The library holds selections for its devices too; those choose compositions of algorithms.
        if "algorithm=MPIR_Allreduce_intra" in json.dumps(found.get("collective=allreduce")):
            if found.keys() == {"collective=allreduce"}:
                raise ValueError(f"{path}: has rules for MPI_Allreduce alone, with which MPICH ends programs; give its "
                                 "generic JSON file, or libmpi.so, by --base")  # fmt: skip
            return text[:end]
    raise ValueError(f"{path}: no selection of algorithms for MPI_Allreduce in it; give MPICH's generic JSON file, or "
                     "libmpi.so, by --base")  # fmt: skip


def main(name: str) -> None:
    """Print the sweep of one library."""
    vendor = VENDORS[name]
    for text in vendor.sweep:
        settings = vendor.settings(Forcing.parse(text))
        print(text, *(f"{key}={value}" for key, value in settings.items()))


if __name__ == "__main__":
    main(sys.argv[1])
