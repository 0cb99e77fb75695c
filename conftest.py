"""Settings of this project's own tests."""

from __future__ import annotations

pytest_plugins = ["pytester"]
