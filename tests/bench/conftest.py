"""A whole launch of the benchmark on the ranks of the test."""

from dataclasses import replace

import pytest

from mpi_allreduce.bench import read


@pytest.fixture
def bench(request, comm, tmp_path_factory, capsys):
    """``bench(**changes)`` runs the module's QUICK settings with changes: (right, rows, path, what was printed)."""
    from mpi_allreduce.bench.run import RIGHT, check_settings, run

    path = comm.bcast(tmp_path_factory.mktemp("bench") / "r.h5" if comm.rank == 0 else None)

    def launch(**changes):
        settings = replace(request.module.QUICK, **changes)
        check_settings(settings)
        right = run(settings, path, comm) == RIGHT
        return right, comm.bcast(read(path) if comm.rank == 0 else None), path, capsys.readouterr().out

    return launch
