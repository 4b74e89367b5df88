"""GradientSync on arrays of a device: buckets live there, and steps follow each other without waiting."""

import numpy as np
import pytest

from mpi_allreduce import GradientSync
from mpi_allreduce.codecs import device as codecs_of_devices
from mpi_allreduce.memory import arrays
from mpi_allreduce.runtime import awareness, staging
from tests.double import Double, DoublePacking

pytestmark = pytest.mark.mpi

SHAPES = {"embedding": (50, 4), "w": (30, 40), "b": (30,), "scale": ()}


@pytest.fixture
def device(monkeypatch):
    device = Double()
    monkeypatch.setattr(arrays, "cuda_device", lambda value: device)
    monkeypatch.setattr(codecs_of_devices, "make_packing", DoublePacking)
    return device


@pytest.mark.parametrize("aware", ["0", "1"])
@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("options", [{}, {"average": False, "progress": "none"}, {"codec": "bf16"}], ids=str)
def test_gradients_of_a_device_are_reduced_there(comm, device, monkeypatch, aware, place, options):
    monkeypatch.setenv(awareness.VARIABLE, aware)
    monkeypatch.setenv(staging.VARIABLE, place)
    parameters = {name: device.write(np.zeros(shape, np.float32)) for name, shape in SHAPES.items()}
    with GradientSync(comm, parameters, layers_per_bucket=2, algorithm="ring", **options) as sync:
        for step in range(3):
            gradients = [
                {
                    name: np.random.default_rng([step, rank, i]).integers(-2, 3, shape).astype(np.float32)
                    for i, (name, shape) in enumerate(SHAPES.items())
                }
                for rank in range(comm.size)
            ]
            names = list(np.random.default_rng(step).permutation(list(SHAPES)))
            for name in names[:3] if step == 1 else names:  # one without a gradient counts as zero
                sync.add(name, device.write(gradients[comm.rank][name]))
            for name, found in sync.wait().items():
                total = np.sum([each[name] for each in gradients], axis=0)
                if step == 1 and name == names[3]:
                    total = np.zeros_like(total)
                expected = total / np.float32(comm.size) if options.get("average", True) else total
                np.testing.assert_array_equal(device.get(found), expected)


def test_parameters_on_both_sides_are_refused(comm, device):
    with pytest.raises(TypeError, match="some are on a CUDA device, others are not"):
        GradientSync(comm, {"a": device.write(np.zeros(3, np.float32)), "b": np.zeros(3)})
