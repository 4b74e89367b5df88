"""Decision tables: what was measured to be fastest, by situation and size, as a JSON file."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from math import log2
from pathlib import Path
from statistics import median

__all__ = ["TIE", "Choice", "DecisionTable", "Entry", "Rule", "Situation", "default_path", "read_table", "write_table"]

FORMAT, VERSION = "mpi_allreduce.decisions", 1
VARIABLE = "MPI_ALLREDUCE_TABLE"
TIE = 0.02  # candidates within this of the fastest are as good as it
BEYOND = 16  # times the largest measured size, up to which its rule is taken
BELOW = 4  # times smaller than the smallest


@dataclass(frozen=True)
class Situation:
    """What, beside the size, decides which algorithm is fastest.

    Attributes
    ----------
    library : str
        The MPI library and its version.
    ranks, nodes : int
    crowded : bool
        Whether some node has fewer cores than ranks.
    native : bool
        Whether the library has an operator of its own for the type; otherwise MPI_Allreduce calls back ours.
    """

    library: str
    ranks: int
    nodes: int
    crowded: bool
    native: bool

    def distance(self, other: "Situation") -> float | None:
        """How far measurements in ``other`` are from being about this one; None if they say nothing about it."""
        if replace(self, ranks=0, nodes=0) != replace(other, ranks=0, nodes=0) or (self.nodes > 1) != (other.nodes > 1):
            return None
        ranks, per_node = (abs(log2(a / b)) for a, b in zip(self._shape, other._shape, strict=True))
        return ranks + per_node if max(ranks, per_node) <= 1 else None

    @property
    def _shape(self) -> tuple[float, float]:
        return self.ranks, self.ranks / self.nodes

    def __str__(self) -> str:
        more = (", fewer cores than ranks" if self.crowded else "") + ("" if self.native else ", no operator of MPI's")
        return f"{self.ranks} ranks on {self.nodes} node{'s' * (self.nodes > 1)}{more}, {self.library}"


Timing = tuple[float, float, float]
"""Median, and low and high end of its 95 % interval, in seconds."""


@dataclass(frozen=True)
class Rule:
    """What was measured at one size.

    Attributes
    ----------
    bytes : int
    launches : dict of str to dict of str to Timing
        By an identification of the launch: algorithm -> timing.
    algorithm : str
        The choice: the fastest, or one that is as good and chosen at the next smaller size.
    """

    bytes: int
    launches: dict[str, dict[str, Timing]]
    algorithm: str = ""

    def ranking(self) -> list[tuple[str, float]]:
        """Algorithms that every launch measured, and their time relative to the fastest: the median over launches.

        Times are compared within launches, as the machine is another from launch to launch.  Where no algorithm is in
        all of them, the launch that measured most counts alone.
        """
        launches = list(self.launches.values())
        common = set.intersection(*map(set, launches))
        if not common:
            launches = [max(launches, key=len)]
            common = set(launches[0])
        relative = {
            name: median(timings[name][0] / min(timings[c][0] for c in common) for timings in launches)
            for name in common
        }
        best = min(relative.values())
        return sorted(((name, value / best) for name, value in relative.items()), key=lambda item: (item[1], item[0]))

    def is_sure(self) -> bool:
        """Whether the choice's interval is below that of every rival in every launch (or rivals are as good)."""
        rivals = [name for name, relative in self.ranking() if name != self.algorithm and relative > 1 + TIE]
        return all(
            timings[self.algorithm][2] < timings[rival][1]
            for timings in self.launches.values()
            for rival in rivals
            if {self.algorithm, rival} <= set(timings)
        )

    def chosen(self, previous: str) -> "Rule":
        """The rule with its choice; ``previous`` is that of the next smaller size."""
        as_good = [name for name, relative in self.ranking() if relative <= 1 + TIE]
        kept = next((name for name in (self.algorithm, previous) if name in as_good), as_good[0])
        return replace(self, algorithm=kept)


@dataclass(frozen=True)
class Entry:
    """All that was measured in one situation, sizes ascending."""

    situation: Situation
    rules: tuple[Rule, ...]

    def rule(self, nbytes: int) -> Rule | None:
        """The rule of the nearest size; None if that is too far."""
        if not self.rules or not self.rules[0].bytes / BELOW <= max(nbytes, 1) <= self.rules[-1].bytes * BEYOND:
            return None
        return min(self.rules, key=lambda rule: abs(log2(max(nbytes, 1) / rule.bytes)))


@dataclass(frozen=True)
class Choice:
    """The answer to "which algorithm?".

    Attributes
    ----------
    algorithm : str
    reason : str
    situation : Situation
    bytes : int
    """

    algorithm: str
    reason: str
    situation: Situation
    bytes: int

    def __str__(self) -> str:
        return f"{self.algorithm} for {self.bytes} bytes on {self.situation}: {self.reason}"


@dataclass(frozen=True)
class DecisionTable:
    """Entries, and where they were read from."""

    entries: tuple[Entry, ...] = ()
    path: str = ""

    def choose(self, situation: Situation, nbytes: int, allowed: Callable[[str], bool]) -> Choice | None:
        """The fastest of what is ``allowed``, from the nearest situation that was measured; None without such."""
        near = [(d, i) for i, e in enumerate(self.entries) if (d := situation.distance(e.situation)) is not None]
        if not near:
            return None
        entry = self.entries[min(near)[1]]
        rule = entry.rule(nbytes)
        ranking = [item for item in rule.ranking() if allowed(item[0])] if rule else []
        if not ranking:
            return None
        name = rule.algorithm if allowed(rule.algorithm) else ranking[0][0]
        return Choice(name, self._reason(entry, rule, name, ranking), situation, nbytes)

    def _reason(self, entry: Entry, rule: Rule, name: str, ranking: list[tuple[str, float]]) -> str:
        own = dict(ranking)[name]
        rivals = [f"{rival} {relative / own:.2f} x its time" for rival, relative in ranking if rival != name][:2]
        launches = f"{len(rule.launches)} launch{'es' * (len(rule.launches) > 1)}"
        sure = "sure" if rule.is_sure() else "not sure"
        return (
            f"measured at {rule.bytes} bytes on {entry.situation} in {launches} ({sure}; "
            f"{', '.join(rivals) or 'no rival'}), {self.path}"
        )

    def merged(self, rules: Iterable[tuple[Situation, Rule]]) -> "DecisionTable":
        """With more measurements: those of launches that are known already are replaced; choices are made anew."""
        by_situation = {e.situation: {rule.bytes: rule for rule in e.rules} for e in self.entries}
        for situation, rule in rules:
            known = by_situation.setdefault(situation, {})
            old = known.get(rule.bytes, Rule(rule.bytes, {}))
            known[rule.bytes] = replace(old, launches=_merge(old.launches, rule.launches))
        entries = []
        for situation in sorted(by_situation, key=lambda s: (s.library, s.nodes, s.ranks, s.crowded, s.native)):
            chosen: list[Rule] = []
            for _, rule in sorted(by_situation[situation].items()):
                chosen.append(rule.chosen(chosen[-1].algorithm if chosen else ""))
            entries.append(Entry(situation, tuple(chosen)))
        return replace(self, entries=tuple(entries))

    def to_json(self) -> str:
        """Text that :meth:`from_json` reads."""
        return json.dumps(
            {"format": FORMAT, "version": VERSION, "entries": [asdict(e) for e in self.entries]}, indent=1
        )

    @classmethod
    def from_json(cls, text: str, path: str) -> "DecisionTable":
        """The table in ``text``, which was read from ``path``.

        Raises
        ------
        ValueError
            If it is none, or a newer version's.
        """
        try:
            data = json.loads(text)
            if data["format"] != FORMAT or data["version"] > VERSION:
                raise ValueError(f"format {data['format']!r} version {data['version']}")
            entries = tuple(
                Entry(Situation(**e["situation"]), tuple(Rule(**_with_tuples(rule)) for rule in e["rules"]))
                for e in data["entries"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: not a decision table of version {VERSION} ({error}); make one with mpi_allreduce tune"
            ) from None
        return cls(entries, path)


def _with_tuples(rule: dict) -> dict:
    """JSON knows lists only."""
    launches = {k: {name: tuple(t) for name, t in timings.items()} for k, timings in rule["launches"].items()}
    return {**rule, "launches": launches}


def _merge(old: dict[str, dict[str, Timing]], new: dict[str, dict[str, Timing]]) -> dict[str, dict[str, Timing]]:
    return old | {launch: old.get(launch, {}) | timings for launch, timings in new.items()}


def default_path() -> Path:
    """Where the table is: the variable MPI_ALLREDUCE_TABLE, else ``~/.config/mpi_allreduce/table.json``."""
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE])
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "mpi_allreduce" / "table.json"


def read_table(path: Path | None = None) -> DecisionTable:
    """The table at ``path``, by default :func:`default_path`; an empty one if there is no such file.

    Raises
    ------
    ValueError
        If the file is no table, or the variable MPI_ALLREDUCE_TABLE names none.
    """
    path = default_path() if path is None else path
    if not path.exists():
        if os.environ.get(VARIABLE) == str(path) != "":
            raise ValueError(f"{VARIABLE}: there is no file {path}; make one with mpi_allreduce tune")
        return DecisionTable()
    return DecisionTable.from_json(path.read_text(), str(path))


def write_table(table: DecisionTable, path: Path) -> None:
    """Put the table in the place of an older one, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft-{os.getpid()}")
    draft.write_text(table.to_json())
    os.replace(draft, path)
