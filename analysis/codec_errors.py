"""How far encoded sums are from the exact one, on real ranks: one line for each codec and schedule, with its bound.

Usage: mpirun -n P python analysis/codec_errors.py [ELEMENTS]

Relative L2 errors against the sum in float64: on standard normal deviates; on heavy tails (Cauchy, cut at 1e4), of
which one outlier spoils whatever shares its scale; and of the mean of 256 steps of the same gradient, without error
feedback, with it on the contributors' side only, and on both sides.
"""

import sys

import numpy as np
from mpi4py import MPI

import mpi_allreduce as ma

COMM = MPI.COMM_WORLD
CASES = [
    ("fp16", "pairwise"), ("fp16", "ring"), ("bf16", "pairwise"), ("fp8_e4m3", "pairwise"), ("int8", "pairwise"),
    ("int8", "recursive_doubling"), ("int8", "binomial_tree"), ("int8", "ring"), ("int8:stochastic", "pairwise"),
    ("int8:tensor", "pairwise"), ("int4", "pairwise"), ("topk:0.01", "pairwise"),
]  # fmt: skip
STEPS = 256
FED_BACK = ["int8", "int4", "int2", "onebit", "topk:0.01"]


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 18
    rng = np.random.default_rng([1, COMM.rank])
    normal = rng.standard_normal(count, np.float32)
    heavy = rng.standard_cauchy(count).clip(-1e4, 1e4).astype(np.float32)
    say(f"{COMM.size} ranks, {count} elements of float32; relative L2 error\n")
    say(f"{'codec':16}{'algorithm':20}{'normal':>10}{'heavy tails':>13}{'bound (normal)':>16}")
    for codec, algorithm in CASES:
        errors, limits = [], []
        for data in (normal, heavy):
            with ma.plan(COMM, data, algorithm=algorithm, codec=codec) as run:
                errors.append(relative_error(run(), data))
                limits.append(relative_limit(run.error_bound, data))
        beyond = "  EXCEEDED" if any(e > limit for e, limit in zip(errors, limits, strict=True)) else ""
        bound = f"{limits[0]:.2e}" if limits[0] < float("inf") else "none"
        say(f"{codec:16}{algorithm:20}{errors[0]:10.2e}{errors[1]:13.2e}{bound:>16}{beyond}")
    say(f"\nmean of {STEPS} steps of the same gradient, pairwise, {min(count, 1 << 14)} elements")
    say(f"{'codec':16}{'no feedback':>14}{'contributors':>14}{'both sides':>14}")
    data = normal[: 1 << 14].copy()
    for codec in FED_BACK:
        without, one, both = (
            averaged_error(data, codec, feedback)
            for feedback in (None, ma.ErrorFeedback(data.size, two_sided=False), ma.ErrorFeedback(data.size))
        )
        say(f"{codec:16}{without:14.2e}{one:14.2e}{both:14.2e}")
    return 0


def averaged_error(data: np.ndarray, codec: str, feedback: ma.ErrorFeedback | None) -> float:
    with ma.plan(COMM, data, algorithm="pairwise", codec=codec, error_feedback=feedback) as run:
        total = np.zeros(data.shape)
        for _ in range(STEPS):
            total += run()
        return relative_error(total / STEPS, data)


def relative_error(result: np.ndarray, data: np.ndarray) -> float:
    exact = COMM.allreduce(data.astype(np.float64))
    return float(np.linalg.norm(result - exact) / np.linalg.norm(exact))


def relative_limit(bound, data: np.ndarray) -> float:
    norms = COMM.allreduce(float(np.linalg.norm(data.astype(np.float64))))
    exact = COMM.allreduce(data.astype(np.float64))
    return (bound.relative * norms + bound.absolute * data.size**0.5) / float(np.linalg.norm(exact))


def say(text: str) -> None:
    if COMM.rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
