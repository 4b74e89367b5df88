"""An execution that is made of several allreduces, with work of its own between them."""

from abc import abstractmethod
from collections.abc import Iterable

from .execution import Execution
from .nodes import OnNode
from .progress import Progress

__all__ = ["InStages"]


class InStages(Execution):
    """Allreduces that follow each other.

    Parameters
    ----------
    stages : iterable of Execution
        Of one kind.
    """

    def __init__(self, stages: Iterable[Execution]):
        self.stages = list(stages)
        sent = [stage.sent_bytes for stage in self.stages]
        self.sent_bytes = None if None in sent else sum(sent)
        self.scratch_bytes = sum(stage.scratch_bytes for stage in self.stages)
        self.resources = [resource for stage in self.stages for resource in stage.resources]
        self.reusable = all(stage.reusable for stage in self.stages)
        self.at = 0

    def progress(self) -> Progress:
        """In turn, where the stages are, as others must not come between them."""
        first = self.stages[0]
        return first.memory.in_turn(self.run) if isinstance(first, OnNode) else self.run()

    @abstractmethod
    def run(self) -> Progress:
        """All stages, and what is between them."""

    def stage(self, number: int) -> Progress:
        """Run one of them."""
        self.at = number
        stage = self.stages[number]
        for position in stage.run() if isinstance(stage, OnNode) else stage.progress():
            yield (number << 40) + position

    def where(self) -> str:
        return f"stage {self.at + 1} of {len(self.stages)}: {self.stages[self.at].where()}"
