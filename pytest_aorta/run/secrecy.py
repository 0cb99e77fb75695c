"""Secrecy: keeping the configuration's secrets out of everything that a run says or writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_aorta.config.redact import scrub_line, scrub_value, without_passwords

# The node program cuts overlong lines and says so; what stands before the mark may be the first half of a secret.
_CUT = re.compile(r"\s*\[\d+ bytes of this line cut\]$")
_TELLING_CHARS = 4


def clean_line(line: str, secrets: tuple[str, ...]) -> str:
    """Give a line of a workload's output without secrets, also without the beginning of one at a cut."""
    if not secrets:
        return without_passwords(line)
    cleaned = scrub_line(line, secrets)
    mark = _CUT.search(cleaned)
    if mark is None:
        return cleaned
    kept, cut = cleaned[: mark.start()], cleaned[mark.start() :]
    for secret in secrets:
        for length in range(min(len(secret) - 1, len(kept)), _TELLING_CHARS - 1, -1):
            if kept.endswith(secret[:length]):
                return kept[:-length] + cut
    return cleaned


def cleaned(value: Any, secrets: tuple[str, ...]) -> Any:
    """Give a copy of a document (mappings, lists, scalars) with the secrets taken out of every text in it."""
    if isinstance(value, str):
        return scrub_value(value, secrets) if "://" in value or any(secret in value for secret in secrets) else value
    if isinstance(value, Mapping):
        return {cleaned(key, secrets): cleaned(child, secrets) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(child, secrets) for child in value]
    return value
