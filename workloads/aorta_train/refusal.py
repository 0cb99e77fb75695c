"""What ends a run without a traceback.

Refusal          the user's configuration or machine does not fit; nothing was started (exit 2)
TrainingFailed   the training itself went wrong in a known way, such as a loss that is no number (exit 1)
"""

from __future__ import annotations

from collections.abc import Iterable


class Refusal(Exception):
    """One or more faults of the configuration, each a sentence; nothing was started."""

    def __init__(self, faults: Iterable[str] | str) -> None:
        self.faults = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class TrainingFailed(Exception):
    """The training cannot go on; the message says on which rank and at which step, what was seen, and what to do."""
