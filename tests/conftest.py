"""Tests under mpirun: one voice, and a failure on any rank is everybody's.

``tests/run.py`` says by MPI_TEST_RANKS how many ranks there must be; the serial tests never start MPI themselves.
"""

import os
import tempfile
import traceback

import pytest
from hypothesis import HealthCheck, settings

# Examples must be the same on all ranks; and timing one on a shared, oversubscribed machine says nothing.
settings.register_profile(
    "tests", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def under_mpi(config) -> bool:
    return config.getoption("--only-mpi", False) or config.getoption("--with-mpi", False)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if not under_mpi(config):
        return
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    expected = int(os.environ.get("MPI_TEST_RANKS", world.size))
    if world.size != expected:
        pytest.exit(f"{expected} ranks were asked for, but MPI_COMM_WORLD has {world.size}", returncode=3)
    config.test_comm = world.Dup()
    # Pytest numbers and prunes the folders below its usual one without a lock: ranks get in each other's way there.
    own = tempfile.TemporaryDirectory(prefix=f"pytest-rank-{world.rank}-", ignore_cleanup_errors=True)
    config.add_cleanup(own.cleanup)
    config.option.basetemp = f"{own.name}/tests"
    if world.rank == 0 and "MPI_TEST_RESULTS" in os.environ:
        config.option.xmlpath = f"{os.environ['MPI_TEST_RESULTS']}/{world.size}.xml"


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    """Ranks other than 0 keep silent; what they have to say comes with rank 0's report."""
    config = session.config
    if under_mpi(config) and config.test_comm.rank > 0:
        config.pluginmanager.unregister(name="terminalreporter")


def pytest_report_header(config):
    if not under_mpi(config):
        return "serial tests; those that need MPI run under mpirun"
    from mpi4py import MPI

    library = MPI.Get_library_version().split("\n")[0].strip()
    return f"{config.test_comm.size} ranks, {library}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from fail_together(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from fail_together(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    return (yield from fail_together(item, "teardown"))


def fail_together(item, when):
    comm = getattr(item.config, "test_comm", None)
    if comm is None:
        return (yield)
    error, skip = None, None
    try:
        yield
    except pytest.skip.Exception as raised:
        skip = raised
    except BaseException as raised:
        error = raised
    texts = comm.allgather("".join(traceback.format_exception(error)) if error else None)
    for rank, text in enumerate(texts):
        if text and rank != comm.rank:
            item.add_report_section(when, f"on rank {rank}", text)
    if error:
        raise error
    failed = [rank for rank, text in enumerate(texts) if text]
    if failed:
        pytest.fail(f"failed on ranks {failed}", pytrace=False)
    if skip:
        raise skip
    return None


@pytest.fixture
def comm():
    """A communicator of all ranks, freed after the test."""
    from mpi4py import MPI

    duplicate = MPI.COMM_WORLD.Dup()
    yield duplicate
    duplicate.Free()
