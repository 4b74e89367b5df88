"""Simulated times are what a hand calculation gives, and links are shared as the network says."""

import numpy as np
import pytest

from mpi_allreduce.algorithms import get, names
from mpi_allreduce.simulate import Machine, simulate, topology

PLAIN = Machine(alpha=1.0, beta=1e-3, gamma=1e-4, eager_bytes=0)
N = 6 * 7 * 8 * 5 * 100  # bytes that all numbers of ranks up to 8 divide


def seconds(name, size, nbytes=N, machine=PLAIN, network="flat", per_node=1):
    nodes = -(-size // per_node)
    return simulate(get(name), size, nbytes, machine, topology(network, nodes), per_node).seconds


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_rings_and_trees_take_what_their_formulas_say(size):
    part, steps = N / size, 2 * (size - 1)
    expected = steps * (1 + part * 1e-3) + (size - 1) * part * 1e-4
    assert seconds("ring", size) == pytest.approx(expected)
    assert seconds("pairwise", size) == pytest.approx(expected)
    depth = (size - 1).bit_length()
    assert seconds("binomial_tree", size) == pytest.approx(2 * depth * (1 + N * 1e-3) + depth * N * 1e-4)
    # The naive root receives from one after the other.
    assert seconds("linear", size) == pytest.approx((size - 1) * (2 * (1 + N * 1e-3) + N * 1e-4))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_every_schedule_comes_to_its_end_with_the_bytes_of_its_cost(name, size):
    algorithm = get(name)
    found = simulate(algorithm, size, N, PLAIN, topology("flat", size))
    sent = sum(
        sum(len(e.sent) for round_ in algorithm.schedule(rank, size) for e in round_ if e.dst is not None)
        for rank in range(size)
    )
    assert found.sent_bytes.sum() == pytest.approx(sent * N / algorithm.blocks(size), rel=1e-3)
    assert found.level_bytes["node links"] == pytest.approx(2 * found.sent_bytes.sum())
    assert (found.seconds > 0) == (size > 1)


def test_messages_that_share_a_link_wait_for_each_other():
    """Recursive doubling over a tapered tree: in the last round all of a leaf's ranks cross its link to the core."""
    free, shared = (seconds("recursive_doubling", 16, network=f"fat-tree:8,{taper}") for taper in (1, 4))
    assert seconds("recursive_doubling", 16) == pytest.approx(free)
    assert shared - free == pytest.approx(N * 1e-3 * 3)  # in one round of four, four times as long
    # A ring crosses each leaf's link once in each direction, whatever the taper.
    assert seconds("ring", 16, network="fat-tree:8,8") == pytest.approx(seconds("ring", 16))


def test_ranks_of_one_node_do_not_use_links():
    machine = Machine(alpha=1, beta=1e-3, gamma=0, local_alpha=0.5, local_beta=1e-6, eager_bytes=0)
    found = simulate(get("recursive_doubling"), 8, N, machine, topology("flat", 2), 4)
    assert found.seconds == pytest.approx(2 * (0.5 + N * 1e-6) + 1 + 4 * N * 1e-3)  # four ranks share a node's link
    assert found.level_bytes == {"inside nodes": 8 * 2 * N, "node links": 2 * 8 * N}
    assert found.busiest == 4 * N


@pytest.mark.parametrize("network", ["flat", "fat-tree:4,2", "dragonfly:2,3,4", "torus:2", "torus:3"])
def test_routes_begin_and_end_at_the_nodes_and_are_no_longer_than_they_must_be(network):
    nodes = 23
    made = topology(network, nodes)
    source, target = (grid.ravel() for grid in np.meshgrid(np.arange(nodes), np.arange(nodes)))
    different = source != target
    source, target = source[different], target[different]
    routes = made.routes(source, target)
    assert (routes[:, 0] == source).all()
    assert (routes[:, -1] == nodes + target).all()
    assert routes.max() < len(made.capacity) == len(made.level)
    assert made.level.max() + 1 == len(made.levels)
    used = (routes >= 0).sum(axis=1)
    longest = {"flat": 2, "fat-tree:4,2": 4, "dragonfly:2,3,4": 5}.get(network) or 2 + sum(s // 2 for s in made.shape)
    assert used.max() <= longest
    if network.startswith("torus"):
        places = np.array(np.unravel_index(np.arange(nodes), made.shape))
        apart = np.abs(places[:, source] - places[:, target])
        sides = np.array(made.shape)[:, None]
        assert (used == 2 + np.minimum(apart, sides - apart).sum(axis=0)).all()
    for route in routes:
        inner = route[route >= 0]
        assert len(set(inner)) == len(inner), "no link twice"


def test_eager_messages_need_no_receiver():
    """In a chain of two the root's answer may be on its way while the other rank is still busy; large ones wait."""
    eager = Machine(alpha=1, beta=0, gamma=0, eager_bytes=1 << 30)
    assert seconds("linear", 3, machine=eager) <= seconds("linear", 3, machine=Machine(1, 0, 0, eager_bytes=0))


def test_names_that_mean_nothing_are_refused(tmp_path):
    for name in ("mesh", "fat-tree:0", "torus:x", "flat:3"):
        with pytest.raises(ValueError, match="topology: expected flat, fat-tree:RADIX,TAPER"):
            topology(name, 4)
    Machine(alpha=2.0).save(tmp_path / "m.json")
    assert Machine.load(tmp_path / "m.json") == Machine(alpha=2.0)
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(ValueError, match=r"machine: .*m\.json: it is no mpi_allreduce\.machine"):
        Machine.load(tmp_path / "m.json")
