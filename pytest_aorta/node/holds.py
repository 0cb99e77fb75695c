"""Holds: folders that this node program keeps for its run, so that no other run writes into them meanwhile."""

from __future__ import annotations

import fcntl
import os

from .requests import Answer, CommandError


class Holds:
    """Locks on folders; the system lets go of them when the process ends, however it ends."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def take(self, path: str) -> Answer:
        """Hold a folder; `held` is False where the file system has no locks.

        Raises:
            CommandError: another program holds it, or it cannot be opened.
        """
        if path in self._descriptors:
            return {"held": True}
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise CommandError("failed", f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise CommandError("failed", f"another run that is going on works in {path}") from None
        except OSError:
            os.close(descriptor)
            return {"held": False}
        self._descriptors[path] = descriptor
        return {"held": True}
