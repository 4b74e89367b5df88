"""An execution that is made of several allreduces, with work of its own between them."""

from collections.abc import Iterable

from .execution import Execution
from .progress import Progress
from .turns import InTurn

__all__ = ["InStages"]


class InStages(InTurn):
    """Allreduces that follow each other; where they take turns, others must not come between them.

    Parameters
    ----------
    stages : iterable of Execution
        Of one kind, bound to tasks that are ``staged``.
    """

    def __init__(self, stages: Iterable[Execution]):
        self.stages = list(stages)
        sent = [stage.sent_bytes for stage in self.stages]
        self.sent_bytes = None if None in sent else sum(sent)
        self.scratch_bytes = sum(stage.scratch_bytes for stage in self.stages)
        self.resources = [resource for stage in self.stages for resource in stage.resources]
        self.reusable = all(stage.reusable for stage in self.stages)
        self.turns = self.stages[0].turns if isinstance(self.stages[0], InTurn) else None
        self.at = 0

    def stage(self, number: int) -> Progress:
        """Run one of them."""
        self.at = number
        stage = self.stages[number]
        for position in stage.run() if self.turns else stage.progress():
            yield (number << 40) + position

    def where(self) -> str:
        return f"stage {self.at + 1} of {len(self.stages)}: {self.stages[self.at].where()}"
