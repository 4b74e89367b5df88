"""Encoded allreduce on real ranks: any codec with any schedule, counted bytes, bounded errors, equal replicas."""

import os
import zlib

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

import mpi_allreduce
from mpi_allreduce import AVG, IN_PLACE, DivergedError, ErrorFeedback, NonFiniteError, allreduce, iallreduce, plan
from mpi_allreduce.algorithms import names
from mpi_allreduce.codecs import Flags, Packer, PowerSGD, codec_names, get_codec
from mpi_allreduce.memory import dtype_named
from mpi_allreduce.simulate import result_bound, wire_bytes

pytestmark = pytest.mark.mpi

CODECS = [
    *(name for name in codec_names() if not isinstance(get_codec(name), PowerSGD)), "int8:tensor", "int4:stochastic",
]  # fmt: skip
COUNTS = [0, 1, 2, 7, 1000, 40_000]
if int(os.environ.get("MPI_TEST_RANKS", 1)) > 4:  # chunks of long blocks are tested on fewer ranks
    COUNTS = [1, 7, 1000]


def everyones(comm, count, dtype=np.float32, seed=0):
    """What every rank contributes."""
    return [np.random.default_rng([seed, rank]).standard_normal(count).astype(dtype) for rank in range(comm.size)]


def assert_same_bits(comm, array):
    digests = comm.allgather(zlib.crc32(array.tobytes()))
    assert len(set(digests)) == 1


def assert_within_bound(made, contributions, result):
    exact = np.sum(contributions, axis=0, dtype=np.float64)
    bound = made.error_bound
    norms = sum(np.linalg.norm(values.astype(np.float64)) for values in contributions)
    error = np.linalg.norm(result.astype(np.float64) - exact)
    if norms > 0 and np.isfinite(bound.relative):
        assert error <= bound.relative * norms + bound.absolute * result.size**0.5
    else:
        assert error <= norms
    assert bound == result_bound(get_codec(made.codec.name), made.algorithm, len(contributions))


@pytest.mark.parametrize("algorithm", names())
def test_every_codec_with_every_schedule(comm, algorithm):
    """Equal bits on all ranks and in every way of running; errors within the bound; bytes as predicted and counted."""
    for codec in CODECS:
        for count in COUNTS:
            check_one_case(comm, algorithm, codec, count)


def check_one_case(comm, algorithm, codec, count):
    contributions = everyones(comm, count)
    mine = contributions[comm.rank].copy()
    made = plan(comm, mine, algorithm=algorithm, codec=codec, channels=1)
    result = made().copy()
    assert np.array_equal(mine, contributions[comm.rank])
    assert_same_bits(comm, result)
    assert_within_bound(made, contributions, result)
    if comm.size == 1:
        assert np.array_equal(result, mine)
    predicted = wire_bytes(algorithm, made.codec, comm.rank, comm.size, count, 4)
    assert made.sent_bytes == predicted
    if made.codec.fixed:
        assert made.last_run.sent_bytes == predicted
    else:
        assert made.last_run.sent_bytes <= predicted
    in_place = mine.copy()
    with plan(comm, IN_PLACE, in_place, algorithm=algorithm, codec=codec, channels=1) as other:
        assert np.array_equal(other.start().wait(), result, equal_nan=True)
        assert other.last_run.sent_bytes == made.last_run.sent_bytes
    made.free()


@pytest.mark.parametrize("codec", ["int8", "threshold:0.1"])
def test_channels_run_the_schedule_on_slices(comm, codec):
    contributions = everyones(comm, 50_000)
    made = plan(comm, contributions[comm.rank], algorithm="circulant", codec=codec, channels=3)
    assert_same_bits(comm, made())
    assert_within_bound(made, contributions, made.recvbuf)
    assert made.sent_bytes == wire_bytes("circulant", made.codec, comm.rank, comm.size, 50_000, 4, channels=3)
    small = plan(comm, contributions[comm.rank], algorithm="circulant", codec=codec, channels=3, segment_bytes=1000)
    assert np.array_equal(small(), made.recvbuf)


STRANGE = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-40, 6e4, 1e30, np.nan, np.inf, -np.inf])


@settings(max_examples=60)
@given(
    codec=st.sampled_from(CODECS),
    algorithm=st.sampled_from([*names(), "hierarchical", "shared", "auto"]),
    count=st.integers(0, 3000),
    dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
    special=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2999), STRANGE), max_size=6),
    op=st.sampled_from(["SUM", "AVG"]),
)
def test_any_numbers_give_equal_replicas_and_honest_flags(codec, algorithm, count, dtype, special, op):
    """NaN, infinities, denormals and zeros on any rank; all ranks flag the same, and only what is there."""
    comm = MPI.COMM_WORLD
    contributions = everyones(comm, count, dtype_named(dtype), seed=count)
    with np.errstate(all="ignore"):
        for rank, place, value in special:
            if rank < comm.size and place < count:
                contributions[rank][place] = value
        mine = contributions[comm.rank].copy()
        with plan(comm, mine, op=getattr(mpi_allreduce, op), algorithm=algorithm, codec=codec, nan="pass") as made:
            result = made().copy()
            assert_same_bits(comm, result)
            found = made.last_run.flags if made.last_run else Flags.NONE
        everything = np.array(contributions).astype(np.float64)
    assert len(set(comm.allgather(found))) == 1
    encoded = comm.size > 1 and algorithm not in ("shared", "hierarchical") and count > 0
    if encoded and not np.isfinite(everything).all():
        assert found & Flags.NONFINITE
    limit = min(get_codec(codec).largest, 6e4 if dtype == "float16" else 1e38)
    if np.abs(everything).sum(axis=0).max(initial=0) < limit:  # nor could any partial sum, or its error, be too large
        assert found == Flags.NONE or np.abs(everything).max() > 1e4


@pytest.mark.parametrize("algorithm", [*names(), "auto"])
def test_all_ranks_agree_what_to_do_about_one_nan(comm, algorithm):
    if comm.size == 1:
        pytest.skip("a single rank encodes nothing")
    mine = np.ones(3000, np.float32)
    for codec in ("fp16", "int8", "topk:0.01", "randomk:0.5"):
        made = {nan: plan(comm, mine, algorithm=algorithm, codec=codec, nan=nan) for nan in ("raise", "pass", "skip")}
        for guilty in range(comm.size):
            mine[:] = 1
            if comm.rank == guilty:
                mine[[0, 1500, 2999][guilty % 3]] = np.nan
            with pytest.raises(NonFiniteError, match="holds infinity or NaN"):
                made["raise"]()
            assert not made["skip"]().any()
            made["pass"]()
            assert all(each.last_run.flags == Flags.NONFINITE for each in made.values())
        mine[:] = 1
        for each in made.values():
            assert np.isfinite(each()).all()
            assert each.last_run.flags == Flags.NONE


def test_an_overflow_is_reported_and_predividing_cures_it(comm):
    if comm.size == 1:
        pytest.skip("a single rank encodes nothing")
    mine = np.full(100, 49_152, np.float32)
    with pytest.raises(NonFiniteError, match=r"too large for fp16, whose largest is 655.*fp16:predivide=N"):
        allreduce(comm, mine, codec="fp16")
    assert np.array_equal(allreduce(comm, mine, codec="fp16:predivide=8"), mine * comm.size)


@pytest.mark.parametrize("layout", ["one node", "one rank per node", "pairs", "first alone", "round robin"])
@pytest.mark.parametrize("codec", ["int8", "threshold:0.1"])
def test_hierarchical_encodes_between_nodes_only(comm, on_nodes, layout, codec):
    cluster = on_nodes(layout)
    for count in (1, 1000, 200_000):
        contributions = everyones(comm, count)
        mine = contributions[comm.rank].copy()
        made = plan(cluster, mine, algorithm="hierarchical", codec=codec, nan="skip")
        result = made().copy()
        assert_same_bits(comm, result)
        exact = np.sum(contributions, axis=0, dtype=np.float64)
        if layout == "one node":
            assert np.allclose(result, exact, rtol=1e-5, atol=1e-5)
            assert made.sent_bytes == 0
        if codec == "int8":
            assert np.linalg.norm(result - exact) <= 0.03 * np.linalg.norm(exact) + 1e-6
        several = layout in ("one rank per node", "pairs", "first alone", "round robin") and comm.size > 2
        if several:
            mine[0] = np.inf if comm.rank == comm.size - 1 else 1
            assert not made().any(), "ranks without a rail must hear of it, too"
            assert made.last_run.flags == Flags.NONFINITE
            mine[0] = 1
            assert made().any(), "the next run is another one"
            assert made.last_run.flags == Flags.NONE


def test_auto_with_a_codec_encodes_each_contribution_once(comm, on_nodes):
    made = plan(comm, np.ones(100, np.float32), codec="int8")
    assert made.algorithm == "pairwise"
    assert "encoded once" in made.choice.reason
    if comm.size >= 4:
        assert plan(on_nodes("pairs"), np.ones(100, np.float32), codec="int8").algorithm == "hierarchical:pairwise"


@pytest.mark.parametrize("algorithm", [*names(), "hierarchical"])
def test_what_is_dropped_is_owed_by_someone(comm, on_nodes, algorithm):
    """Over any number of steps: the sum of the results and of all residuals is that of all contributions."""
    cluster = on_nodes("pairs") if algorithm == "hierarchical" else comm
    for codec in ("int4", "topk:0.05", "onebit"):
        check_what_is_owed(comm, cluster, algorithm, codec)


def check_what_is_owed(comm, cluster, algorithm, codec):
    count, steps = 2000, 5
    feedback = ErrorFeedback({"a": 1500, "b": 500}, np.float64)
    mine, total = np.empty(count), np.zeros(count)
    contributed = np.zeros(count)
    for step in range(steps):
        if step == 2:  # other parameters in other places: what they owe goes along
            with plan(cluster, np.zeros(500), algorithm=algorithm, codec=codec, error_feedback=feedback.bucket(["b"])):
                pass
        mine[:] = everyones(comm, count, np.float64, seed=step)[comm.rank]
        with plan(cluster, mine, algorithm=algorithm, codec=codec, error_feedback=feedback) as made:
            total += made()
        contributed += mine
    owed = np.concatenate([feedback.residual("a"), feedback.residual("b")])
    sends = comm.size > (2 if algorithm == "hierarchical" else 1)
    assert (comm.allreduce(np.abs(owed).max(), MPI.MAX) > 0.01) == sends
    np.testing.assert_allclose(total + comm.allreduce(owed), comm.allreduce(contributed), atol=2e-5 * comm.size)


def test_allreduce_follows_what_is_owed_to_other_buckets(comm):
    """The same arrays and the same feedback again, after its parameters were moved: no plan of before may be used."""
    feedback = ErrorFeedback({"a": 700, "b": 300})
    mine, result = everyones(comm, 1000)[comm.rank], np.empty(1000, np.float32)
    total = np.zeros(1000)
    for step in range(6):
        if step % 2:
            feedback.bucket(["b"])
            feedback.bucket(["b", "a"])
        total += allreduce(comm, mine, result, algorithm="pairwise", codec="int2", error_feedback=feedback)
    owed = np.concatenate([feedback.residual("a"), feedback.residual("b")]).astype(np.float64)
    np.testing.assert_allclose(total + comm.allreduce(owed), 6 * comm.allreduce(mine.astype(np.float64)), atol=1e-3)


def test_feedback_makes_the_mean_of_many_steps_exact(comm):
    """int4 over 256 steps of the same gradient: 100 times closer; two-sided closer than contributors alone."""
    if comm.size == 1:
        pytest.skip("a single rank encodes nothing")
    mine = everyones(comm, 4096)[comm.rank]
    exact = comm.allreduce(mine.astype(np.float64))
    errors = {}
    for kind, feedback in (
        ("none", None),
        ("contributors", ErrorFeedback(4096, two_sided=False)),
        ("two-sided", ErrorFeedback(4096)),
    ):
        made = plan(comm, mine, algorithm="pairwise", codec="int4", error_feedback=feedback)
        mean = sum(made().astype(np.float64) for _ in range(256)) / 256
        errors[kind] = np.linalg.norm(mean - exact) / np.linalg.norm(exact)
    assert errors["none"] > 100 * errors["two-sided"]
    assert errors["none"] > 1.2 * errors["contributors"] > 1.2 * 2 * errors["two-sided"]


def test_momentum_correction_sends_the_momentum_of_what_was_held_back(comm):
    """Where a sparse codec sends everything, it clears velocities; where little, they sum up as momentum does."""
    if comm.size == 1:
        pytest.skip("a single rank encodes nothing")
    ones = np.ones(64, np.float32)
    everything = ErrorFeedback(64, momentum=0.5)
    made = plan(comm, ones, algorithm="binomial_tree", codec="topk:1", error_feedback=everything)
    for _ in range(3):
        assert np.array_equal(made(), ones * comm.size)
    little = ErrorFeedback(64, momentum=0.5)
    made = plan(comm, ones, algorithm="binomial_tree", codec="topk:0.015625", error_feedback=little)
    for _ in range(3):
        made()
    if comm.rank == comm.size - 1 and comm.size in (2, 4, 8):  # a leaf, which adds up nothing but its own
        held = np.sort(little.residual())[-1]
        assert held == 1 + 1.5 + 1.75


@pytest.mark.parametrize("algorithm", ["binomial_tree", "pairwise", "ring"])
def test_a_codec_that_sends_every_element_keeps_the_momentum(comm, algorithm):
    if comm.size == 1:
        pytest.skip("a single rank encodes nothing")
    feedback = ErrorFeedback(64, momentum=0.5)
    made = plan(comm, np.ones(64, np.float32), algorithm=algorithm, codec="fp16", error_feedback=feedback)
    for velocity in (1, 1.5, 1.75):
        assert np.array_equal(made(), np.full(64, velocity * comm.size))


def test_feedback_goes_on_bit_by_bit_from_a_file(comm, tmp_path):
    mine = everyones(comm, 3000)[comm.rank]
    results = []
    feedback = ErrorFeedback({"w": 2000, "b": 1000})
    for step in range(6):
        if step == 3:
            with h5py.File(tmp_path / f"{comm.rank}.h5", "w") as file:
                feedback.save(file.create_group("state"))
        results.append(allreduce(comm, mine, algorithm="pairwise", codec="int2", error_feedback=feedback.bucket()))
    resumed = ErrorFeedback({"w": 2000, "b": 1000})
    with h5py.File(tmp_path / f"{comm.rank}.h5") as file:
        resumed.load(file["state"])
    for expected in results[3:]:
        again = allreduce(comm, mine, algorithm="pairwise", codec="int2", error_feedback=resumed.bucket())
        assert np.array_equal(again, expected)


def test_a_nan_does_not_stay_in_the_residual(comm):
    feedback = ErrorFeedback(100)
    mine = np.ones(100, np.float32)
    made = plan(comm, mine, algorithm="pairwise", codec="fp16", nan="skip", error_feedback=feedback)
    mine[3] = np.nan
    made()
    mine[:] = 1
    assert np.isfinite(made()).all()
    assert np.isfinite(feedback.residual()).all()


def test_each_iallreduce_draws_anew(comm):
    if comm.size == 1:
        pytest.skip("a single rank encodes nothing")
    mine = np.ones(1000, np.float32)
    chosen = [iallreduce(comm, mine, codec="randomk:0.1").wait() for _ in range(3)]
    assert not np.array_equal(chosen[0], chosen[1])
    assert not np.array_equal(chosen[1], chosen[2])


def test_a_single_rank_heeds_its_policy_too(comm):
    mine = np.array([1, np.nan, 3], np.float32)
    with pytest.raises(NonFiniteError):
        allreduce(MPI.COMM_SELF, mine, codec="fp16")
    assert not allreduce(MPI.COMM_SELF, mine, codec="fp16", nan="skip").any()


def test_many_encoded_runs_in_flight_do_not_mix(comm):
    rng = np.random.default_rng(comm.rank)
    algorithms, codecs = (
        ["ring", "pairwise", "recursive_doubling", "circulant"],
        ["fp16", "int8", "topk:0.01", "threshold:0.1"],
    )
    made = [
        plan(comm, everyones(comm, 500 * (i + 1), seed=i)[comm.rank], algorithm=algorithms[i % 4], codec=codecs[i // 4])
        for i in range(16)
    ]
    expected = [each().copy() for each in made]
    for _ in range(10):
        for each in made:
            each.recvbuf[:] = 0
        for i in rng.permutation(16):
            made[i].start()
        for i in rng.permutation(16):
            assert np.array_equal(made[i].wait(), expected[i])


def test_the_digest_finds_a_rank_that_differs(comm, monkeypatch):
    if comm.size == 1:
        pytest.skip("a single rank has nothing to compare")
    mine = np.ones(1000, np.float32)
    made = plan(comm, mine, algorithm="pairwise", codec="fp16", digest=True)
    assert np.array_equal(made(), mine * comm.size)
    if comm.rank == comm.size - 1:
        decode = Packer.decode

        def flip_a_bit(self, wire, out, first):
            decode(self, wire, out, first)
            out.view(np.uint32)[0] ^= 1

        monkeypatch.setattr(Packer, "decode", flip_a_bit)
    broken = plan(comm, mine, algorithm="pairwise", codec="fp16", digest=True)
    with pytest.raises(DivergedError, match="the ranks hold different results"):
        broken()
    assert np.array_equal(allreduce(comm, mine, algorithm="ring", digest=True), mine * comm.size)


def test_powersgd_is_exact_for_matrices_of_low_rank_and_owes_the_rest(comm):
    rng = np.random.default_rng(comm.rank)
    left = np.random.default_rng(99).standard_normal((60, 3))
    low = left @ rng.standard_normal((3, 40))
    for algorithm in ("auto", "ring", "vendor", "hierarchical"):
        result = allreduce(comm, low, algorithm=algorithm, codec="powersgd:3")
        np.testing.assert_allclose(result, comm.allreduce(low), atol=1e-9)
        assert_same_bits(comm, result)
    full = rng.standard_normal((60, 40))
    feedback = ErrorFeedback(full.size, np.float64)
    made = plan(comm, full, codec="powersgd:2", error_feedback=feedback)
    total = sum(made().copy() for _ in range(30))
    assert_same_bits(comm, made.recvbuf)
    owed = feedback.residual().reshape(60, 40)
    np.testing.assert_allclose(total + comm.allreduce(owed), 30 * comm.allreduce(full), atol=1e-9)
    assert made.sent_bytes == sum(
        plan(comm, np.zeros(n), algorithm=made.algorithm).sent_bytes for n in (60 * 2, 40 * 2)
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"codec": "fp17"}, ValueError, "unknown name 'fp17'.*Did you mean 'fp16'"),
        ({"codec": 16}, TypeError, "expected a name such as"),
        ({"codec": "int8", "op": mpi_allreduce.MAX}, ValueError, "with op SUM or AVG, not with MAX"),
        ({"codec": "int8", "algorithm": "vendor"}, ValueError, "vendor cannot use one, as the MPI library sends"),
        ({"codec": "int8", "reproducible": True}, ValueError, "cannot use one, as what a codec drops depends"),
        ({"codec": "int8", "nan": "ignore"}, ValueError, "nan: expected raise, pass, skip, got 'ignore'"),
        ({"codec": "powersgd"}, ValueError, r"needs a 2-D array with elements, got shape \(10,\)"),
        ({"error_feedback": ErrorFeedback(10)}, ValueError, "without a codec nothing is dropped"),
        ({"codec": "int8", "error_feedback": ErrorFeedback(9)}, ValueError, "has 9 elements of float32, but"),
        ({"codec": "int8", "error_feedback": 3}, TypeError, "expected an ErrorFeedback"),
        ({"codec": "int8", "error_feedback": ErrorFeedback(10), "algorithm": "shared"}, ValueError, "shared sends no"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_is_refused_before_anything_is_sent(comm, arguments, error, message):
    for call in (allreduce, plan, iallreduce):
        with pytest.raises(error, match=message):
            call(comm, np.ones(10, np.float32), **arguments)
    with pytest.raises(TypeError, match="int8 encodes float32, float64, float16, bfloat16, not int32"):
        plan(comm, np.ones(10, np.int32), codec="int8")


def test_the_mean_is_that_of_the_decoded_sum(comm):
    mine = everyones(comm, 1000)[comm.rank]
    total = allreduce(comm, mine, algorithm="ring", codec="bf16")
    assert np.array_equal(allreduce(comm, mine, op=AVG, algorithm="ring", codec="bf16"), total / np.float32(comm.size))
