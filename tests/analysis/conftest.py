"""The programs of ``analysis/`` import each other from their own folder, as when they are run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "analysis"))
