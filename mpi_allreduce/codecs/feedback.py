"""Error feedback: what encoding drops is remembered, and sent with a later run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["ErrorFeedback", "Residual"]

Observer = Callable[[slice, np.ndarray, np.ndarray], None]


@dataclass(frozen=True)
class Residual:
    """The state for one buffer.

    Attributes
    ----------
    residual : ndarray, shape (count,)
        What is owed; during a run, what this rank contributes.
    velocity : ndarray, shape (count,), or None
        With momentum correction: the momentum of each element since it was last sent.
    momentum : float
    two_sided : bool
        Whether the owner of a block keeps what its last encoding drops, too.
    """

    residual: np.ndarray
    velocity: np.ndarray | None
    momentum: float
    two_sided: bool

    @property
    def identity(self) -> tuple:
        """Equal where the state is the same memory."""
        return _address(self.residual), self.residual.size, self.residual.dtype, self.momentum, self.two_sided

    def part(self, part: slice) -> "Residual":
        """The state for a slice of the buffer."""
        velocity = None if self.velocity is None else self.velocity[part]
        return Residual(self.residual[part], velocity, self.momentum, self.two_sided)

    def add(self, contribution: np.ndarray) -> None:
        """Add what is owed to a contribution; ``residual`` then holds the sum."""
        if self.velocity is None:
            np.add(self.residual, contribution, out=self.residual)
            return
        np.multiply(self.velocity, self.velocity.dtype.type(self.momentum), out=self.velocity)
        np.add(self.velocity, contribution, out=self.velocity)
        np.add(self.residual, self.velocity, out=self.residual)

    def observer(self, origin: int, *, holders: int, first: bool, last: bool, sparse: bool) -> Observer:
        """What is to be called with each chunk: (its place, the values, what will be decoded).

        Parameters
        ----------
        origin : int
            The place of this part's first element.
        holders : int
            So many ranks encode the same bits, and share what is dropped.
        first : bool
            What the residual holds was used up, or is the values themselves.
        last : bool
            The values are the final result.
        sparse : bool
            Momentum is cleared where something was sent (momentum factor masking).
        """
        residual, velocity = self.residual, self.velocity if sparse else None
        forget = last and not self.two_sided

        def observe(place: slice, values: np.ndarray, decoded: np.ndarray) -> None:
            here = slice(place.start - origin, place.stop - origin)
            owed = residual[here]
            if forget:
                if first:
                    owed[:] = 0
            elif first:
                np.subtract(values, decoded, out=owed)
                if holders > 1:
                    np.divide(owed, owed.dtype.type(holders), out=owed)
            else:
                owed += (values - decoded) / owed.dtype.type(holders)
            if velocity is not None and first:  # later encodings are of sums, not of what this rank has summed up
                velocity[here][decoded != 0] = 0

        return observe

    def forget_nonfinite(self) -> None:
        """Infinity and NaN would stay for ever."""
        for array in (self.residual, self.velocity):
            if array is not None:
                array[~np.isfinite(array)] = 0


class ErrorFeedback:
    """Residuals of named ranges of parameters, to be used with any plan that reduces them.

    Every rank keeps its own.  Residuals belong to parameters: they outlive plans and buckets, and are moved when
    parameters are put into other buckets.

    Parameters
    ----------
    ranges : int or mapping of str to int
        Number of elements of each parameter; one number for a single unnamed one.
    dtype : dtype
        float32 or float64, that of the gradients.
    two_sided : bool
        Keep also what the owner of a block drops when it encodes the result (double squeeze); else only what each rank
        drops of its contribution.
    momentum : float
        Of momentum correction: each rank sums up the momentum of its gradient, and sends that.  The optimiser then must
        have none.  Sparse codecs clear it where something was sent, as in deep gradient compression.  0 for none.

    A run whose result is refused or skipped (see ``nan``) has sent what was owed all the same: that is lost.

    Source: S. U. Stich et al.: Sparsified SGD with memory, NeurIPS 2018; two-sided, H. Tang et al.: DoubleSqueeze, ICML
    2019; momentum correction and masking, Y. Lin et al.: Deep gradient compression, ICLR 2018.

    Examples
    --------
    >>> feedback = ErrorFeedback({"weight": 512, "bias": 16})
    >>> feedback.bucket(["bias", "weight"]).residual.shape
    (528,)
    """

    def __init__(
        self,
        ranges: int | Mapping[str, int],
        dtype: np.dtype | type = np.float32,
        *,
        two_sided: bool = True,
        momentum: float = 0.0,
    ):
        dtype = np.dtype(dtype)
        if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(f"dtype: residuals are float32 or float64, got {dtype}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum: expected 0 <= momentum < 1, got {momentum}")
        self.ranges = {"": int(ranges)} if isinstance(ranges, int | np.integer) else dict(ranges)
        for name, count in self.ranges.items():
            if count < 0:
                raise ValueError(f"ranges: {name!r} has {count} elements")
        self.dtype = dtype
        self.two_sided = two_sided
        self.momentum = momentum
        self._residual = {name: np.zeros(count, dtype) for name, count in self.ranges.items()}
        self._velocity = {name: np.zeros(count, dtype) for name, count in self.ranges.items()} if momentum else None

    def bucket(self, names: Iterable[str] | None = None) -> Residual:
        """The state for a buffer that holds these parameters one after the other; all of them if left out.

        What they owe moves there: a plan made for another bucket with one of them must not be run any more.

        Raises
        ------
        KeyError, ValueError
            For unknown names, and names given twice.
        """
        names = list(self.ranges if names is None else names)
        unknown = [name for name in names if name not in self.ranges]
        if unknown:
            raise KeyError(f"error_feedback: has no parameters {unknown}; known are {list(self.ranges)}")
        if len(set(names)) < len(names):
            raise ValueError(f"error_feedback: a parameter is named twice in {names}")
        velocity = None if self._velocity is None else self._gathered(self._velocity, names)
        return Residual(self._gathered(self._residual, names), velocity, self.momentum, self.two_sided)

    def residual(self, name: str = "") -> np.ndarray:
        """What this rank owes of one parameter; the array itself."""
        return self._residual[name]

    def reset(self) -> None:
        """Owe nothing."""
        for arrays in (self._residual, self._velocity or {}):
            for array in arrays.values():
                array[:] = 0

    def state_dict(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of all there is: ``{"residual": {name: array}, "velocity": {name: array}}``; this rank's."""
        return {
            kind: {name: array.copy() for name, array in (arrays or {}).items()}
            for kind, arrays in (("residual", self._residual), ("velocity", self._velocity))
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Put back what :meth:`state_dict` gave, bit for bit, whatever the buckets were then.

        Raises
        ------
        ValueError
            If parameters, sizes or dtypes are others; nothing is changed then.
        """
        mine = {"residual": self._residual, "velocity": self._velocity or {}}
        for kind, arrays in mine.items():
            given = state.get(kind, {})
            if set(given) != set(arrays):
                raise ValueError(f"state: {kind} has the parameters {sorted(given)}, expected {sorted(arrays)}")
            for name, array in arrays.items():
                if np.shape(given[name]) != array.shape or given[name].dtype != array.dtype:
                    raise ValueError(
                        f"state: {kind} of {name!r} is {given[name].dtype} of shape {np.shape(given[name])}, expected "
                        f"{array.dtype} of shape {array.shape}"
                    )
        for kind, arrays in mine.items():
            for name, array in arrays.items():
                np.copyto(array, state[kind][name])

    def save(self, group) -> None:
        """Write all there is to an h5py group; one for each rank."""
        for kind, arrays in self.state_dict().items():
            part = group.create_group(kind)
            for name, array in arrays.items():
                # HDF5 takes "/" for a path and has no empty names; so names are attributes.
                part.create_dataset(str(len(part)), data=array).attrs["name"] = name

    def load(self, group) -> None:
        """Read what :meth:`save` wrote; as :meth:`load_state_dict`."""
        self.load_state_dict(
            {kind: {part.attrs["name"]: part[()] for part in group[kind].values()} for kind in ("residual", "velocity")}
        )

    def _gathered(self, arrays: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
        """One array for a bucket; what it is made of become views of it."""
        if len(names) == 1:
            return arrays[names[0]]
        present = arrays[names[0]].base if names else None
        if present is not None and _is_made_of(present, [arrays[name] for name in names]):
            return present
        whole = np.concatenate([arrays[name] for name in names]) if names else np.empty(0, self.dtype)
        start = 0
        for name in names:
            arrays[name] = whole[start : start + self.ranges[name]]
            start += self.ranges[name]
        return whole


def _is_made_of(whole: np.ndarray, parts: list[np.ndarray]) -> bool:
    """Whether ``parts`` are views that make up the one-dimensional array ``whole``, in this order."""
    address = _address(whole)
    for part in parts:
        if part.base is not whole or (part.size and _address(part) != address):
            return False
        address += part.nbytes
    return address == _address(whole) + whole.nbytes


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
