"""Measure every link of the lab with MPI messages: `jobs/lab check` runs it with one rank on each host.

Usage: linkcheck.py BITS_PER_SECOND.  In turn each rank sends to the next while all others are silent; so the time of a
message is that of one link out of a host and one into another.
"""

import statistics
import sys

import numpy as np
from mpi4py import MPI

SECONDS = 0.3  # for each message
MESSAGES = 3  # for each link; the median counts, as this machine's cores are shared
FRAMING = 0.94  # of the rate is left to payload by Ethernet, IP and TCP headers
TOLERANCE = 0.05


def main() -> int:
    """Print a row for each link; the exit status says whether all are as fast as they should be."""
    comm = MPI.COMM_WORLD
    rate = float(sys.argv[1])
    payload = np.zeros(max(int(rate / 8 * SECONDS), 1), np.uint8)
    fractions = []
    for sender in range(comm.size if comm.size > 1 else 0):
        fractions.append(fraction_of_rate(comm, payload, sender, (sender + 1) % comm.size, rate))
    names = comm.gather(MPI.Get_processor_name())
    if comm.rank:
        return 0
    print(f"{'link':>12} {'Mbit/s':>8} {'of the rate':>12}")
    for sender, fraction in enumerate(fractions):
        ends = f"{names[sender]} -> {names[(sender + 1) % comm.size]}"
        print(f"{ends:>12} {fraction * rate / 1e6:8.2f} {fraction:11.1%}")
    print_bound(comm.size, rate)
    bad = [f for f in fractions if not FRAMING - TOLERANCE <= f <= 1.0]
    print(f"{len(fractions) - len(bad)} links as fast as they should be ({FRAMING:.0%} of the rate), {len(bad)} not")
    return 1 if bad else 0


def fraction_of_rate(comm: MPI.Intracomm, payload: np.ndarray, sender: int, receiver: int, rate: float) -> float:
    """Payload bits per second over one pair of links, as a fraction of the rate; the same on all ranks."""
    opening = payload[:65536]  # opens the connection, and empties the bucket's burst
    times = []
    comm.Barrier()
    for part in (opening, *[payload] * MESSAGES):
        start = MPI.Wtime()
        if comm.rank == sender:
            comm.Send(part, receiver)
            comm.Recv(payload[:1], receiver)
        elif comm.rank == receiver:
            comm.Recv(part, sender)
            comm.Send(payload[:1], sender)
        times.append(MPI.Wtime() - start)
    seconds = comm.bcast(statistics.median(times[1:]), sender)
    return payload.nbytes * 8 / seconds / rate


def print_bound(ranks: int, rate: float) -> None:
    """No allreduce over these links is faster than 2 (p - 1) / p times the buffer through one of them."""
    for size, name in ((1 << 14, "16 KiB"), (1 << 20, "1 MiB"), (1 << 23, "8 MiB")):
        seconds = 2 * (ranks - 1) / ranks * size * 8 / rate
        print(f"line-rate bound of an allreduce of {name} on {ranks} hosts: {seconds * 1e3:.2f} ms")


if __name__ == "__main__":
    sys.exit(main())
