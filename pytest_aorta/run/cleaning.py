"""Cleaning: taking away what a run left on its hosts when its pytest could not."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_aorta.config.settings import restore
from pytest_aorta.errors import AortaError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.hosts import fleet_of
from pytest_aorta.run.record import RecordKeeper, RunRecord

REAP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was done on the hosts of a run, and what could not be, one line each."""

    done: tuple[str, ...]
    problems: tuple[str, ...]


def clean(folder: RunFolder, record: RunRecord) -> Cleaned:
    """End recorded process groups (by pid and start time) and remove the work folders of a run on every host.

    A record that was never closed is closed as interrupted, unless a host could not be cleaned.

    Raises:
        ConfigError: the record's configuration is damaged, or this version cannot reach the hosts.
    """
    done: list[str] = []
    problems: list[str] = []
    if record.hosts:
        _clean_hosts(folder, record, done, problems)
    if record.finished is None and not problems:
        keeper = RecordKeeper(folder, record)
        keeper.close("interrupted", f"abandoned: the pytest that ran it (pid {record.pid}) is gone; cleaned up later")
        done.append("record closed as interrupted")
    return Cleaned(tuple(done), tuple(problems))


def _clean_hosts(folder: RunFolder, record: RunRecord, done: list[str], problems: list[str]) -> None:
    fleet = fleet_of(restore(record.config))
    try:
        fleet.open({host: f"{entry.state_dir}.clean" for host, entry in record.hosts.items()})
        reaped = fleet.perform(
            {host: Ask("reap", {"path": e.state_dir}, timeout_s=REAP_SECONDS) for host, e in record.hosts.items()}
        )
        for host, answer in reaped.items():
            ended = answer.get("ended", [])
            done.append(f"{host}: {len(ended)} processes ended" if ended else f"{host}: no process was left")
        removed = fleet.perform(
            {host: Ask("remove", {"path": e.work_dir}, timeout_s=120) for host, e in record.hosts.items()}
        )
        done += [f"{host}: {record.hosts[host].work_dir} removed" for host, a in removed.items() if a.get("removed")]
        problems += [str(error) for answers in (reaped, removed) for error in answers.failed.values()]
    except AortaError as error:
        problems.append(str(error))
    finally:
        fleet.close()
