"""What a simulated machine costs: the numbers of the cost model."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["FORMAT", "Machine"]

FORMAT = "mpi_allreduce.machine"


@dataclass(frozen=True)
class Machine:
    """Seconds.

    Attributes
    ----------
    alpha : float
        Of each message, from its start to its end, apart from its bytes; the software of both sides included.
    beta : float
        Of each byte through a node's link.
    gamma : float
        Of each byte that is reduced.
    local_alpha, local_beta : float
        The same between ranks of one node.
    eager_bytes : int
        Messages of up to so many bytes are sent though nobody waits for them; larger ones begin when both are there.
    name : str
    """

    alpha: float = 5e-6
    beta: float = 8 / 100e9
    gamma: float = 1 / 8e9
    local_alpha: float = 1e-6
    local_beta: float = 1 / 8e9
    eager_bytes: int = 8192
    name: str = "a network of 100 Gbit/s"

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Machine":
        """Read what :meth:`save` wrote; other keys (intervals, where it was measured) are left alone.

        Raises
        ------
        ValueError
        """
        try:
            values = json.loads(path.read_text())
            if values.get("format") != FORMAT:
                raise ValueError(f"it is no {FORMAT}")
            return cls(**{key: values[key] for key in cls.__dataclass_fields__ if key in values})
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"machine: {path}: {error}") from None
