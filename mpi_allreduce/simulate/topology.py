"""Networks as links that messages share: which links a message takes, and how fast each of them is.  Pure NumPy.

Every node has one link up and one link down, of capacity 1: the unit of all capacities.  What lies between differs.
"""

from abc import ABC, abstractmethod

import numpy as np

__all__ = ["TOPOLOGIES", "Dragonfly", "FatTree", "Flat", "Topology", "Torus", "topology"]

NONE = -1  # a route is padded with it


class Topology(ABC):
    """A network of ``nodes`` nodes.

    Attributes
    ----------
    capacity : ndarray, shape (links,)
        In units of a node's link.
    level : ndarray of int, shape (links,)
        To which of ``levels`` each link belongs.
    levels : tuple of str
    """

    levels: tuple[str, ...]
    capacity: np.ndarray
    level: np.ndarray

    def __init__(self, nodes: int):
        self.nodes = nodes

    @abstractmethod
    def routes(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The links from each source to each target (different nodes), shape (messages, hops), padded with -1."""


class Flat(Topology):
    """One switch that is never the bottleneck."""

    levels = ("node links",)

    def __init__(self, nodes: int):
        super().__init__(nodes)
        self.capacity = np.ones(2 * nodes)
        self.level = np.zeros(2 * nodes, int)

    def routes(self, source, target):
        return np.stack([source, self.nodes + target], axis=1)


class FatTree(Topology):
    """Leaf switches of ``radix`` nodes below a core that is never the bottleneck.

    A leaf's links to the core count as one, of capacity radix / ``taper``: traffic is spread over them evenly.
    """

    levels = ("node links", "leaf to core")

    def __init__(self, nodes: int, radix: int = 32, taper: float = 2.0):
        super().__init__(nodes)
        self.radix = radix
        leaves = -(-nodes // radix)
        self._leaves = leaves
        self.capacity = np.concatenate([np.ones(2 * nodes), np.full(2 * leaves, max(radix / taper, 1.0))])
        self.level = np.repeat([0, 1], [2 * nodes, 2 * leaves])

    def routes(self, source, target):
        first, last = source // self.radix, target // self.radix
        leaves = 2 * self.nodes
        across = first != last
        up = np.where(across, leaves + first, NONE)
        down = np.where(across, leaves + self._leaves + last, NONE)
        return np.stack([source, up, down, self.nodes + target], axis=1)


class Dragonfly(Topology):
    """Groups of ``routers`` routers, each with ``radix`` nodes.

    All routers of a group are linked with each other, by links ``bundle`` times as fast as a node's; and all groups,
    each pair by one link, ``routers`` times as fast as those.  Routes are the shortest.
    """

    levels = ("node links", "inside a group", "between groups")

    def __init__(self, nodes: int, radix: int = 8, routers: int = 8, bundle: float = 4.0):
        super().__init__(nodes)
        self.radix, self.routers = radix, routers
        self._groups = -(-nodes // (radix * routers))
        local, between = self._groups * routers * routers, self._groups * self._groups
        self._local, self._between = 2 * nodes, 2 * nodes + local
        self.capacity = np.concatenate([np.ones(2 * nodes), np.full(local, bundle), np.full(between, bundle * routers)])
        self.level = np.repeat([0, 1, 2], [2 * nodes, local, between])

    def routes(self, source, target):
        router = source // self.radix, target // self.radix
        group = router[0] // self.routers, router[1] // self.routers
        same = group[0] == group[1]
        # The router of a group that holds the link to another group is the other's number, modulo.
        leave = np.where(same, router[1] % self.routers, group[1] % self.routers)
        enter = np.where(same, router[1] % self.routers, group[0] % self.routers)
        out = self._link(group[0], router[0] % self.routers, leave)
        across = np.where(same, NONE, self._between + group[0] * self._groups + group[1])
        into = np.where(same, NONE, self._link(group[1], enter, router[1] % self.routers))
        return np.stack([source, out, across, into, self.nodes + target], axis=1)

    def _link(self, group, first, last):
        number = self._local + (group * self.routers + first) * self.routers + last
        return np.where(first == last, NONE, number)


class Torus(Topology):
    """A grid of as equal ``dimensions`` sides as possible, with links between neighbours, around the ends.

    Routes go along one dimension after the other, the shorter way round.
    """

    levels = ("node links", "between neighbours")

    def __init__(self, nodes: int, dimensions: int = 3):
        super().__init__(nodes)
        self.shape = _sides(nodes, dimensions)
        places = int(np.prod(self.shape))
        self._steps = [max(side // 2, 0) for side in self.shape]
        neighbours = 2 * len(self.shape) * places
        self.capacity = np.ones(2 * nodes + neighbours)
        self.level = np.repeat([0, 1], [2 * nodes, neighbours])
        self._places = places

    def routes(self, source, target):
        at = list(np.unravel_index(source, self.shape))
        to = np.unravel_index(target, self.shape)
        links = [source]
        for axis, side in enumerate(self.shape):
            ahead = (to[axis] - at[axis]) % side
            forwards = ahead <= side - ahead
            left = np.where(forwards, ahead, side - ahead)
            for step in range(self._steps[axis]):
                moving = left > step
                place = np.ravel_multi_index(at, self.shape)
                number = 2 * self.nodes + (2 * axis + (~forwards)) * self._places + place
                links.append(np.where(moving, number, NONE))
                at[axis] = np.where(moving, (at[axis] + np.where(forwards, 1, -1)) % side, at[axis])
        links.append(self.nodes + target)
        return np.stack(links, axis=1)


def _sides(nodes: int, dimensions: int) -> tuple[int, ...]:
    """Sides whose product is at least ``nodes``."""
    sides, left = [], nodes
    for i in range(dimensions, 0, -1):
        side = max(round(left ** (1 / i)), 1)
        sides.append(side)
        left = -(-left // side)
    return tuple(sides)


TOPOLOGIES = {"flat": Flat, "fat-tree": FatTree, "dragonfly": Dragonfly, "torus": Torus}


def topology(name: str, nodes: int) -> Topology:
    """One of :data:`TOPOLOGIES`, with its numbers: ``fat-tree:16,1`` (radix, taper), ``dragonfly:8,8,4``, ``torus:2``.

    Raises
    ------
    ValueError
    """
    base, _, text = name.partition(":")
    try:
        numbers = [float(part) if "." in part else int(part) for part in text.split(",")] if text else []
        if min(numbers, default=1) <= 0:
            raise ValueError
        return TOPOLOGIES[base](nodes, *numbers)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "topology: expected flat, fat-tree:RADIX,TAPER, dragonfly:NODES,ROUTERS,BUNDLE or torus:DIMENSIONS, got "
            f"{name!r}"
        ) from None
