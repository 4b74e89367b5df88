"""The codecs' CUDA C without a device: compiled for the host, it writes the host's bytes and reads the host's bits."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from mpi_allreduce.codecs import Packer, get_codec, packet_bytes
from mpi_allreduce.codecs.cuda_code import CODE, FORMATS, ON_DEVICE, ON_HOST
from mpi_allreduce.codecs.device import describe
from tests.compiler import compiled, needs_compiler, pointer

pytestmark = needs_compiler
NAMES = ["fp16", "fp16:predivide=8", "bf16", "int8", "int8:block=100", "int8:block=32768"]
KEY = 77


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("code"), f"#include <math.h>\n{ON_HOST}\n{CODE}")


STUBS = """
#include <cmath>
#define __device__
#define __global__
struct { int x; } threadIdx, blockIdx, blockDim, gridDim;
unsigned int atomicOr(unsigned int *, unsigned int);
float __shfl_xor_sync(unsigned int, float, int);
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_what_a_device_gets_is_right_to_a_compiler_too(tmp_path):
    """Of C++, as CUDA's is; only what CUDA itself offers is made up."""
    (tmp_path / "code.cpp").write_text(f"{STUBS}{ON_DEVICE}{CODE}")
    subprocess.run(["c++", "-Wall", "-fsyntax-only", tmp_path / "code.cpp"], check=True)
    for name in FORMATS:
        assert f"encode_{name}(" in CODE
        assert f"COMBINE({name})" in CODE


def encode(code, codec, values, before=0):
    """(The packet, its flags)."""
    facts = describe(codec)
    packet = np.full(packet_bytes(codec, values.size), 0xEE, np.uint8)
    flags = np.array([before], np.uint32)
    getattr(code, f"encode_{facts.format}")(
        pointer(values), pointer(packet), pointer(flags), ctypes.c_longlong(values.size), ctypes.c_float(facts.largest),
        ctypes.c_float(facts.predivide), ctypes.c_longlong(facts.block),
    )  # fmt: skip
    code.write_header(pointer(packet), pointer(flags), ctypes.c_uint(KEY))
    return packet, int(flags[0])


def combine(code, codec, left, right, count):
    facts = describe(codec)
    out, flags = np.empty(count, np.float32), np.zeros(1, np.uint32)
    kinds = [0 if x is None else int(x.dtype == np.uint8) for x in (left, right)]
    getattr(code, f"combine_{facts.format}")(
        pointer(left), kinds[0], pointer(right), kinds[1], pointer(out), pointer(flags), ctypes.c_longlong(count),
        ctypes.c_float(facts.predivide), ctypes.c_longlong(facts.block),
    )  # fmt: skip
    return out, int(flags[0])


def samples(count):
    """Of every size, with zeros, subnormals, ties, and the largest and smallest numbers that formats tell apart."""
    rng = np.random.default_rng(count)
    values = (rng.standard_normal(count) * 10.0 ** rng.integers(-12, 4, count)).astype(np.float32)
    special = np.array([0, -0.0, 1, -1, 2**-14, 2**-24, 2**-25, 3e-8, 65504, 65519.9, 1e-40, 1 + 2**-11], np.float32)
    places = rng.integers(0, count, min(count // 4, 200))
    values[places] = rng.choice(special, places.size)
    values[count // 2 : count // 2 + 300] = 0
    yield values
    yield (values * 1e-3).astype(np.float32)
    yield np.zeros(count, np.float32)


def host(codec):
    packer = Packer(codec, np.dtype(np.float32))
    packer.key = KEY
    return packer


@pytest.mark.parametrize("count", [1, 3, 255, 256, 257, 32768, 32769, 70001])
@pytest.mark.parametrize("name", NAMES)
def test_packets_are_the_hosts_bytes_and_sums_the_hosts_bits(code, name, count):
    codec = get_codec(name)
    packer = host(codec)
    for values in samples(count):
        expected = np.zeros(packet_bytes(codec, count), np.uint8)
        packer.encode(values, expected, 0, 0)
        packet, _ = encode(code, codec, values)
        assert packet.tobytes() == expected.tobytes()
        other = np.random.default_rng(1).standard_normal(count).astype(np.float32)
        for operands in ([packet], [packet, other], [other, packet], [packet, packet]):
            total = np.empty(count, np.float32)
            if len(operands) == 1:
                packer.decode(packet, total, 0)
            else:
                packer.combine([(x.dtype == np.uint8, x) for x in operands], total, 0)
            found, _ = combine(code, codec, operands[0], operands[1] if len(operands) > 1 else None, count)
            assert found.tobytes() == total.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38, 65520, 600000])
def test_what_is_not_finite_or_overflows_is_flagged_and_encoded_as_on_the_host(code, name, bad):
    codec = get_codec(name)
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    values[700] = bad
    expected = np.zeros(packet_bytes(codec, 1000), np.uint8)
    host(codec).encode(values, expected, 0, 0)
    packet, flags = encode(code, codec, values)
    assert flags == expected[0]
    assert packet.tobytes() == expected.tobytes()
    _, seen = combine(code, codec, packet, None, 1000)
    assert seen == flags
    assert encode(code, codec, np.ones(5, np.float32), before=2)[1] == 2, "what is known of the block stays"


def test_every_half_is_read_as_on_the_host(code):
    codec, count = get_codec("fp16"), 1 << 16
    packet = np.zeros(packet_bytes(codec, count), np.uint8)
    for chunk in range(2):
        start = 8 + chunk * 65536
        packet[start : start + 65536] = np.arange(chunk << 15, (chunk + 1) << 15, dtype=np.uint16).view(np.uint8)
    expected = np.empty(count, np.float32)
    host(codec).decode(packet, expected, 0)
    found, _ = combine(code, codec, packet, None, count)
    assert found.tobytes() == expected.tobytes()
