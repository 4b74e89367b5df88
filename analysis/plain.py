"""What plans cost, and gain, beside plain mpi4py: Sendrecv and NumPy's add in a loop, as in a textbook.

Usage: mpirun -n 2 python analysis/plain.py            # microseconds for a round of 8 bytes
       mpirun -n 32 python analysis/plain.py 1K 1M     # a textbook ring against our algorithms, on few cores

Repetitions of all contestants take turns; printed are medians of the slowest rank.
"""

import sys
from time import perf_counter

import numpy as np
from mpi4py import MPI

from mpi_allreduce import plan
from mpi_allreduce.runtime import is_vendor
from mpi_allreduce.units import format_bytes, parse_bytes

SECONDS = 15.0  # for each size
ALGORITHMS = ("recursive_doubling", "rabenseifner", "ring", "circulant", "shared", "auto", "vendor")


def plain_ring(comm, send, receive):
    """The ring as one would write it: blocks of equal length, a temporary for what arrives."""
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    blocks = np.array_split(receive, size)
    arrived = [np.empty_like(block) for block in blocks]

    def run():
        receive[...] = send
        for step in range(size - 1):
            out, into = (rank - step) % size, (rank - step - 1) % size
            comm.Sendrecv(blocks[out], right, recvbuf=arrived[into], source=left)
            blocks[into] += arrived[into]
        for step in range(size - 1):
            comm.Sendrecv(blocks[(rank + 1 - step) % size], right, recvbuf=blocks[(rank - step) % size], source=left)

    return run


def plain_round(comm, send, receive):
    """One Sendrecv and one add, its arguments prepared as well as mpi4py allows."""
    peer = comm.rank ^ 1
    mine, arrived = [send.view(np.uint8), send.nbytes, MPI.BYTE], np.empty_like(send)
    theirs = [arrived.view(np.uint8), arrived.nbytes, MPI.BYTE]
    sendrecv, add = comm.Sendrecv, np.add

    def run():
        sendrecv(mine, peer, 0, theirs, peer, 0)
        add(send, arrived, out=receive)

    return run


def medians(comm, contestants, seconds):
    """Median seconds of the slowest rank, for each contestant; they take turns, batch by batch."""
    times = {name: [] for name in contestants}
    number = 1
    end = perf_counter() + seconds
    while comm.bcast(perf_counter() < end or min(map(len, times.values())) < 5):
        for name, run in contestants.items():
            run()
            comm.Barrier()
            started = perf_counter()
            for _ in range(number):
                run()
            times[name].append(comm.allreduce((perf_counter() - started) / number, MPI.MAX))
        slowest = max(min(values) for values in times.values())
        number = max(1, min(1000, int(0.05 / slowest)))
    return {name: float(np.median(values[1:])) for name, values in times.items()}


def rounds(comm):
    """Between two ranks recursive doubling is one round: what does a plan add to it?"""
    send, receive = np.ones(2, np.float32), np.empty(2, np.float32)
    contestants = {
        "plain Sendrecv + add": plain_round(comm, send, receive),
        "plan, recursive_doubling": plan(comm, send, receive, algorithm="recursive_doubling"),
    }
    plain, ours = (seconds * 1e6 for seconds in medians(comm, contestants, SECONDS).values())
    if comm.rank == 0:
        print(f"a round of 8 bytes: plain {plain:.2f} us, plan {ours:.2f} us, so a plan costs {ours - plain:+.2f} us")


def rings(comm, size):
    """The textbook's ring against the plans."""
    send = np.ones(max(size // 4, comm.size), np.float32)
    receive = np.empty_like(send)
    contestants = {"plain ring": plain_ring(comm, send, receive)}
    contestants |= {name: plan(comm, send, receive, algorithm=name) for name in ALGORITHMS}
    found = medians(comm, contestants, SECONDS)
    if comm.rank == 0:
        print(f"{format_bytes(send.nbytes)}, {comm.size} ranks, milliseconds:")
        for name, seconds in found.items():
            mark = (
                ""
                if is_vendor(name) or name == "plain ring"
                else f"   {found['plain ring'] / seconds:6.1f} x the plain ring's speed"
            )
            print(f"  {name:20} {seconds * 1e3:9.3f}{mark}")


def main(arguments):
    """Rounds between two ranks without arguments, rings with sizes."""
    comm = MPI.COMM_WORLD
    if not arguments and comm.size != 2:
        sys.exit("plain.py: give sizes (1K 1M), or run it on 2 ranks")
    if not arguments:
        rounds(comm)
    for text in arguments:
        rings(comm, parse_bytes(text))


if __name__ == "__main__":
    main(sys.argv[1:])
