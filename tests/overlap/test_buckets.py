"""Buckets: in order of readiness, a small one first, parameters whole; and the timeline that a viewer can read."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.overlap import Timeline, by_bytes, by_layers, chrome_trace


def test_buckets_are_filled_up_to_their_cap_and_the_first_is_small():
    counts = {"a": 10, "b": 10, "c": 10, "d": 100, "e": 5}
    made = by_bytes(counts, "abcde", 4, limit=100, first=50)
    assert [bucket.names for bucket in made] == [("a",), ("b", "c"), ("d",), ("e",)]
    assert [bucket.names for bucket in by_layers(counts, "edcba", 2)] == [("e", "d"), ("c", "b"), ("a",)]
    assert made[1].places == {"b": slice(0, 10), "c": slice(10, 20)}


@given(
    sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=30),
    limit=st.integers(1, 5000),
    first=st.integers(1, 5000),
    layers=st.integers(1, 40),
)
def test_every_parameter_is_in_one_bucket_in_order_and_none_is_larger_than_it_must_be(sizes, limit, first, layers):
    counts = {f"p{i}": size for i, size in enumerate(sizes)}
    made = by_bytes(counts, list(counts), 4, limit, first)
    assert [name for bucket in made for name in bucket.names] == list(counts)
    for i, bucket in enumerate(made):
        assert len(bucket.names) == 1 or bucket.count * 4 <= (limit if i else min(first, limit))
    for before, after in itertools.pairwise(made[1:]):
        assert (before.count + after.counts[0]) * 4 > limit, "could have been in the bucket before"
    assert [name for bucket in by_layers(counts, list(counts), layers) for name in bucket.names] == list(counts)


def test_a_timeline_orders_each_step_and_forgets_the_oldest_of_very_many(monkeypatch):
    monkeypatch.setattr("mpi_allreduce.overlap.timeline.MOST_EVENTS", 10)
    timeline = Timeline()
    timeline.begin()
    for step in range(9):
        for seconds in (2, 1):
            timeline.add(step, "end", 0, seconds=10 * step + seconds)
        timeline.end_step()
        seconds = [event.seconds for event in timeline.events]
        assert seconds == sorted(seconds)
        assert len(seconds) <= 12
        assert timeline.events[-1].step == step


def test_a_trace_has_a_process_for_each_rank_and_a_bar_for_each_bucket():
    timeline = Timeline()
    timeline.begin()
    for kind, bucket, name in (
        ("ready", 0, "w"), ("start", 0, ""), ("first", 0, ""), ("wait", -1, ""), ("end", 0, ""), ("done", -1, ""),
    ):  # fmt: skip
        timeline.add(7, kind, bucket, name)
    events = json.loads(chrome_trace([timeline, timeline]))["traceEvents"]
    bars = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["name"]) for e in bars} == {
        (r, n) for r in (0, 1) for n in ("allreduce of bucket 0", "exposed")
    }
    assert all(e["dur"] >= 0 and e["args"]["step"] == 7 for e in bars)
    assert [e["name"] for e in events if e["ph"] == "i"] == ["ready w", "first message arrived"] * 2
    assert 0 <= events[0]["ts"] < 1e6
    assert 0 < timeline.exposed_seconds(7) < 1
