"""Holds: folders that this node program keeps for its run, so that no other run writes into them meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os

from .requests import Answer, CommandError


class Holds:
    """Locks on folders; the system lets go of them when the process ends, however it ends."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def take(self, path: str) -> Answer:
        """Hold a folder; `held` is False where the file system has no locks.

        The folders above it are shared with others that work below them, so that nobody holds one of those meanwhile.

        Raises:
            CommandError: another program holds the folder, one above it or one below, or it cannot be opened.
        """
        path = os.path.realpath(path)
        if path in self._descriptors:
            return {"held": True}
        try:
            held = self._lock(path, fcntl.LOCK_EX)
        except OSError as error:
            raise CommandError("failed", f"{path} cannot be opened: {error.strerror}") from error
        above = os.path.dirname(path)
        while held and above != os.path.dirname(above):
            with contextlib.suppress(OSError):  # one that this user cannot open is left out
                self._lock(above, fcntl.LOCK_SH)
            above = os.path.dirname(above)
        return {"held": held}

    def _lock(self, path: str, kind: int) -> bool:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            said = f"another run that is going on works in {path}, or below it; wait for it, or name another folder"
            raise CommandError("failed", said) from None
        except OSError:
            os.close(descriptor)
            return False
        self._descriptors[path] = descriptor
        return True
