"""`aorta`: configurations, traces and runs from the command line."""

from __future__ import annotations

import sys

import click

from pytest_aorta import __version__
from pytest_aorta.cli_config import config
from pytest_aorta.cli_runs import clean, runs
from pytest_aorta.cli_traces import traces
from pytest_aorta.errors import AortaError, ConfigError

_EXIT_CODES = (
    "Exit codes, of every command: 0 done; 1 what was looked at is not right, or something could not be done; "
    "2 the command line is wrong, or names what is not there."
)


@click.group(epilog=_EXIT_CODES)
@click.version_option(__version__, prog_name="aorta")
def cli() -> None:
    """GPU cluster validation: the tools beside `pytest --aorta-config=FILE`.

    Example: aorta config copy local_cpu.json ./my.json
    """


cli.add_command(config)
cli.add_command(traces)
cli.add_command(runs)
cli.add_command(clean)


def main() -> None:
    """Run `aorta`; a user's mistake is one sentence on stderr and exit 2, what could not be done is exit 1."""
    try:
        cli.main(standalone_mode=True)
    except ConfigError as error:
        _end(error, 2)
    except (AortaError, OSError) as error:
        _end(error, 1)


def _end(error: Exception, code: int) -> None:
    sys.stdout.flush()
    for line in str(error).splitlines() or [type(error).__name__]:
        print(f"aorta: {line}", file=sys.stderr)
    sys.exit(code)
