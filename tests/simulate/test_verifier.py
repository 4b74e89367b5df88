"""The verifier catches what is broken, and names the property."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.algorithms import (
    COPY,
    REDUCE,
    REDUCE_LEFT,
    REDUCE_RIGHT,
    Algorithm,
    Cost,
    Exchange,
    Formula,
    get,
    names,
    receive,
    send,
    sendrecv,
)
from mpi_allreduce.simulate import ScheduleError, verify


def made_of(generate, blocks=1, ordered=False, rounds="1", sent="1", reduced="1"):
    cost = Cost(Formula(rounds), Formula(sent), Formula(reduced))
    return Algorithm("test", generate, lambda size: blocks, ordered, cost, "")


def swap(rank, size):
    """The smallest allreduce, of two ranks."""
    yield sendrecv(1 - rank, 0, 1 - rank, 0, REDUCE_LEFT if rank else REDUCE_RIGHT)


def missing_receive(rank, size):
    yield send(1 - rank, 0) if rank else sendrecv(1, 0, 1, 0, REDUCE)


def other_blocks_expected(rank, size):
    yield sendrecv(1 - rank, (0, 1), 1 - rank, (1, 0), REDUCE)


def peer_out_of_range(rank, size):
    yield sendrecv(2, 0, 2, 0, REDUCE)


def copied_into_while_sent(rank, size):
    yield sendrecv(1 - rank, 0, 1 - rank, 0, COPY)


def reduced_into_a_block_sent_with_another(rank, size):
    yield (send(1 - rank, (0, 1)), receive(1 - rank, (0, 1), REDUCE))


def everyone_sends_before_receiving(rank, size):
    yield send(1 - rank, 0)
    yield receive(1 - rank, 0, REDUCE)


def ring_of_sends(rank, size):
    yield send((rank + 1) % size, 0)
    yield receive((rank - 1) % size, 0, REDUCE)


def block_sent_twice(rank, size):
    yield from swap(rank, size)
    yield from swap(rank, size)


def contribution_forgotten(rank, size):
    if rank == 0:
        yield receive(1, 0, REDUCE)
        yield send(2, 0)
    elif rank == 1:
        yield send(0, 0)
    else:
        yield receive(0, 0, REDUCE)


def swapped_operand(rank, size):
    yield sendrecv(1 - rank, 0, 1 - rank, 0, REDUCE_RIGHT if rank else REDUCE_LEFT)


def left_operands_that_overlap_in_part(rank, size):
    """Which of the two stands left of the other would depend on the block."""
    if rank == 2:
        yield (receive(0, (0,), REDUCE_LEFT), receive(1, (0, 1), REDUCE_LEFT))
    else:
        yield send(2, (0,) if rank == 0 else (0, 1))


def unequal_operands(rank, size):
    yield sendrecv(1 - rank, 0, 1 - rank, 0, REDUCE_RIGHT)


@pytest.mark.parametrize(
    ("broken", "size", "property"),
    [
        (made_of(missing_receive), 2, "matching"),
        (made_of(other_blocks_expected, blocks=2), 2, "matching"),
        (made_of(peer_out_of_range), 2, "matching"),
        (made_of(copied_into_while_sent), 2, "overwrite"),
        (made_of(reduced_into_a_block_sent_with_another, blocks=2), 2, "overwrite"),
        (made_of(left_operands_that_overlap_in_part, blocks=2), 3, "overwrite"),
        (made_of(everyone_sends_before_receiving), 2, "deadlock"),
        (made_of(ring_of_sends), 3, "deadlock"),
        (made_of(block_sent_twice), 2, "once"),
        (made_of(contribution_forgotten), 3, "once"),
        (made_of(unequal_operands), 2, "same bits"),
        (made_of(swapped_operand, ordered=True), 2, "order"),
        (made_of(swap, ordered=True, rounds="2"), 2, "cost"),
        (made_of(swap, ordered=True, sent="2"), 2, "cost"),
        (made_of(swap, ordered=True, reduced="2"), 2, "cost"),
    ],
)
def test_broken_schedule_is_caught_by_the_property_it_breaks(broken, size, property):
    with pytest.raises(ScheduleError) as caught:
        verify(broken, size)
    assert caught.value.property == property


def test_the_unbroken_schedule_passes():
    verify(made_of(swap, ordered=True), 2)


def damaged(schedules, algorithm, size, rank, index, position, damage):
    """The algorithm with one exchange of one rank changed."""
    blocks = algorithm.blocks(size)
    rounds = list(schedules[rank])
    exchange = rounds[index][position]
    changes = {
        "dropped": [],
        "repeated": [exchange, exchange],
        "other block sent": [replace(exchange, sent=tuple((b + 1) % blocks for b in exchange.sent))],
        "other block received": [replace(exchange, received=tuple((b + 1) % blocks for b in exchange.received))],
        "other peer": [replace(exchange, dst=None if exchange.dst is None else (exchange.dst + 1) % size)],
        "other action": [replace(exchange, action=REDUCE if exchange.action is COPY else COPY)],
    }
    new = changes[damage]
    if new == [exchange]:
        return None  # this change changes nothing here, e.g. the only block there is
    others = rounds[index]
    rounds[index] = (*others[:position], *new, *others[position + 1 :])
    return replace(algorithm, generate=lambda r, *_: rounds if r == rank else schedules[r])


@given(data=st.data())
def test_any_damage_to_one_exchange_is_caught(data):
    algorithm = get(data.draw(st.sampled_from(names()), "algorithm"))
    size = data.draw(st.integers(2, 9), "size")
    rank = data.draw(st.integers(0, size - 1), "rank")
    schedules = [algorithm.schedule(r, size) for r in range(size)]
    index = data.draw(st.integers(0, len(schedules[rank]) - 1), "round")
    position = data.draw(st.integers(0, len(schedules[rank][index]) - 1), "exchange")
    damage = data.draw(
        st.sampled_from(
            ["dropped", "repeated", "other block sent", "other block received", "other peer", "other action"]
        ),
        "damage",
    )
    broken = damaged(schedules, algorithm, size, rank, index, position, damage)
    if broken is None or (damage == "other action" and schedules[rank][index][position].src is None):
        return
    with pytest.raises(ScheduleError):
        verify(broken, size)


@pytest.mark.parametrize("name", names(ordered=True))
@pytest.mark.parametrize("size", [2, 3, 6, 8])
def test_any_swapped_operand_is_caught_where_order_is_claimed(name, size):
    algorithm = get(name)
    schedules = [algorithm.schedule(r, size) for r in range(size)]
    other = {REDUCE_LEFT: REDUCE_RIGHT, REDUCE_RIGHT: REDUCE_LEFT}
    swaps = 0
    for rank, rounds in enumerate(schedules):
        for index, exchanges in enumerate(rounds):
            for position, exchange in enumerate(exchanges):
                if exchange.src is None or exchange.action is COPY:
                    continue
                changed = list(rounds)
                swapped = replace(exchange, action=other[exchange.action])
                changed[index] = (*exchanges[:position], swapped, *exchanges[position + 1 :])
                generate = partial(lambda r, *_, k, s: s if r == k else schedules[r], k=rank, s=changed)
                with pytest.raises(ScheduleError) as caught:
                    verify(replace(algorithm, generate=generate), size)
                assert caught.value.property in ("order", "same bits")
                swaps += 1
    assert swaps > 0


def test_a_rendezvous_cycle_through_the_rounds_of_four_ranks_is_caught():
    """Each rank's rounds match those of its neighbours, but no rank comes to the round that another waits for."""

    def cycle(rank, size):
        right, left = (rank + 1) % size, (rank - 1) % size
        yield send(right, rank)
        yield receive(left, left, COPY)

    with pytest.raises(ScheduleError, match="deadlock: these wait for each other: rank 0 in round 0") as caught:
        verify(made_of(cycle, blocks=4), 4)
    assert caught.value.property == "deadlock"


def test_exchange_numbers_blocks_modulo_their_number():
    assert sendrecv(1, -1, 2, (4, 5), COPY).modulo(4) == Exchange(1, (3,), 2, (0, 1), COPY)
