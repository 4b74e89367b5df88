"""Schedules lowered for a codec, without MPI: nothing is encoded or decoded more often than it must be."""

from collections import Counter

import pytest

from mpi_allreduce.algorithms import get, names
from mpi_allreduce.runtime.encoding import finished_blocks_travel, lower


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("size", [2, 3, 5, 8, 13])
def test_each_block_is_decoded_once_and_encoded_once_for_each_value_that_is_sent(name, size):
    algorithm = get(name)
    blocks = algorithm.blocks(size)
    travels = finished_blocks_travel(algorithm, size)
    for rank in range(size):
        made = lower(algorithm.schedule(rank, size), [100] * blocks, fixed=True, travels=travels, segment=1 << 20)
        decodes = Counter(block for step in made.rounds for block in step.decodes)
        assert max(decodes.values(), default=0) <= 1
        encodes = Counter(step.block for part in made.rounds for step in part.encodes)
        sums = Counter(step.block for part in made.rounds for step in part.combines)
        assert all(encodes[block] <= sums[block] + 1 for block in range(blocks))
        assert not made.untouched
        assert not made.unsent
