"""PyTorch's gloo beside our algorithms: the fraction of the line-rate bound that its allreduce reaches between hosts.

Usage, on the emulated cluster, with a Python that has torch (its CPU build is enough) and any mpirun to start it:

    jobs/lab up --nodes 6 --rate 100mbit
    jobs/lab run -n 6 -- env GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 python analysis/gloo.py 10.213.97.1 1e8

The arguments are the address of rank 0's host and the links' bits per second.  Ranks and their number are taken from
the launcher (MPICH, Intel MPI, Open MPI).  Printed are medians of the slowest rank.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

SIZES = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]


def main() -> int:
    address, rate = sys.argv[1], float(sys.argv[2])
    rank, size = (
        next(int(os.environ[name]) for name in names if name in os.environ)
        for names in (("PMI_RANK", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29500", rank=rank, world_size=size)
    for nbytes in SIZES:
        values, times = torch.empty(nbytes // 4), []
        for _ in range(max(5, min(60, int(3e7 / nbytes)))):
            values.fill_(1.0)
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(values)
            slowest = torch.tensor([time.perf_counter() - started], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            times.append(float(slowest))
        median = sorted(times[2:])[len(times[2:]) // 2]
        if rank == 0:
            print(
                f"{size} hosts, {nbytes >> 10} KiB: {2 * (size - 1) / size * nbytes * 8 / rate / median:.3f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
