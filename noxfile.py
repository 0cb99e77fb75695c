"""The test matrix: what `make test` runs, on other versions of pytest and Python."""

from __future__ import annotations

import nox

nox.options.sessions = ["pytest84", "newest"]
nox.options.default_venv_backend = "venv"

PLUGIN_TESTS = ["-m", "not torch and not gpu and not lab and not slow"]


@nox.session
def pytest84(session: nox.Session) -> None:
    """Run the plugin's tests without torch on the oldest pytest that is supported."""
    session.install(".[test]", "pytest==8.4.*")
    session.run("python", "-m", "pytest", "-n", "auto", *PLUGIN_TESTS, *session.posargs)


@nox.session
def newest(session: nox.Session) -> None:
    """Run the plugin's tests without torch on the newest pytest."""
    session.install(".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *PLUGIN_TESTS, *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """Run the tests that take minutes or gigabytes."""
    session.install(".[test,excel]")
    session.run("python", "-m", "pytest", "-m", "slow", *session.posargs)
