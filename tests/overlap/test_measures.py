"""What is hidden, against what could be; and true tables of models."""

import json
from math import prod

import pytest

from mpi_allreduce.overlap.measures import hidden, ideal_end
from mpi_allreduce.overlap.models import model


def test_a_bucket_begins_when_it_is_ready_and_the_one_before_has_ended():
    assert ideal_end([1, 2, 3], [0.5, 0.5, 0.5]) == 3.5
    assert ideal_end([1, 2, 3], [2, 2, 2]) == 7
    assert ideal_end([], []) == 0


def test_hidden_shares_follow_from_the_parts():
    """Computing takes 3, communicating 2; at best 3.5; it took 4."""
    found = hidden(iteration=4, computing=3, communicating=2, ideal=3.5)
    assert (found.exposed, found.ideal_exposed, found.share) == (1, 0.5, 0.5)
    assert found.of_ideal == pytest.approx(1 / 1.5)
    assert (found.osu, found.imb) == (50, 50)
    assert hidden(5, 3, 2, 3.5).share == 0
    assert hidden(6, 3, 2, 3.5).osu == 0


@pytest.mark.parametrize(
    ("name", "tensors", "numbers"), [("resnet50", 161, 25_557_032), ("bert-base", 199, 109_482_240)]
)
def test_models_have_the_published_number_of_parameters(name, tensors, numbers):
    shapes = model(name)
    assert len(shapes) == tensors
    assert sum(map(prod, shapes.values())) == numbers


def test_models_are_given_by_widths_or_by_a_file(tmp_path):
    assert model("mlp:4,3,2") == {
        "layer0.weight": (3, 4), "layer0.bias": (3,), "layer1.weight": (2, 3), "layer1.bias": (2,),
    }  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps({"a": [2, 3], "b": []}))
    assert model(str(tmp_path / "m.json")) == {"a": (2, 3), "b": ()}
    for bad in ("resnet51", "mlp:4", "mlp:4,0", "mlp:x"):
        with pytest.raises(ValueError, match="model: "):
            model(bad)
