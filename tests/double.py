"""A device for tests without one: arrays in host memory that NumPy must not touch, and queues that work late.

Whatever is queued is done when somebody waits for it, and not before.  So a message that is sent before its queue was
settled carries old numbers, and a result that is read in the user's queue without waiting is not there yet; besides,
asking for an array's address, as mpi4py does when a message starts, fails while work on it is pending.
"""

import sys

import numpy as np

from mpi_allreduce.codecs import Packer
from mpi_allreduce.codecs.device import DevicePacking
from mpi_allreduce.memory.device import Device, Queue

PROOF = "print('right')"


def real_device(local_rank):
    """The real one, with a user's stream of its own, and what a test does as the user."""
    import cupy

    from mpi_allreduce.memory.cuda import local_device

    device = local_device(local_rank)
    cupy.cuda.Stream(non_blocking=True).use()

    def write(values):
        array = device.empty(values.size, values.dtype).reshape(values.shape)
        device.put(array, values)
        return array

    device.write, device.checked = write, None
    device.array_type = cupy.ndarray
    return device


def has_device():
    """Whether there is a real one."""
    try:
        from mpi_allreduce.memory.cuda import number_of_devices
    except ModuleNotFoundError:
        return False
    return number_of_devices() > 0


class DoubleArray:
    """A contiguous array of the device; what the user does with it is put into the user's queue."""

    def __init__(self, device, memory):
        self.device = device
        self.memory = memory

    shape = property(lambda self: self.memory.shape)
    size = property(lambda self: self.memory.size)
    dtype = property(lambda self: self.memory.dtype)
    nbytes = property(lambda self: self.memory.nbytes)
    itemsize = property(lambda self: self.memory.itemsize)
    flags = property(lambda self: self.memory.flags)
    strides = property(lambda self: self.memory.strides)
    ndim = property(lambda self: self.memory.ndim)

    def __len__(self):
        return len(self.memory)

    def reshape(self, *shape):
        return DoubleArray(self.device, self.memory.reshape(*shape))

    def view(self, dtype):
        return DoubleArray(self.device, self.memory.view(dtype))

    def __getitem__(self, part):
        return DoubleArray(self.device, self.memory[part])

    def __setitem__(self, part, values):
        values = values.memory if isinstance(values, DoubleArray) else np.array(values)
        self.device.user.put(lambda: self.memory.__setitem__(part, values), self.memory)

    def __array_ufunc__(self, ufunc, method, *inputs, out):
        plain = [x.memory if isinstance(x, DoubleArray) else x for x in inputs]
        self.device.user.put(lambda: ufunc(*plain, out=out[0].memory), out[0].memory)
        return out[0]

    def copy(self):
        made = self.device.empty(self.size, self.dtype).reshape(self.shape)
        made[...] = self
        return made

    def __array__(self, *_, **__):
        raise AssertionError("NumPy was given memory of the device")

    @property
    def __cuda_array_interface__(self):
        caller = sys._getframe(1)
        if caller.f_code.co_name == "<listcomp>":  # a frame of its own before Python 3.12
            caller = caller.f_back
        if caller.f_code.co_name in MESSAGES:
            self.device.check_settled(self.memory)
        interface = self.memory.__array_interface__
        return {**interface, "version": 3, "strides": None}


MESSAGES = {"progress", "__call__", "_run_among_others", "make", "call"}  # functions that call MPI's to start one


class DoubleQueue(Queue):
    """Works in order, when it must."""

    def __init__(self, device):
        self.device = device
        self.pending = []  # (function, memories that it touches)
        self.done = 0  # pieces of work
        device.queues.append(self)

    def put(self, function, *touched):
        self.pending.append((function, touched))

    def run(self, function, *arguments, **keywords):
        everything = [*arguments, *keywords.values()]
        for argument in arguments:  # lists of operands
            everything += [part for _, part in argument] if isinstance(argument, list) else []
        touched = [a.memory for a in everything if isinstance(a, DoubleArray)]
        self.put(lambda: function(*arguments, **keywords), *touched)

    def copy(self, target, source):
        self.put(lambda: np.copyto(target.memory, source.memory), target.memory, source.memory)

    def download(self, target, source):
        assert target.nbytes == source.nbytes
        self.device.crossed += source.nbytes
        self.put(lambda: np.copyto(target, source.memory), source.memory)

    def upload(self, target, source):
        assert target.nbytes == source.nbytes
        self.put(lambda: np.copyto(target.memory, source), target.memory)

    def follow_user(self):
        user, place = self.device.user, self.device.user.end
        self.put(lambda: user.work_until(place))

    def lead_user(self):
        place = self.end
        self.device.user.put(lambda: self.work_until(place))

    def mark(self):
        place, asked = self.end, []

        def is_done():
            asked.append(None)
            if len(asked) > 2:  # late, but not never
                self.work_until(place)
            return self.done >= place

        return is_done

    def synchronise(self):
        self.work_until(self.end)

    @property
    def end(self):
        return self.done + len(self.pending)

    def work_until(self, place):
        while self.done < place:
            function, _ = self.pending.pop(0)
            self.done += 1
            function()


class DoublePacking(DevicePacking):
    """The host's, on the double's memory."""

    def __init__(self, device, codec):
        self.packer = Packer(codec, np.dtype(np.float32))

    def encode(self, values, packet, flags, key):
        self.packer.key = key
        self.packer.encode(values.memory, packet.memory, 0, int(flags.memory[0]), contribution=True)
        flags.memory[0] = packet.memory[0]

    def combine(self, operands, out, flags):
        plain = [(encoded, operand.memory) for encoded, operand in operands]
        if len(plain) == 1:
            self.packer.decode(plain[0][1], out.memory, 0)
        else:
            self.packer.combine(plain, out.memory, 0)
        for encoded, memory in plain:
            flags.memory[0] |= memory[0] if encoded else 0


class Double(Device):
    """The device; ``user`` is the user's current queue."""

    name = identity = description = "double:0"
    proof = PROOF

    array_type = DoubleArray

    def __init__(self):
        self.queues = []
        self.user = DoubleQueue(self)
        self.checked = 0  # messages that started, and found their memory settled
        self.crossed = 0  # bytes that went down to the host

    def array(self, given):
        return given

    def empty(self, count, dtype):
        return DoubleArray(self, np.full(count * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype))

    def pinned(self, nbytes):
        return np.full(nbytes, 0x5A, np.uint8)

    def borrowed(self, array):
        return array.reshape(-1)

    def kernel(self, op, dtype):
        kernel = op.kernel(dtype, 1 << 20)
        return lambda left, right, out: kernel(left.memory, right.memory, out=out.memory)

    def divide(self, array, size):
        from mpi_allreduce.memory.operators import divide

        self.user.put(lambda: divide(array.memory, size), array.memory)

    def queue(self):
        return DoubleQueue(self)

    def put(self, array, values):
        values = values.copy()
        self.user.put(lambda: np.copyto(array.memory, values), array.memory)

    def get(self, array):
        """What an array holds when the user's queue has come so far, not waiting for any other."""
        found = np.empty(array.shape, array.dtype)
        self.user.put(lambda: np.copyto(found, array.memory), array.memory)
        self.user.synchronise()
        return found

    def wait(self):
        self.user.synchronise()

    def write(self, values):
        """An array of the device that will hold ``values``, once the user's queue has come so far."""
        array = self.empty(values.size, values.dtype).reshape(values.shape)
        self.put(array, values)
        return array

    def check_settled(self, memory):
        """No queue has work left that touches this memory, but the user's may lead others."""
        self.checked += 1
        for queue in self.queues:
            for _, touched in queue.pending:
                if any(np.shares_memory(memory, other) for other in touched):
                    raise AssertionError("a message starts while work on its memory is still queued")
