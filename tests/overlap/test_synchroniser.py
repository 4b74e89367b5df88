"""GradientSync on real ranks: the mean of all gradients, however they become ready, and nothing lost or hung."""

from contextlib import nullcontext

import numpy as np
import pytest
from mpi4py import MPI

from mpi_allreduce import GradientSync

pytestmark = pytest.mark.mpi

SHAPES = {"embedding": (50, 4), "w1": (30, 40), "b1": (30,), "w2": (10, 30), "b2": (10,), "scale": ()}
WAYS = {
    "defaults": {},
    "one bucket": {"bucket_bytes": 1 << 20, "first_bucket_bytes": 1 << 20},
    "small buckets": {"bucket_bytes": 200, "first_bucket_bytes": 40},
    "two layers": {"layers_per_bucket": 2},
    "ring": {"algorithm": "ring", "bucket_bytes": 1000},
    "hierarchical": {"algorithm": "hierarchical", "layers_per_bucket": 1},
    "vendor": {"progress": "vendor", "layers_per_bucket": 1},
    "none": {"progress": "none", "layers_per_bucket": 1},
    "thread": {"progress": "thread", "layers_per_bucket": 1, "algorithm": "ring"},
    "no rebuild": {"rebuild": False},
}


def everyones(comm, step, shapes=SHAPES):
    """Gradients of all ranks: small integers, whose sums nothing rounds."""
    return [
        {
            name: np.random.default_rng([step, rank, i]).integers(-8, 8, shape).astype(np.float32)
            for i, (name, shape) in enumerate(shapes.items())
        }
        for rank in range(comm.size)
    ]


def total(gradients, name):
    return np.sum([each[name] for each in gradients], axis=0)


@pytest.mark.parametrize("way", WAYS)
def test_the_sum_is_exact_in_any_order_of_readiness(comm, way):
    """Ready in another order on each rank and in each step, some of them written in place."""
    if way == "thread" and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("needs MPI_THREAD_MULTIPLE")
    with GradientSync(comm, SHAPES, average=False, **WAYS[way]) as sync:
        for step in range(4):
            gradients = everyones(comm, step)
            names = list(np.random.default_rng([step, comm.rank]).permutation(list(SHAPES)))
            for i, name in enumerate(names):
                if i % 2:
                    sync.add(name, gradients[comm.rank][name])
                else:
                    sync.gradients[name][...] = gradients[comm.rank][name]
                    sync.ready(name)
                sync.probe()
            result = sync.wait()
            for name, shape in SHAPES.items():
                assert result[name].shape == shape
                np.testing.assert_array_equal(result[name], total(gradients, name))
        assert sync.step == 4
        assert {n for bucket in sync.buckets for n in bucket.names} == set(SHAPES)


def test_gradients_are_views_of_their_bucket(comm):
    with GradientSync(comm, SHAPES, layers_per_bucket=3) as sync:
        first = sync.gradients["b2"]
        assert first.base is not None
        assert np.shares_memory(first.base, sync.gradients["w2"].base)


def test_buckets_are_rebuilt_once_in_the_order_seen_on_rank_0(comm):
    order = ["w2", "scale", "b1", "embedding", "b2", "w1"]
    with GradientSync(comm, SHAPES, layers_per_bucket=2) as sync:
        assert sync.buckets[0].names == ("scale", "b2"), "at first the reverse of the forward pass"
        for _ in range(2):
            for name in order if comm.rank == 0 else reversed(order):
                sync.add(name, np.ones(SHAPES[name]))
            sync.wait()
            assert [n for bucket in sync.buckets for n in bucket.names] == order


@pytest.mark.parametrize("missing", ["rank 0", "last rank", "everywhere"])
def test_a_parameter_without_gradient_counts_as_zero_and_hangs_nobody(comm, missing):
    absent = {"rank 0": comm.rank == 0, "last rank": comm.rank == comm.size - 1, "everywhere": True}[missing]
    with GradientSync(comm, SHAPES, average=False, layers_per_bucket=1) as sync:
        for step in range(3):
            gradients = everyones(comm, step)
            for rank, each in enumerate(gradients):
                if {"rank 0": rank == 0, "last rank": rank == comm.size - 1, "everywhere": True}[missing]:
                    each["w1"][...] = 0
            for name in SHAPES:
                if name != "w1" or not absent:
                    sync.add(name, gradients[comm.rank][name])
            np.testing.assert_array_equal(sync.wait()["w1"], total(gradients, "w1"))


def test_accumulation_keeps_what_only_an_earlier_micro_batch_used(comm):
    with GradientSync(comm, SHAPES, average=False, layers_per_bucket=2) as sync:
        for step in range(3):
            parts = [everyones(comm, 10 * step + k) for k in range(3)]
            for k, part in enumerate(parts):
                with sync.no_sync() if k < 2 else nullcontext():
                    for name in SHAPES:
                        if name != "embedding" or k == 0:  # used by the first micro-batch alone
                            sync.add(name, part[comm.rank][name])
            result = sync.wait()
            np.testing.assert_array_equal(result["embedding"], total(parts[0], "embedding"))
            np.testing.assert_array_equal(result["w1"], sum(total(part, "w1") for part in parts))


def test_unequal_batches_give_the_weighted_mean(comm):
    weights = [rank + 0.5 for rank in range(comm.size)]
    with GradientSync(comm, SHAPES, dtype=np.float64, layers_per_bucket=2) as sync:
        for step in range(2):
            gradients = everyones(comm, step)
            sync.begin(weight=weights[comm.rank])
            for name in SHAPES:
                sync.add(name, gradients[comm.rank][name])
            parts = [w * each["w1"].astype(np.float64) for w, each in zip(weights, gradients, strict=True)]
            expected = sum(parts) / sum(weights)
            np.testing.assert_allclose(sync.wait()["w1"], expected, rtol=1e-12)
        for name in SHAPES:  # a step without weights is a plain mean again
            sync.add(name, np.full(SHAPES[name], comm.rank))
        np.testing.assert_allclose(sync.wait()["w1"], (comm.size - 1) / 2)


def test_a_gradient_that_is_ready_twice_is_refused(comm):
    with GradientSync(comm, SHAPES) as sync:
        sync.add("b1", np.ones(30))
        with pytest.raises(ValueError, match="the gradient of 'b1' was ready in this step already"):
            sync.ready("b1")
        sync.wait()


def test_state_goes_on_bit_by_bit_though_buckets_were_rebuilt(comm):
    options = {"codec": "int4:stochastic", "error_feedback": True, "layers_per_bucket": 2, "algorithm": "pairwise"}
    order = list(np.random.default_rng(3).permutation(list(SHAPES)))

    def steps(sync, numbers):
        for step in numbers:
            gradients = everyones(comm, step)
            for name in order:
                sync.add(name, gradients[comm.rank][name])
            result = {name: view.copy() for name, view in sync.wait().items()}
        return result

    with GradientSync(comm, SHAPES, **options) as sync, GradientSync(comm, SHAPES, **options) as resumed:
        steps(sync, range(3))
        resumed.load_state_dict(sync.state_dict())
        expected, found = steps(sync, range(3, 6)), steps(resumed, range(3, 6))
        for name in SHAPES:
            np.testing.assert_array_equal(found[name], expected[name])


def test_the_timeline_tells_each_buckets_story_in_order(comm):
    with GradientSync(comm, SHAPES, layers_per_bucket=2, rebuild=False) as sync:
        for name in reversed(SHAPES):
            sync.add(name, np.ones(SHAPES[name]))
        sync.wait()
        kinds = [(event.kind, event.bucket) for event in sync.timeline.events]
        for bucket in range(3):
            story = [kind for kind, number in kinds if number == bucket]
            assert story[:3] == ["ready", "ready", "start"]
            assert story[-1] == "end"
            assert story[3:-1] in ([], ["first"]), "unknown where all was over when it was looked at"
        assert kinds.index(("wait", -1)) < kinds.index(("done", -1))
        seconds = [event.seconds for event in sync.timeline.events]
        assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"progress": "magic"}, "progress: expected auto, none, test, thread, vendor, got 'magic'"),
        ({"progress": "vendor", "codec": "fp16"}, "MPI_Iallreduce sends numbers as they are"),
        ({"layers_per_bucket": 0}, "layers_per_bucket: expected at least 1"),
        ({"bucket_bytes": 0}, "bucket_bytes: expected at least 1"),
        ({"error_feedback": True}, "without a codec nothing is dropped"),
    ],
)
def test_bad_arguments_are_named(comm, arguments, message):
    with pytest.raises(ValueError, match=message):
        GradientSync(comm, SHAPES, **arguments)
