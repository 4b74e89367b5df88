"""Codecs by name: ``fp16``, ``int8:block=128``, ``topk:0.01``."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from .codec import Codec

__all__ = ["NONE", "Family", "codec", "codec_names", "families", "get_codec"]

NONE = "none"


@dataclass(frozen=True)
class Family:
    """Codecs of one name, which differ by their parameters.

    Attributes
    ----------
    name : str
    make : callable
        ``make(name, **parameters)``: the codec, or a ValueError for bad parameters.
    parameters : dict
        Name -> function that reads its value from text; a bare value is the first one's.
    default : str
        Its parameters in a list of all codecs, where a bare name would say too little.
    needs : str
        A package that must be installed; empty if none beyond the usual.
    """

    name: str
    make: Callable[..., Codec]
    parameters: dict[str, Callable[[str], object]]
    default: str = ""
    needs: str = ""

    @property
    def example(self) -> str:
        """A full name."""
        return f"{self.name}:{self.default}" if self.default else self.name


_families: dict[str, Family] = {}


def codec(name: str, *, default: str = "", needs: str = "", **parameters: Callable[[str], object]) -> Callable:
    """Register what makes the codecs called ``name``; a name can be taken once."""

    def register(make: Callable[..., Codec]) -> Callable[..., Codec]:
        if name in _families:
            raise ValueError(f"codec {name!r} is registered already, by {_families[name].make.__module__}")
        _families[name] = Family(name, make, parameters, default, needs)
        return make

    return register


def families() -> list[Family]:
    """All families in order of registration."""
    return list(_families.values())


def codec_names() -> list[str]:
    """One full name of each family that can be used here, as it may be given as ``codec=``; without ``none``."""
    return [family.example for family in families() if not family.needs or find_spec(family.needs)]


@lru_cache(maxsize=256)
def get_codec(name: str) -> Codec | None:
    """The codec called ``name``; None for ``none``.

    Raises
    ------
    ValueError
        If there is none, or a parameter is wrong; the message says what would be accepted.
    ModuleNotFoundError
        If it needs a package that is not installed.
    """
    if name == NONE:
        return None
    base, colon, text = str(name).partition(":")
    family = _families.get(base)
    if family is None:
        near = difflib.get_close_matches(base, _families, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"codec: unknown name {name!r}; known are {NONE}, {', '.join(codec_names())}.{hint}")
    if family.needs and not find_spec(family.needs):
        raise ModuleNotFoundError(f'codec: {base} needs {family.needs}; pip install "mpi_allreduce[codecs]"')
    return family.make(name, **_parameters(family, text if colon else family.default, name))


def _parameters(family: Family, text: str, name: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals and key in family.parameters and family.parameters[key] is bool:
            values[key] = True
            continue
        if not equals:
            key, value = next(iter(family.parameters), ""), key
        if key not in family.parameters or family.parameters[key] is bool or key in values:
            known = ", ".join(k if read is bool else f"{k}=..." for k, read in family.parameters.items()) or "none"
            raise ValueError(f"codec: {name!r} has a parameter {item!r}; those of {family.name} are: {known}")
        try:
            values[key] = family.parameters[key](value)
        except ValueError:
            kind = {"int": "a whole number", "float": "a number"}[family.parameters[key].__name__]
            raise ValueError(f"codec: {family.name}'s {key} is {kind}, got {value!r} in {name!r}") from None
    return values
