"""The dry run: what would be done, stage by stage and host by host, without connecting to anything."""

from __future__ import annotations

import pytest

from pytest_aorta.config.redact import scrub
from pytest_aorta.errors import ConfigError
from pytest_aorta.plugin import Activation
from pytest_aorta.suite.opening import open_run
from pytest_aorta.table import stages_of


def dry_run(config: pytest.Config, found: Activation) -> int:
    """Print the plan and give the exit code."""
    try:
        opened = open_run(config, found)
    except ConfigError as error:
        raise pytest.UsageError(*map(str, error.faults)) from error
    settings = opened.settings
    secrets = settings.secrets()
    hosts = ", ".join(host.name for host in settings.cluster.hosts)
    print(f"{opened.suite_name}: {len(settings.cluster.hosts)} host(s): {hosts}; nothing is contacted")
    for warning in settings.warnings:
        print(f"warning: {scrub(warning, secrets)}")
    for stage in stages_of(settings.suite):
        print(f"\n{stage.test}")
        if stage.without and (rule := stage.without(settings)):
            print(f"  skipped: {rule.reason}")
            continue
        for step in stage.plan(settings):
            print(f"  {step.host}: {scrub(step.text, secrets)}")
    return 0
