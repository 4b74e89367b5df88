"""Conversions to shorter floating-point numbers: the same bits as NumPy's and ml_dtypes' own, everywhere."""

import ml_dtypes
import numpy as np
import pytest

from mpi_allreduce.codecs import CHUNK, Glance, get_codec

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def encoded(name, values, dtype):
    """What a codec makes of any number of values, chunk by chunk."""
    codec = get_codec(name)
    coder, results = codec.coder(), []
    for chunk in np.array_split(values, -(-values.size // CHUNK)):
        with np.errstate(invalid="ignore", over="ignore"):
            peak = float(np.maximum(chunk.max(), -chunk.min()))
            wire = np.full(codec.chunk_bytes(chunk.size), 0xA5, np.uint8)
            assert coder.encode(chunk, wire, Glance(peak, peak, 0)) == wire.size
        results.append(wire[: chunk.size * 2].view(dtype))
    return np.concatenate(results)


def decoded(name, halves):
    coder, results = get_codec(name).coder(), []
    for chunk in np.array_split(halves, -(-halves.size // CHUNK)):
        out = np.empty(chunk.size, np.float32)
        wire = np.zeros(-(-chunk.nbytes // 8) * 8, np.uint8)
        wire[: chunk.nbytes] = chunk.view(np.uint8)
        with np.errstate(over="ignore"):
            coder.decode(wire, out, 0)
        results.append(out)
    return np.concatenate(results)


def same_bits(one, other):
    """NaN's payload aside."""
    nan = np.isnan(one)
    assert np.array_equal(nan, np.isnan(other))
    unsigned = np.dtype(f"u{one.dtype.itemsize}")
    assert np.array_equal(one.view(unsigned)[~nan], other.view(unsigned)[~nan])


def test_all_65536_halves_decode_to_numpys_bits():
    same_bits(decoded("fp16", HALVES), HALVES.astype(np.float32))


def test_every_half_its_neighbours_and_every_tie_encode_to_numpys_bits():
    """Rounding is decided at halves, half way between them, and one float32 to either side of both."""
    finite = np.sort(HALVES[np.isfinite(HALVES)].astype(np.float32))
    ties = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    edges = np.array([65504, 65519.996, 65520, 65520.004, 1e30, np.inf, np.nan, 1e-45, 2.0**-126], np.float32)
    points = np.concatenate([finite, ties, edges, -edges])
    with np.errstate(over="ignore"):
        for values in (points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))):
            small = values[np.abs(values) < 65520]  # a chunk of these goes the fast way, one with others NumPy's
            same_bits(encoded("fp16", small, np.float16), small.astype(np.float16))
            same_bits(encoded("fp16", values, np.float16), values.astype(np.float16))


def test_random_bit_patterns_encode_to_numpys_bits():
    values = np.random.default_rng(1).integers(0, 1 << 32, 1 << 20, np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        small = values[np.abs(values) < 65520]
        same_bits(encoded("fp16", small, np.float16), small.astype(np.float16))
        same_bits(encoded("bf16", values, ml_dtypes.bfloat16), values.astype(ml_dtypes.bfloat16))


def test_predividing_by_a_power_of_two_rounds_nothing_more():
    values = np.random.default_rng(2).standard_normal(1000).astype(np.float32)
    half = encoded("fp16:predivide=16", values * 16, np.float16)
    same_bits(half, values.astype(np.float16))
    assert np.array_equal(decoded("fp16:predivide=16", half), values.astype(np.float16).astype(np.float32) * 16)


@pytest.mark.parametrize("factor", ["3", "0.5", "nan", "0"])
def test_other_divisors_are_refused(factor):
    with pytest.raises(ValueError, match="predivide is a power of two"):
        get_codec(f"fp16:predivide={factor}")
