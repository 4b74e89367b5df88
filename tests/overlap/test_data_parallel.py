"""Training on real images and ranks: the gradient of many is that of one; killed and resumed runs end alike."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest

from mpi_allreduce.__main__ import main
from mpi_allreduce.errors import UsageError
from mpi_allreduce.overlap.data import load
from mpi_allreduce.overlap.networks import network
from mpi_allreduce.overlap.training import Trainer, TrainSettings

pytestmark = pytest.mark.mpi

QUICK = TrainSettings(network="mlp:16", epochs=3, batch=240, bucket_bytes=2000)


@pytest.fixture
def train(comm):
    def run(checkpoint=None, communicator=comm, **changes):
        trainer = Trainer(replace(QUICK, **changes), communicator, checkpoint)
        epochs = list(trainer.run())
        trainer.free()
        return trainer.parameters, epochs

    return run


@pytest.mark.parametrize("changes", [{}, {"accumulate": 4}, {"network": "conv", "epochs": 1}, {"batch": 239}])
def test_many_ranks_train_as_one_does(comm, train, changes):
    """The textbook's theorem, to the rounding of float32; also with unequal parts and micro-batches."""
    alone = comm.Split(comm.rank)
    mine, epochs = train(**changes)
    expected, ones = train(communicator=alone, **{**changes, "accumulate": 1})
    alone.Free()
    for name, values in mine.items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=2e-4 * np.abs(expected[name]).max() + 1e-5)
    assert [e.loss for e in epochs] == pytest.approx([e.loss for e in ones], rel=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"codec": "int4:stochastic", "error_feedback": True, "algorithm": "pairwise"},
        {"codec": "topk:0.05", "error_feedback": True, "momentum_correction": True},
        {"delay": 2, "codec": "int8", "error_feedback": True},
    ],
)
def test_a_run_that_was_interrupted_ends_with_the_same_bits(comm, train, tmp_path, changes):
    whole, epochs = train(**changes)
    checkpoint = tmp_path / "state"
    train(checkpoint, **{**changes, "epochs": 2})
    if comm.rank == 0:  # killed while it saved the second epoch
        (tmp_path / "state.rank0.0.h5").unlink()
    resumed, rest = train(checkpoint, **changes)
    assert [e.number for e in rest] == [2, 3]
    assert rest[-1].digest == epochs[-1].digest
    for name, values in whole.items():
        assert np.array_equal(values, resumed[name])
    with pytest.raises(UsageError, match="was made with"):
        train(checkpoint, **{**changes, "rate": 0.2})


def test_accumulation_sends_less_often_and_codecs_send_less(comm, train):
    if comm.size == 1:
        pytest.skip("a single rank sends nothing")
    plain = train(algorithm="ring")[1][0].sent_bytes
    assert train(algorithm="ring", batch=720)[1][0].sent_bytes == pytest.approx(plain / 3, rel=0.01)
    assert train(algorithm="ring", codec="fp16")[1][0].sent_bytes == pytest.approx(plain / 2, rel=0.15)  # and headers


def test_training_learns_and_stale_gradients_learn_less(train):
    fresh = train(epochs=6, rate=0.2)[1]
    stale = train(epochs=6, rate=0.2, delay=8)[1]
    assert fresh[-1].accuracy > 0.85
    assert fresh[-1].loss < stale[-1].loss


@pytest.mark.parametrize("delay", [1, 3, 8])
def test_a_stale_update_uses_the_gradient_of_so_many_steps_ago(comm, train, delay):
    """Also across the ends of epochs, which are 6 steps long: the same as a plain loop on one rank."""
    settings = replace(QUICK, epochs=3, delay=delay)
    found, _ = train(delay=delay)
    data, net = load(settings.data), network(settings.network, 64, 10)
    parameters, velocity, waiting = net.initial(settings.seed), {}, []
    for epoch in range(1, settings.epochs + 1):
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(data.images))
        for first in range(0, len(order), settings.batch):
            batch, gradients = order[first : first + settings.batch], {}
            net.gradient(parameters, data.images[batch], data.labels[batch], len(batch), gradients.__setitem__)
            waiting.append(gradients)
            if len(waiting) > delay:
                for name, gradient in waiting.pop(0).items():
                    velocity[name] = settings.momentum * velocity.get(name, 0) + gradient
                    parameters[name] = (parameters[name] - settings.rate * velocity[name]).astype(np.float32)
    for name, values in parameters.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-4 * np.abs(values).max() + 1e-5)


def test_the_command_prints_an_epoch_a_line_and_records_it(comm, capsys, tmp_path):
    path = tmp_path / "t.h5"
    options = ["train", "--epochs", "2", "--network", "mlp:8", "--codec", "int8", "--error-feedback"]
    assert main([*options, "--out", str(path)]) == 0
    out = capsys.readouterr().out
    if comm.rank == 0:
        lines = out.splitlines()
        assert "with error feedback" in lines[0]
        assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
        with h5py.File(path) as file:
            training = file["train-0001/0001"]
            assert json.loads(training["settings"][()])["codec"] == "int8"
            epochs = training["epochs"][()]
        assert [f"{e['loss']:.4f} {e['accuracy']:.4f} {e['digest']:08x}" for e in epochs] == [
            " ".join(np.array(line.split())[[1, 2, 6]]) for line in lines[2:4]
        ]
    else:
        assert out == ""
    assert main(["train", "--epochs", "0"]) == 2
    if comm.rank == 0:
        (tmp_path / "other.h5").write_text("no record")
    assert main([*options, "--out", str(tmp_path / "other.h5")]) == 2
