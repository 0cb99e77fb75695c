"""State folders: where the node programs of a run keep, on its host, what outlives them."""

from __future__ import annotations

from pathlib import PurePosixPath

STATE_SUFFIX = ".node"


def state_dir_of(work_dir: str) -> str:
    """Name the state folder of a run's node program, beside the run's work folder so that it outlives that."""
    return f"{work_dir}{STATE_SUFFIX}"


def another_state_dir(state_dir: str, what: str) -> str:
    """Name the state folder of a further node program for a run, beside its own and with that suffix: a sweep sees it.

    No host's name has a plus sign, so it is no other host's.
    """
    own = PurePosixPath(state_dir)
    return str(own.with_name(f"{own.stem}+{what}{own.suffix}"))
