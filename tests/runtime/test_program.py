"""Programs, run without MPI: every rank in lock step on plain arrays."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mpi_allreduce.algorithms import COPY, REDUCE_LEFT, REDUCE_RIGHT, get, names, receive, send, sendrecv
from mpi_allreduce.runtime.program import Buffer, Copy, Reduce, Transfer, lower

PRIME = 8191


def compose(left, right, out):
    """Affine maps x -> a x + b over a prime field: associative, and (almost) never commutative."""
    a, b = left["a"] * right["a"] % PRIME, (left["b"] * right["a"] + right["b"]) % PRIME
    out["a"], out["b"] = a, b


def maps(size, count):
    """A contribution of maps for each rank, and all of them composed in rank order."""
    inputs = np.empty((size, count), [("a", int), ("b", int)])
    inputs["a"], inputs["b"] = np.random.default_rng(count).integers(2, PRIME, (2, size, count))
    expected = inputs[0].copy()
    for values in inputs[1:]:
        compose(expected, values, expected)
    return list(inputs), expected


def add(left, right, out):
    np.add(left, right, out=out)


class World:
    """All ranks' memories and programs; steps are taken as far as messages allow."""

    def __init__(self, programs, inputs, in_place):
        self.programs = programs
        self.memory = []
        for program, values in zip(programs, inputs, strict=True):
            result = values.copy() if in_place else np.zeros_like(values)
            self.memory.append(
                {
                    Buffer.SEND: None if in_place else values.copy(),
                    Buffer.RECEIVE: result,
                    Buffer.SCRATCH: np.zeros(program.scratch, values.dtype),
                }
            )

    def view(self, rank, span):
        view = self.memory[rank][span.buffer][span.start : span.stop]
        assert len(view) == len(span), "a span must lie within its buffer"
        return view

    def run(self, kernel):
        at = [0] * len(self.programs)
        mail = {}
        posted = [False] * len(self.programs)
        progress = True
        while progress:
            progress = False
            for rank, program in enumerate(self.programs):
                while at[rank] < len(program.steps):
                    step = program.steps[at[rank]]
                    if isinstance(step, Transfer):
                        if not posted[rank]:
                            self.post(rank, step, mail)
                            posted[rank] = True
                        if not self.collect(rank, step, mail):
                            break
                        posted[rank] = False
                    elif isinstance(step, Reduce):
                        kernel(*(self.view(rank, span) for span in (step.left, step.right, step.out)))
                    else:
                        assert isinstance(step, Copy)
                        self.view(rank, step.target)[:] = self.view(rank, step.source)
                    at[rank] += 1
                    progress = True
        assert at == [len(program.steps) for program in self.programs], "the programs deadlock"
        assert not any(mail.values()), "every message is received"
        return [memory[Buffer.RECEIVE] for memory in self.memory]

    def post(self, rank, step, mail):
        for message in step.sends:
            mail.setdefault((rank, message.peer), []).append(self.view(rank, message.span).copy())

    def collect(self, rank, step, mail):
        needed = {}
        for message in step.receives:
            needed[message.peer] = needed.get(message.peer, 0) + 1
        if any(len(mail.get((peer, rank), [])) < number for peer, number in needed.items()):
            return False
        for message in step.receives:
            arrived = mail[message.peer, rank].pop(0)
            assert len(arrived) == len(message.span), "both sides cut messages alike"
            self.view(rank, message.span)[:] = arrived
        return True


def programs_of(name, size, count, **options):
    algorithm = get(name)
    blocks = algorithm.blocks(size)
    return [lower(algorithm.schedule(rank, size), blocks, count, **options) for rank in range(size)]


shapes = {
    "size": st.integers(1, 13),
    "count": st.integers(0, 60),
    "in_place": st.booleans(),
    "segment": st.integers(1, 70),
    "pack": st.integers(0, 70),
}


@pytest.mark.parametrize("name", names())
@given(**shapes)
@example(size=7, count=3, in_place=False, segment=100, pack=100)
@example(size=13, count=59, in_place=True, segment=2, pack=1)
def test_program_sums_whatever_the_cutting(name, size, count, in_place, segment, pack):
    programs = programs_of(name, size, count, in_place=in_place, segment=segment, pack=pack)
    inputs = [np.arange(count) * (rank + 1) + rank**3 for rank in range(size)]
    for result in World(programs, inputs, in_place).run(add):
        np.testing.assert_array_equal(result, sum(inputs))


@pytest.mark.parametrize("name", names(ordered=True))
@given(**shapes)
def test_program_of_an_ordered_algorithm_keeps_operand_order(name, size, count, in_place, segment, pack):
    programs = programs_of(name, size, count, in_place=in_place, segment=segment, pack=pack)
    inputs, expected = maps(size, count)
    for result in World(programs, inputs, in_place).run(compose):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", names())
@given(**shapes)
def test_messages_are_never_empty_nor_longer_than_a_segment_and_never_share_memory(
    name, size, count, in_place, segment, pack
):
    for program in programs_of(name, size, count, in_place=in_place, segment=segment, pack=pack):
        for transfer in program.transfers:
            spans = [message.span for message in (*transfer.sends, *transfer.receives)]
            assert all(0 < len(span) <= segment for span in spans)
            for received in (message.span for message in transfer.receives):
                overlapping = [
                    s
                    for s in spans
                    if s.buffer is received.buffer and max(s.start, received.start) < min(s.stop, received.stop)
                ]
                assert overlapping == [received]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_bytes_sent_are_those_of_the_schedule(name, size):
    algorithm = get(name)
    blocks = algorithm.blocks(size)
    count = 12 * blocks
    programs = programs_of(name, size, count, in_place=False, segment=5, pack=7)
    assert max(program.sent for program in programs) == algorithm.cost.sent(size, **algorithm.symbols) * count


@pytest.mark.parametrize("name", ["ring", "pairwise"])
def test_nothing_is_copied_first_and_at_most_a_segment_of_scratch_is_used(name):
    for program in programs_of(name, 8, 8000, in_place=False, segment=10**6):
        assert not any(isinstance(step, Copy) for step in program.steps)
        assert program.scratch == (0 if name == "ring" else 1000)
    for program in programs_of(name, 8, 8000, in_place=True, segment=64):
        assert program.scratch == 64


def test_small_scattered_blocks_travel_as_one_message_and_large_ones_in_parts():
    def messages(pack):
        programs = programs_of("circulant", 7, 7, in_place=False, segment=100, pack=pack)
        return max(len(transfer.sends) for program in programs for transfer in program.transfers)

    assert messages(pack=0) == 2
    assert messages(pack=7) == 1


def test_exchanges_in_flight_that_reduce_into_the_same_block_stand_from_left_to_right():
    """Ranks 0 and 1 to the left of rank 2 (in the order listed, combined first), rank 3 to its right."""

    def rounds(rank):
        if rank == 2:
            arriving = [receive(3, (0, 1), REDUCE_RIGHT), receive(0, (0, 1), REDUCE_LEFT)]
            return [(*arriving, receive(1, (0, 1), REDUCE_LEFT)), tuple(send(r, (0, 1)) for r in (0, 1, 3))]
        return [(send(2, (0, 1)),), (receive(2, (0, 1), COPY),)]

    def brackets(left, right, out):
        out[...] = [f"({a}{b})" for a, b in zip(left, right, strict=True)]

    for in_place in (False, True):
        for segment in (1, 3, 10):
            programs = [lower(rounds(rank), 2, 7, in_place=in_place, segment=segment) for rank in range(4)]
            inputs = [np.array([str(rank)] * 7, dtype=object) for rank in range(4)]
            for result in World(programs, inputs, in_place).run(brackets):
                assert result.tolist() == ["(((01)2)3)"] * 7


def test_segments_of_a_butterfly_are_sent_before_they_are_reduced_into():
    rounds = [[(sendrecv(1 - r, 0, 1 - r, 0, REDUCE_LEFT if r else REDUCE_RIGHT),)] for r in range(2)]
    programs = [lower(rounds[rank], 1, 6, in_place=True, segment=2) for rank in range(2)]
    kinds = [type(step).__name__ for step in programs[0].steps]
    assert kinds == ["Transfer", "Reduce"] * 3
    assert programs[0].scratch == 2
