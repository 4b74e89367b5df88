"""Gradients written by hand are those that small differences show; and parts of a batch add up to the whole."""

import numpy as np
import pytest

from mpi_allreduce.overlap.data import load
from mpi_allreduce.overlap.networks import ConvolutionNet, Mlp, network

NETWORKS = {"mlp": Mlp([64, 7, 5, 10]), "conv 8": ConvolutionNet(8, (3, 4)), "conv 9": ConvolutionNet(9, (2, 3), 4)}


def example(net):
    rng = np.random.default_rng(0)
    pixels = getattr(net, "side", 8) ** 2
    classes = list(net.shapes.values())[-1][0]
    parameters = {name: rng.standard_normal(shape) * 0.3 for name, shape in net.shapes.items()}
    return parameters, rng.random((12, pixels)), rng.integers(0, classes, 12)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_small_differences(name):
    net = NETWORKS[name]
    parameters, images, labels = example(net)
    gradients, order = {}, []

    def keep(name, gradient):
        gradients[name] = gradient
        order.append(name)

    net.gradient(parameters, images, labels, 12, keep)
    assert set(order) == set(net.shapes)
    assert [net.shapes[n] for n in order] == [gradients[n].shape for n in order]
    rng = np.random.default_rng(1)
    for name, values in parameters.items():
        direction = rng.standard_normal(values.shape)
        losses = []
        for sign in (1, -1):
            moved = {**parameters, name: values + sign * 1e-6 * direction}
            losses.append(net.gradient(moved, images, labels, 12, lambda *_: None))
        slope = (losses[0] - losses[1]) / 2e-6
        assert slope == pytest.approx(float((gradients[name] * direction).sum()), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_parts_of_a_batch_add_up_to_the_whole(name):
    net = NETWORKS[name]
    parameters, images, labels = example(net)
    whole, parts = {}, dict.fromkeys(net.shapes, 0)
    net.gradient(parameters, images, labels, 12, whole.__setitem__)
    for part in (slice(0, 5), slice(5, 5), slice(5, 12)):
        net.gradient(parameters, images[part], labels[part], 12, lambda n, g: parts.__setitem__(n, parts[n] + g))
    for key, gradient in whole.items():
        np.testing.assert_allclose(parts[key], gradient, rtol=1e-10, atol=1e-12)


def test_the_data_is_real_and_split_for_good():
    data = load("digits")
    assert (data.images.shape, data.test_images.shape) == ((1437, 64), (360, 64))
    assert 0 <= data.images.min() < data.images.max() == 1
    assert set(np.unique(data.labels)) == set(range(10))


def test_names_that_mean_nothing_are_refused():
    for name in ("mlp:0", "mlp:a", "conv:3", "rnn"):
        with pytest.raises(ValueError, match="network: expected mlp, conv"):
            network(name, 64, 10)
    with pytest.raises(ValueError, match="data: expected digits, mnist"):
        load("letters")
