"""What moves messages is tried out, once, with one answer for all ranks."""

import numpy as np
import pytest
from mpi4py import MPI

from mpi_allreduce import GradientSync
from mpi_allreduce.overlap.capability import Capability, probe_progress

pytestmark = pytest.mark.mpi


def test_all_ranks_get_one_answer_and_only_the_first_call_tries(comm):
    found = probe_progress(comm)
    assert len(set(comm.allgather(repr(found)))) == 1
    again = comm.Dup()
    assert probe_progress(again) is found
    again.Free()
    assert 0 <= found.message_alone <= 1
    assert 0 <= found.vendor_alone <= 1
    if comm.size > 1:
        possible = {"none", "test"} | ({"thread"} if MPI.Query_thread() == MPI.THREAD_MULTIPLE else set())
        assert set(found.together) == possible
        assert min(found.together.values()) > 0.5 * max(found.communicating, found.computing)


def test_gradients_are_moved_as_was_found_best(comm):
    with GradientSync(comm, {"w": (10,)}) as sync:
        assert sync.progress == probe_progress(comm).progress
        sync.add("w", np.ones(10))
        assert np.array_equal(sync.wait()["w"], np.ones(10))
    with GradientSync(comm, {"w": (10,)}, algorithm="vendor") as sync:
        assert sync.progress == "vendor"


@pytest.mark.parametrize(
    ("together", "chosen"),
    [
        ({"none": 1.0, "test": 1.02, "thread": 1.01}, "test"),
        ({"none": 1.0, "test": 1.1, "thread": 0.99}, "none"),
        ({"none": 2.0, "test": 1.5, "thread": 1.0}, "thread"),
        ({"none": 2.0, "test": 1.5}, "test"),
    ],
)
def test_the_fastest_is_chosen_and_in_doubt_calls_of_test(together, chosen):
    assert Capability(0.0, 0.0, 1.0, 1.0, together).progress == chosen
