"""Memory: whether the limit of a container ended what ran in it, which only its control group tells for certain."""

from __future__ import annotations

import re

from pytest_aorta.fleet.ask import Ask
from pytest_aorta.run.context import RunContext

LOOK_SECONDS = 10
# Of the two versions of control groups, as a container sees its own; one of each pair is there.
EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_KILLS = re.compile(r"^oom_kill ([1-9]\d*)$", re.MULTILINE)
_LIMIT = re.compile(r"^(\d+)$", re.MULTILINE)


def why_killed(run: RunContext, host: str) -> str:
    """Give, to be put behind a death by SIGKILL, that the container's memory limit did it; nothing where it did not."""
    if not run.is_inside:
        return ""
    ask = Ask("run", {"argv": ["cat", *EVENTS, *LIMITS], "timeout_s": LOOK_SECONDS}, LOOK_SECONDS + 5)
    told = "".join(str(answer["stdout"]) for answer in run.inside.perform({host: ask}).values())
    if _KILLS.search(told) is None:
        return ""
    limit = _LIMIT.search(told)
    size = f" of {int(limit[1]) // 2**20} MiB" if limit else ""
    return f": its container's memory limit{size} was reached"
