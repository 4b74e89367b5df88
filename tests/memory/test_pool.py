"""Scratch memory: lent to one at a time, lent again, and not hoarded."""

import numpy as np

from mpi_allreduce.memory import Scratch
from mpi_allreduce.memory.pool import KEPT_BYTES, _kept

DOUBLE = np.dtype(np.float64)


def test_what_is_given_back_is_lent_again():
    first = Scratch(100_000, DOUBLE)
    address = first.array.ctypes.data
    first.Free()
    assert Scratch(90_000, DOUBLE).array.ctypes.data == address


def test_what_is_on_loan_is_lent_to_nobody_else():
    loans = [Scratch(count, DOUBLE) for count in (0, 1, 1000, 1000, 5000, 5000)]
    for i, loan in enumerate(loans):
        loan.array[:] = i
    for i, loan in enumerate(loans):
        assert (loan.array == i).all()
        assert loan.array.ctypes.data % 64 == 0


def test_giving_back_twice_is_giving_back_once():
    loan = Scratch(3000, DOUBLE)
    loan.Free()
    loan.Free()
    assert not np.shares_memory(Scratch(3000, DOUBLE).array, Scratch(3000, DOUBLE).array)


def test_little_is_kept():
    for loan in [Scratch(1 << 20, DOUBLE) for _ in range(20)]:
        loan.Free()
    assert sum(size * len(arrays) for size, arrays in _kept.items()) <= KEPT_BYTES
