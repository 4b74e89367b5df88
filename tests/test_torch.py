"""The hook on real DistributedDataParallel processes, and plain models: as without it, or with fewer bytes."""

import os
import socket

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
pytestmark = [pytest.mark.mpi, pytest.mark.filterwarnings("ignore")]  # PyTorch's own warnings are its affair

STEPS = 12


@pytest.fixture
def group(comm):
    """A gloo process group of the same ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = comm.bcast(probe.getsockname()[1])
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size
    )
    yield
    torch.distributed.destroy_process_group()


def a_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10)
    )


def batches(comm):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    for step in range(STEPS):
        mine = slice((step * comm.size + comm.rank) * 16, (step * comm.size + comm.rank + 1) * 16)
        yield torch.tensor(images[mine] / 16, dtype=torch.float32), torch.tensor(labels[mine])


def losses(comm, model, after_backward=lambda: None):
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for images, labels in batches(comm):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        after_backward()
        optimiser.step()
        found.append(comm.allreduce(float(loss.detach())) / comm.size)
    return found


def with_hook(comm, **options):
    from mpi_allreduce.torch import HookState, hook

    model = a_model()
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    state = HookState(model, comm, **options)
    ddp.register_comm_hook(state, hook)
    found = losses(comm, ddp)
    digests = comm.allgather(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    assert len(set(digests)) == 1
    return found, state


def test_the_loss_curve_is_ddps_own_and_fp16_halves_the_bytes(comm, group):
    expected = losses(comm, torch.nn.parallel.DistributedDataParallel(a_model(), bucket_cap_mb=0.05))
    assert expected[-1] < expected[0]
    plain, state = with_hook(comm, algorithm="ring")
    np.testing.assert_allclose(plain, expected, rtol=1e-5)
    half, half_state = with_hook(comm, algorithm="ring", codec="fp16")
    np.testing.assert_allclose(half, expected, rtol=1e-2)
    if comm.size > 1:
        assert half_state.sent_bytes == pytest.approx(state.sent_bytes / 2, rel=0.01)


def test_error_feedback_follows_parameters_when_ddp_rebuilds_its_buckets(comm, group):
    _, state = with_hook(comm, codec="topk:0.05", error_feedback=True)
    owed = [float(np.abs(state.feedback.residual(name)).max()) for name in state.feedback.ranges]
    assert comm.size == 1 or min(comm.allreduce(owed[i]) for i in range(len(owed))) > 0


def test_a_plain_model_is_synchronised_in_one_call(comm):
    from mpi_allreduce.torch import sync_gradients

    model = a_model()
    found = losses(comm, model, lambda: sync_gradients(model, comm, layers_per_bucket=2))
    alone = a_model()
    gathered = [comm.allgather(batch) for batch in batches(comm)]
    optimiser = torch.optim.SGD(alone.parameters(), 0.1)
    expected = []
    for everyones in gathered:
        optimiser.zero_grad()
        images, labels = (torch.cat(parts) for parts in zip(*everyones, strict=True))
        loss = torch.nn.functional.cross_entropy(alone(images), labels)
        loss.backward()
        optimiser.step()
        expected.append(float(loss.detach()))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
