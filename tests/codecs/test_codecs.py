"""Every codec: exact sizes, errors within the bound it states, and defined results for the strangest numbers."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mpi_allreduce.codecs import CHUNK, HEADER_BYTES, Flags, Packer, PowerSGD, codec_names, get_codec, packet_bytes

NAMES = [
    *(name for name in codec_names() if not isinstance(get_codec(name), PowerSGD)),
    "fp16:predivide=8", "int8:tensor", "int8:stochastic", "int4:block=3", "int2:block=32,stochastic", "onebit:block=7",
    "topk:0.5", "threshold:0.3", "bounded:2",
]  # fmt: skip
COUNTS = [1, 2, 7, 255, 256, 257, 5000, CHUNK, CHUNK + 1, 3 * CHUNK + 100]


def roundtrip(name, values, key=5):
    """(packet, what it decodes to)."""
    codec = get_codec(name)
    packer = Packer(codec, values.dtype)
    packer.key = key
    packer.look_over(values)
    packet = np.full(packet_bytes(codec, values.size), 0xA5, np.uint8)
    used = packer.encode(values, packet, 0, 0, contribution=True)
    assert used == packet.size if codec.fixed else used <= packet.size
    out = np.full_like(values, 77)
    Packer(codec, values.dtype).decode(packet[:used], out, 0)
    return packet[:used], out


def within_bound(name, values, out):
    bound = get_codec(name).bound()
    wide = values.astype(np.float64)
    error, norm = np.linalg.norm(out - wide), np.linalg.norm(wide)
    if norm == 0 or bound.relative == np.inf:
        return error <= 2 * norm
    # Groups whose scale would be subnormal become zero.
    return error <= (bound.relative * norm + bound.absolute * values.size**0.5) * (1 + 1e-6) + 1e-35 * values.size**0.5


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", ["normal", "heavy tails", "zeros", "one"])
def test_sizes_are_as_predicted_and_errors_within_the_bound(name, count, data):
    rng = np.random.default_rng(count)
    values = {
        "normal": rng.standard_normal(count),
        "heavy tails": rng.standard_cauchy(count).clip(-6e4, 6e4),
        "zeros": np.zeros(count),
        "one": np.where(np.arange(count) == count // 2, -3.25, 0),
    }[data].astype(np.float32)
    packet, out = roundtrip(name, values)
    assert packet[0] == Flags.NONE
    assert within_bound(name, values, out)
    again, _ = roundtrip(name, values)
    assert np.array_equal(packet, again), "the same numbers must make the same bytes"
    if data == "zeros":
        assert not out.any()


FINITE = st.floats(-6e4, 6e4, width=32)  # denormals among them


@given(
    name=st.sampled_from(NAMES),
    values=arrays.arrays(np.float32, st.integers(1, 600), elements=FINITE, fill=st.just(0.0)),
)
def test_any_finite_numbers_stay_within_the_bound(name, values):
    packet, out = roundtrip(name, values)
    assert packet[0] == Flags.NONE
    assert within_bound(name, values, out)


@given(
    name=st.sampled_from(NAMES),
    values=arrays.arrays(np.float32, st.integers(1, 600), elements=FINITE, fill=st.just(0.0)),
    strange=st.sampled_from([np.nan, np.inf, -np.inf]),
    place=st.integers(0, 599),
)
def test_a_number_that_is_not_finite_is_flagged_and_spoils_no_more_than_its_group(name, values, strange, place):
    place %= values.size
    values[place] = strange
    packet, out = roundtrip(name, values)
    assert packet[0] == Flags.NONFINITE
    block = getattr(get_codec(name), "block", 1)
    group = slice(place // block * block, (place // block + 1) * block)
    base = name.partition(":")[0]
    if base in ("fp16", "bf16", "bounded"):
        assert out[place] == strange or (np.isnan(strange) and np.isnan(out[place]))
    if base in ("int8", "int4", "int2", "onebit", "fp8_e4m3", "fp8_e5m2"):
        assert np.isnan(out[group]).all()
    if base == "topk":
        assert not np.isfinite(out[place])
    if base != "randomk":
        clean = np.delete(np.arange(values.size), np.arange(values.size)[group])
        assert np.isfinite(out[clean]).all()


@pytest.mark.parametrize(
    ("name", "value"), [("fp16", 65520), ("fp16:predivide=4", 262080), ("bounded:1e-9", 4.3), ("bf16", 3.4e38)]
)
def test_overflow_is_told_from_infinity(name, value):
    assert roundtrip(name, np.array([1, value], np.float32))[0][0] == Flags.OVERFLOW
    assert roundtrip(name, np.array([1, np.inf], np.float32))[0][0] == Flags.NONFINITE
    assert roundtrip(name, np.array([1, value * 0.99], np.float32))[0][0] == Flags.NONE
    assert roundtrip(name, np.array([1, 1e300]))[0][0] == Flags.OVERFLOW, "of float64"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_other_types_are_encoded_as_float32(name, dtype):
    values = np.random.default_rng(3).standard_normal(2 * CHUNK + 9).astype(dtype)
    as_float32 = values.astype(np.float32)
    packet, out = roundtrip(name, values)
    expected, decoded = roundtrip(name, as_float32)
    assert np.array_equal(packet, expected)
    assert np.array_equal(out, decoded.astype(dtype))


def test_the_mean_magnitude_of_the_largest_numbers_does_not_overflow():
    values = np.full(300, 3e38, np.float32)
    packet, out = roundtrip("onebit", values)
    assert packet[0] == Flags.NONE
    np.testing.assert_allclose(out, values, rtol=1e-6)


def test_stochastic_rounding_is_unbiased_and_varies_with_the_key():
    values = np.random.default_rng(4).standard_normal(4096).astype(np.float32)
    runs = np.stack([roundtrip("int4:stochastic", values, key)[1] for key in range(400)]).astype(np.float64)
    error = runs.mean(axis=0) - values
    spread = runs.std(axis=0) / 20
    assert np.abs(error / np.maximum(spread, 1e-3)).mean() < 1.2
    nearest = roundtrip("int4", values)[1] - values.astype(np.float64)
    assert np.linalg.norm(error) < 0.2 * np.linalg.norm(nearest)
    assert not np.array_equal(runs[0], runs[1])


@pytest.mark.parametrize("count", [1, 50, 5000, CHUNK])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.2, 1])
def test_topk_keeps_the_largest_exactly(count, share):
    rng = np.random.default_rng(count)
    for values in (rng.standard_normal(count), rng.integers(-3, 4, count), np.sort(rng.standard_cauchy(count))):
        values = values.astype(np.float32)
        out = roundtrip(f"topk:{share}", values)[1]
        k = max(1, round(share * count))
        kept = np.flatnonzero(out)
        assert np.array_equal(out[kept], values[kept])
        assert np.array_equal(np.sort(np.abs(out))[::-1][:k], np.sort(np.abs(values))[::-1][:k])
        assert kept.size <= k


def test_the_threshold_adapts_to_the_share_wanted_whatever_the_scale():
    rng = np.random.default_rng(6)
    for values in (
        rng.standard_normal(1 << 20) * 1e-6,
        rng.standard_cauchy(1 << 20),
        rng.standard_normal(1 << 20) ** 5,
    ):
        sent = np.count_nonzero(roundtrip("threshold:0.01", values.astype(np.float32))[1]) / values.size
        assert 0.008 < sent < 0.012


def test_random_k_takes_the_same_elements_for_the_same_key_and_others_for_another():
    one, other = np.random.default_rng(7).standard_normal((2, 5000)).astype(np.float32)
    chosen = [
        np.flatnonzero(roundtrip("randomk:0.1", values, key)[1]) for values, key in ((one, 1), (other, 1), (one, 2))
    ]
    assert chosen[0].size == 500
    assert np.array_equal(chosen[0], chosen[1])
    assert not np.array_equal(chosen[0], chosen[2])


@pytest.mark.parametrize("error", [1e-6, 1e-3, 0.5, 100])
def test_the_bounded_codec_keeps_its_bound_for_each_element(error):
    values = np.random.default_rng(8).standard_cauchy(3 * CHUNK).clip(-1e3, 1e3).astype(np.float32)
    out = roundtrip(f"bounded:{error}", values)[1]
    rounding = np.spacing(np.abs(values) + error)
    assert (np.abs(out.astype(np.float64) - values) <= error + rounding).all()


def test_one_scale_for_the_tensor_loses_small_layers_beside_large_ones():
    """The textbook's failure: a bucket with layers of different magnitudes."""
    small, large = np.random.default_rng(9).standard_normal((2, CHUNK)).astype(np.float32)
    bucket = np.concatenate([small * 1e-4, large])
    textbook, blocked = (roundtrip(name, bucket)[1] for name in ("int8:tensor", "int8"))
    assert not textbook[:CHUNK].any()
    assert np.linalg.norm(blocked[:CHUNK] - bucket[:CHUNK]) < 0.01 * np.linalg.norm(bucket[:CHUNK])


def test_packets_of_codecs_of_fixed_size_cost_what_they_say():
    assert packet_bytes(get_codec("fp16"), 1000) == HEADER_BYTES + 2000
    assert packet_bytes(get_codec("int8"), 1024) == HEADER_BYTES + 4 * 4 + 1024
    assert packet_bytes(get_codec("int4"), 1024) == HEADER_BYTES + 4 * 4 + 512
    assert packet_bytes(get_codec("topk:0.01"), 32000) == HEADER_BYTES + 6 * 320
    assert packet_bytes(get_codec("int8"), 0) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int9", "unknown name 'int9'; known are none, fp16.*Did you mean 'int8'"),
        ("int8:blok=4", r"has a parameter 'blok=4'; those of int8 are: block=..., stochastic, tensor"),
        ("int8:block=x", "int8's block is a whole number, got 'x'"),
        ("int8:block=0", "block is a number of elements, 1 .. 32768, got 0"),
        ("int8:4,block=4", "has a parameter 'block=4'"),
        ("topk:0", "share is the fraction .* above 0 and up to 1, got 0"),
        ("topk:x", "topk's share is a number, got 'x'"),
        ("bf16:3", "has a parameter '3'; those of bf16 are: none"),
        ("bounded:-1", "error is the largest error of an element, above 0"),
        ("powersgd:0", "rank is at least 1"),
    ],
)
def test_bad_names_say_what_would_be_accepted(name, message):
    with pytest.raises(ValueError, match=message):
        get_codec(name)
