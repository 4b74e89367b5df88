"""CUDA C without a device: the same text, compiled by a C compiler, gives the host's bits."""

import ctypes

import numpy as np
import pytest

from mpi_allreduce.memory import BFLOAT16
from mpi_allreduce.memory.cuda_code import BFLOAT16_CODE, BFLOAT16_OPERATIONS
from tests.compiler import compiled, needs_compiler, pointer

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    loops = "".join(
        f"void {name}(const unsigned short *a, const unsigned short *b, unsigned short *c, long n) {{"
        f" for (long i = 0; i < n; i++) {{ unsigned short left = a[i], right = b[i];"
        f" c[i] = bfloat16_bits({expression}); }} }}\n"
        for name, expression in BFLOAT16_OPERATIONS.items()
    )
    return compiled(tmp_path_factory.mktemp("code"), "#define __device__\n" + BFLOAT16_CODE + loops)


@pytest.mark.parametrize("name", BFLOAT16_OPERATIONS)
def test_every_bfloat16_meets_specials_and_strangers_as_on_the_host(operations, name):
    every = np.arange(1 << 16, dtype=np.uint16)
    specials = np.array([0, 0x8000, 1, 0x3F80, 0xBF80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81], np.uint16)
    strangers = np.random.default_rng(0).permutation(every)
    for right in [*(np.full_like(every, special) for special in specials), strangers]:
        found = np.empty_like(every)
        getattr(operations, name)(pointer(every), pointer(right), pointer(found), ctypes.c_long(every.size))
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(every.view(BFLOAT16), right.view(BFLOAT16)).view(np.uint16)
        nan = np.isnan(expected.view(BFLOAT16).astype(np.float32))
        assert np.array_equal(np.isnan(found.view(BFLOAT16).astype(np.float32)), nan)
        zeros = (expected & 0x7FFF == 0) & (found & 0x7FFF == 0)  # the smaller of 0 and -0 may be either
        same = (found == expected) | nan | (zeros if name in ("minimum", "maximum") else False)
        assert same.all(), [hex(int(x[~same][0])) for x in (every, right, found, expected)]
