"""Error feedback belongs to parameters: it survives other buckets, and a file."""

import h5py
import numpy as np
import pytest

from mpi_allreduce import ErrorFeedback

RANGES = {"embedding/weight": 7, "bias": 0, "": 3, "head": 12}


def filled(momentum=0.0):
    feedback = ErrorFeedback(RANGES, momentum=momentum)
    bucket = feedback.bucket()
    bucket.residual[:] = np.random.default_rng(1).standard_normal(bucket.residual.size)
    if momentum:
        bucket.velocity[:] = np.random.default_rng(2).standard_normal(bucket.residual.size)
    return feedback


def test_other_buckets_find_what_their_parameters_owe():
    feedback = filled()
    before = feedback.state_dict()["residual"]
    first, second = feedback.bucket(["head", "embedding/weight"]), feedback.bucket([""])
    assert np.array_equal(first.residual, np.concatenate([before["head"], before["embedding/weight"]]))
    assert np.array_equal(second.residual, before[""])
    first.residual[:] += 1
    whole = feedback.bucket()
    assert np.array_equal(whole.residual[:7], before["embedding/weight"] + 1)
    assert feedback.bucket().residual is whole.residual, "the same bucket again must not move anything"


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_file_gives_back_every_bit(tmp_path, momentum):
    feedback = filled(momentum)
    feedback.residual("head")[0] = 1e-42  # a denormal
    with h5py.File(tmp_path / "state.h5", "w") as file:
        feedback.save(file.create_group("rank-0"))
    other = ErrorFeedback(RANGES, momentum=momentum)
    other.bucket(["head", ""])
    with h5py.File(tmp_path / "state.h5") as file:
        other.load(file["rank-0"])
    for kind, arrays in feedback.state_dict().items():
        assert set(arrays) == (set(RANGES) if momentum or kind == "residual" else set())
        for name, array in arrays.items():
            assert array.tobytes() == other.state_dict()[kind][name].tobytes()


def test_a_state_that_does_not_fit_changes_nothing():
    feedback = filled()
    before = feedback.state_dict()
    for damage, message in (
        (lambda s: s["residual"].pop("head"), "has the parameters"),
        (lambda s: s["residual"].update(head=np.zeros(3, np.float32)), "expected float32 of shape"),
        (lambda s: s["residual"].update(head=np.zeros(12)), "is float64"),
    ):
        state = feedback.state_dict()
        damage(state)
        with pytest.raises(ValueError, match=message):
            feedback.load_state_dict(state)
    assert np.array_equal(before["residual"]["head"], feedback.residual("head"))


def test_bad_arguments_are_named():
    with pytest.raises(KeyError, match="has no parameters"):
        filled().bucket(["tail"])
    with pytest.raises(ValueError, match="named twice"):
        filled().bucket(["head", "head"])
    with pytest.raises(TypeError, match="residuals are float32 or float64, got float16"):
        ErrorFeedback(3, np.float16)
    with pytest.raises(ValueError, match="0 <= momentum < 1"):
        ErrorFeedback(3, momentum=1)
