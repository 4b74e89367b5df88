"""The sub-command ``simulate``."""

import argparse
from pathlib import Path
from time import perf_counter

from ..algorithms import fitted, get, names
from ..errors import UsageError
from ..screen import console
from ..units import format_bytes, parse_sizes
from .claims import Run, fastest, textbook
from .clock import Simulated, simulate
from .goal import goal
from .machine import Machine
from .topology import TOPOLOGIES, topology

__all__ = ["add_simulate"]

COMMON = "ring,binomial_tree,recursive_doubling,rabenseifner,circulant,double_binary_tree"


def add_simulate(commands) -> None:
    """Add ``simulate`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "simulate",
        help="how long would the algorithms take on thousands of ranks? (no MPI)",
        description="Run schedules with clocks on a network whose links are shared: time, the busiest link, bytes by "
        "level, the busiest rank. Small messages are where a model is least reliable.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = parser.add_argument
    option("--algorithms", default=COMMON, metavar="LIST", help="comma-separated: all, " + ", ".join(names()))
    option("--ranks", default="2:1024:2", metavar="RANKS", help="FIRST:LAST[:FACTOR] (times 2) or a list")
    option("--sizes", default="4K,1M,64M", metavar="SIZES", help="bytes of the buffer: FIRST:LAST[:FACTOR] or a list")
    option("--topology", default="flat", metavar="NAME", help=f"{', '.join(TOPOLOGIES)}; numbers as in fat-tree:32,2")
    option("--ranks-per-node", default=1, type=int, metavar="N", help="neighbouring ranks share a node")
    option("--machine", type=Path, metavar="FILE.json", help="costs, as fit writes them; else typical of 100 Gbit/s")
    option("--goal", type=Path, metavar="FILE", help="write the first algorithm at the first size and ranks as GOAL")
    parser.set_defaults(run=_simulate)


def _simulate(args: argparse.Namespace) -> int:
    try:
        chosen = names() if args.algorithms == "all" else [name.strip() for name in args.algorithms.split(",")]
        for name in chosen:
            get(name)
        ranks, sizes = _ranks(args.ranks), parse_sizes(args.sizes)
        machine = Machine() if args.machine is None else Machine.load(args.machine)
        if args.ranks_per_node < 1:
            raise ValueError(f"ranks-per-node: expected 1 or more, got {args.ranks_per_node}")
        topology(args.topology, 2)
    except ValueError as error:
        raise UsageError(error) from None
    if args.goal is not None:
        lines = goal(fitted(chosen[0], ranks[0], sizes[0]), ranks[0], sizes[0], machine.gamma)
        args.goal.write_text("\n".join(lines) + "\n")
        print(f"{args.goal}: {chosen[0]} of {format_bytes(sizes[0])} on {ranks[0]} ranks")
        return 0
    tables = _Tables(args, machine, chosen, ranks)
    for nbytes in sizes:
        tables.size(nbytes)
    tables.crossings()
    tables.claims()
    return 0


def _ranks(text: str) -> tuple[int, ...]:
    """As sizes, but doubling."""
    parts = [part + ":2" if part.count(":") == 1 else part for part in text.split(",")]
    try:
        return parse_sizes(",".join(parts))
    except ValueError as error:
        raise ValueError(f"ranks: {error}") from None


class _Tables:
    """For each size: times, then what the largest number of ranks loads."""

    def __init__(self, args: argparse.Namespace, machine: Machine, chosen: list[str], ranks: tuple[int, ...]):
        self.args, self.machine, self.chosen, self.ranks = args, machine, chosen, ranks
        self.found: dict[Run, Simulated] = {}
        self.screen = console(40 + 11 * len(ranks))
        added = f"{1e-9 / machine.gamma:.3g} GB/s reduced" if machine.gamma else "reductions for nothing"
        self.say(
            f"{machine.name}: alpha {machine.alpha * 1e6:.3g} us, {8e-9 / machine.beta:.4g} Gbit/s a node, {added}; "
            f"{args.topology}, {args.ranks_per_node} ranks per node"
        )

    def say(self, text: str) -> None:
        self.screen.print(text, soft_wrap=True, highlight=False, markup=False)

    def size(self, nbytes: int) -> None:
        """All algorithms on all numbers of ranks; the fastest is marked."""
        started = perf_counter()
        found = {(name, p): self._one(name, p, nbytes) for p in self.ranks for name in self.chosen}
        self.found |= {(*case, nbytes): result for case, result in found.items()}
        best = {p: min(found[name, p].seconds for name in self.chosen) for p in self.ranks}
        self.say(f"\n{format_bytes(nbytes)}, milliseconds (* the fastest)\n{'ranks':24}" + _cells(map(str, self.ranks)))
        for name in self.chosen:
            times = ((found[name, p].seconds, best[p]) for p in self.ranks)
            self.say(f"{name:24}" + _cells(f"{s * 1e3:.4g}{'*' if s == least else ' '}" for s, least in times))
        self._loads({name: found[name, self.ranks[-1]] for name in self.chosen}, nbytes)
        self.say(f"({perf_counter() - started:.1f} s of simulation)")

    def crossings(self) -> None:
        """Which algorithm is the fastest from which size on."""
        sizes = sorted({size for *_, size in self.found})
        if len(sizes) < 2 or len(self.chosen) < 2:
            return
        self.say(f"\nFastest by size, {format_bytes(sizes[0])} to {format_bytes(sizes[-1])} (straight lines between)")
        for p in self.ranks:
            first, *others = fastest(self.found, self.chosen, p, sizes)
            self.say(f"{p:6d} ranks: {first[0]}" + "".join(f", from {_about(n)} {name}" for name, n in others))

    def claims(self) -> None:
        """Tree against ring, and who carries the load."""
        sizes = sorted({size for *_, size in self.found})
        claims = textbook(self.found, self.chosen, self.ranks, sizes)
        if not claims:
            return
        small, large = format_bytes(sizes[0]), format_bytes(sizes[-1])
        self.say(
            f"\nThe textbook's claims: trees for small buffers, rings for large; the root is a tree's bottleneck\n"
            f"{'ranks':>6} {'ring faster from':>17} {f'ring/tree {small}':>18} {f'ring/tree {large}':>18} "
            f"{f'ring grows {large}':>18}   buffers sent by rank 0"
        )
        for claim in claims:
            start = (
                "never here" if claim.crossing is None else _about(claim.crossing) if claim.crossing else "always here"
            )
            roots = ", ".join(f"{name} {buffers:.4g}" for name, buffers in claim.root.items())
            self.say(
                f"{claim.ranks:6d} {start:>17} {claim.small:18.3g} {claim.large:18.3g} {claim.growth:17.3g}x   {roots}"
            )

    def _one(self, name: str, ranks: int, nbytes: int) -> Simulated:
        nodes = -(-ranks // self.args.ranks_per_node)
        network = topology(self.args.topology, nodes)
        return simulate(fitted(name, ranks, nbytes), ranks, nbytes, self.machine, network, self.args.ranks_per_node)

    def _loads(self, found: dict[str, Simulated], nbytes: int) -> None:
        levels = list(next(iter(found.values())).level_bytes)
        self.say(f"\nOn {self.ranks[-1]} ranks, in buffers of {format_bytes(nbytes)}:")
        heads = ["messages", "busiest link", "busiest rank", "mean rank", *levels]
        self.say(f"{'':24}" + "".join(f"{head:>20}" for head in heads))
        for name, result in found.items():
            sent = result.sent_bytes / nbytes
            values = [result.busiest / nbytes, sent.max(), sent.mean()]
            values += [result.level_bytes[level] / nbytes for level in levels]
            self.say(f"{name:24}{result.messages:20d}" + "".join(f"{value:20.4g}" for value in values))


def _about(nbytes: float) -> str:
    """Three digits are more than a model knows."""
    unit = 1 << 10 if nbytes < 1 << 20 else 1 << 20
    return f"{nbytes / unit:.3g} {'KiB' if unit == 1 << 10 else 'MiB'}"


def _cells(texts) -> str:
    return "".join(f"{text:>11}" for text in texts)
