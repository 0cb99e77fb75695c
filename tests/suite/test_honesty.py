"""No false green, no innocent blamed, no secret told: what a hostile workload or project may try."""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta import suite

WORKLOAD = Path(__file__).with_name("sample_workload.py")
TOKEN = "S3cr3t-Tok3n-0123456789abcdef"  # noqa: S105  planted, to be looked for


def script(rig: Any, text: str) -> list[str]:
    """Write a workload that does as the sample one and then what the text says."""
    path = rig.path / "mine.py"
    path.write_text(
        f"import json, os, pathlib, runpy, sys, time\nsys.argv = ['w']\ndef good():\n"
        f"    try: runpy.run_path({str(WORKLOAD)!r}, run_name='__main__')\n    except SystemExit: pass\n{text}\n",
        "utf-8",
    )
    return [sys.executable, str(path)]


def run_script(rig: Any, text: str, *arguments: str, code: int, **fields: Any) -> str:
    rig.configure(workload={"command": script(rig, text), "traces": "out/torch_profiler/*/*"}, **fields)
    return str(rig.run(*arguments, code=code))


def test_judging_a_failed_run_again_does_not_mend_it(rig: Any) -> None:
    rig.configure("--exit", "3")
    rig.run(code=1)

    output = rig.pytest("-k", "test_validate_thresholds", code=1)

    assert "2 of 2 gates held; but the run itself failed: test_run_benchmark: " in output
    assert "PASSED: " not in output


def test_judging_again_by_looser_limits_mends_a_missed_threshold(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 1.0})
    rig.run(code=1)
    (rig.path / "other.json").write_text(json.dumps({"expected_results": {"max_avg_iteration_ms": 100.0}}), "utf-8")

    rig.pytest("-k", "test_validate_thresholds", "--aorta-thresholds=other.json", code=0)


@pytest.mark.parametrize(
    "text",
    [
        "good(); import shutil; shutil.rmtree('out/torch_profiler/rank1')",
        "good(); p = next(pathlib.Path('out').rglob('sample_1*')); p.unlink(); p.symlink_to('/etc/passwd')",
    ],
)  # fmt: skip
def test_missing_rank_of_the_world_that_the_traces_tell_of(rig: Any, text: str) -> None:
    run_script(rig, text, code=1)

    assert "no trace of rank 1" in rig.reason("test_parse_results")


def test_traces_of_other_ranks_than_the_worlds(rig: Any) -> None:
    run_script(
        rig,
        "good()\n"
        "for r in (0, 1):\n"
        "    p = pathlib.Path(f'out/torch_profiler/rank{r}/sample_{r}.pt.trace.json')\n"
        "    d = json.loads(p.read_text()); d['distributedInfo']['rank'] = r + 7; p.write_text(json.dumps(d))\n",
        code=1,
    )

    assert "no trace of rank 0, 1" in rig.reason("test_parse_results")


def test_renamed_outputs_of_an_earlier_run_are_not_fresh(rig: Any) -> None:
    traces = {"command": script(rig, "good()"), "traces": "out*/torch_profiler/*/*"}
    rig.configure(workload=traces)
    rig.run(code=0)
    rig.configure(workload={**traces, "command": script(rig, "os.rename('out', 'out.old')")}, output_dir="second")

    output = rig.run(code=1)

    assert "has no trace file" in output


ENDED_BADLY = """good()
for r in (0, 1):
    p = pathlib.Path(f'out/rank_0{r}_metrics.jsonl'); lines = p.read_text().splitlines()
    p.write_text('\\n'.join([*lines[:-1], json.dumps({'final': True, 'rank': r, 'exit': 'failed'})]) + '\\n')
"""
STOPPED_EARLY = """good()
p = pathlib.Path('out/rank_01_metrics.jsonl'); lines = p.read_text().splitlines()
p.write_text('\\n'.join(lines[:31]) + '\\n')
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ENDED_BADLY, "rank 0 ended as failed; rank 1 ended as failed"),
        (STOPPED_EARLY, "rank 1 did not log its end"),
        (STOPPED_EARLY, "rank 1 logged 31 of 60 steps"),
        ("good(); os.unlink('out/rank_01_metrics.jsonl')", "rank 1 has a trace but no step log"),
    ],
)
def test_step_logs_that_do_not_fit_a_good_run(rig: Any, text: str, told: str) -> None:
    run_script(rig, text, code=1)

    assert told in rig.reason("test_parse_results")


def test_missing_rank_of_the_world_that_the_step_logs_tell_of(rig: Any) -> None:
    run_script(
        rig,
        "good(); import shutil; shutil.rmtree('out/torch_profiler/rank1')\n"
        "for p in pathlib.Path('out').rglob('*.pt.trace.json'):\n"
        "    d = json.loads(p.read_text()); del d['distributedInfo']; p.write_text(json.dumps(d))",
        code=1,
    )

    assert "no trace of rank 1" in rig.reason("test_parse_results")


def test_rank_without_steps_has_measured_nothing(rig: Any) -> None:
    run_script(
        rig,
        "good()\np = next(pathlib.Path('out').rglob('sample_1*')); d = json.loads(p.read_text())\n"
        "d['traceEvents'] = [{'ph': 'X', 'cat': 'cpu_op', 'name': 'x', 'ts': 1.0, 'dur': 1.0}]\n"
        "p.write_text(json.dumps(d))",
        code=1,
    )

    assert "the trace of rank 1 spans no time at all or has no steps" in rig.reason("test_parse_results")


def test_trace_whose_time_was_cut_to_whole_seconds_is_not_fresh(rig: Any) -> None:
    traces = {"command": script(rig, "good()"), "traces": "out/torch_profiler/*/*"}
    rig.configure(workload=traces)
    rig.run(code=0)
    text = "[os.utime(p, (int(p.stat().st_mtime),) * 2) for p in pathlib.Path('out').rglob('*.json')]"
    rig.configure(workload={**traces, "command": script(rig, text)}, output_dir="second")

    assert "has no trace file" in rig.run(code=1)


@pytest.mark.parametrize(
    "text",
    [
        "[os.utime(p) for p in pathlib.Path('out').rglob('*') if p.is_file()]",
        "[f.with_name('new.json').write_bytes(f.read_bytes()) for f in [*pathlib.Path('out').rglob('*.json')]]",
    ],
    ids=["touched", "copied"],
)
def test_traces_of_an_earlier_run_with_new_times_are_not_fresh(rig: Any, text: str) -> None:
    traces = {"command": script(rig, "good()"), "traces": "out/torch_profiler/**"}
    rig.configure(workload=traces)
    rig.run(code=0)
    rig.configure(workload={**traces, "command": script(rig, text)}, output_dir="second")

    assert "has no trace file" in rig.run(code=1)
    (facts,) = (rig.path / "second").glob("*/run.json")
    stage = json.loads(facts.read_text("utf-8"))["stages"]["test_collect_traces"]
    newer = ", 2 of them with a later time but with the very bytes of one that was there before"
    assert re.search(rf"; \d older ones were left alone{newer}$", stage["reason"])


def test_a_trace_with_a_secret_in_its_name_is_withheld_and_nobody_misses_it_twice(rig: Any) -> None:
    text = (
        "good()\n"
        "p = next(pathlib.Path('out').rglob('sample_1*')); p.rename(p.with_name(os.environ['HF_TOKEN'] + '.json'))"
    )

    output = run_script(rig, text, code=1, multi_node={"extra_env": {"HF_TOKEN": TOKEN}})

    reason = rig.reason("test_collect_traces")
    assert re.search(
        r"could not measure: .* 1 trace has a secret in its name and stayed there \(out/torch_prof", reason
    )
    assert TOKEN not in output
    assert "hint: " not in output
    assert "next: have the workload name its traces without the value of a secret" in output
    assert rig.record()["stages"]["test_parse_results"]["failure"] != "measured"


def test_results_that_do_not_fit_on_this_machines_disk_blame_no_host(rig: Any, small_disk: Any) -> None:
    text = (
        "good()\nfor r in (0, 1):\n"
        "    p = pathlib.Path(f'out/torch_profiler/rank{r}/sample_{r}.pt.trace.json'); p.write_bytes(\n"
        "        p.read_bytes() + b' ' * 3_000_000)"
    )

    output = run_script(rig, text, f"--aorta-output={small_disk}", code=1)

    (folder,) = [path.parent for path in small_disk.glob("*/run.json")]
    assert f"gave no traces: traces cannot be kept in {folder} on this machine: No space left on device" in output
    assert rig.verdict()["hosts"] == []
    assert rig.verdict()["fault"] == "rig"
    assert (
        "hint: [fatal] the disk or the quota of the run's results is used up, on the machine that runs pytest" in output
    )
    assert "next: free space there, or name another folder with --aorta-output" in output


def test_many_files_that_are_no_traces_are_told_in_a_line(rig: Any) -> None:
    text = "good()\nfor i in range(300): pathlib.Path(f'out/torch_profiler/rank0/f{i}.json').write_text('{}')"

    output = run_script(rig, text, code=1)

    assert "300 files cannot be read: " in output
    assert "; and 295 more" in output
    assert "rank0/f99.json" not in output
    assert len(output) < 30_000


def test_stage_that_is_asked_for_twice_is_done_once(rig: Any) -> None:
    (rig.path / "conftest.py").write_text(
        "import pytest\nfrom _pytest.runner import runtestprotocol\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
        "    reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
        "    if any(r.failed for r in reports):\n"
        "        item._initrequest()\n"
        "        reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
        "    [item.ihook.pytest_runtest_logreport(report=r) for r in reports]\n"
        "    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)\n"
        "    return True\n",
        "utf-8",
    )
    rig.configure("--exit", "3")

    output = rig.run(code=1)

    assert rig.outcomes()["test_run_benchmark"] == "failed"
    assert "FAILED: test_run_benchmark" in output


def test_two_different_checksums_blame_nobody(rig: Any) -> None:
    run_script(
        rig,
        "good()\nfor r in (0, 1):\n    with open(f'out/rank_0{r}_metrics.jsonl', 'a') as f:\n"
        "        f.write(json.dumps({'final': True, 'rank': r, 'weights_checksum': f'c{r}'}) + '\\n')",
        code=1,
    )

    reason = rig.reason("test_parse_results")
    assert "2 different sets of weights" in reason
    assert "stands alone" not in reason


def test_trace_that_spans_no_time_is_no_measurement(rig: Any) -> None:
    run_script(
        rig,
        "good()\nfor p in pathlib.Path('out').rglob('*.pt.trace.json'):\n"
        "    d = json.loads(p.read_text())\n    for e in d['traceEvents']: e.update(ts=0, dur=0)\n"
        "    p.write_text(json.dumps(d))",
        code=1,
    )

    assert "spans no time at all" in rig.reason("test_parse_results")


@pytest.mark.parametrize(
    "conftest",
    [
        "import pytest\ndef pytest_collection_modifyitems(items): [i.add_marker(pytest.mark.xfail) for i in items]\n",
        "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session): session.exitstatus = 0\n",
        (
            "import pytest\n@pytest.hookimpl(wrapper=True)\ndef pytest_sessionfinish(session):\n"
            "    result = yield\n    session.exitstatus = 0\n    return result\n"
        ),
    ],
)
def test_no_plugin_turns_a_failed_verdict_into_exit_code_0(rig: Any, conftest: str) -> None:
    (rig.path / "conftest.py").write_text(conftest, "utf-8")
    rig.configure(thresholds={"max_avg_iteration_ms": 0.001})

    assert "FAILED: test_validate_thresholds" in rig.run(code=1)


def test_skip_mark_of_a_conftest_is_no_internal_error(rig: Any) -> None:
    (rig.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items): items[3].add_marker(pytest.mark.skip(reason='slow'))\n",
        "utf-8",
    )
    rig.configure()

    output = rig.run(code=2)

    assert "INTERNALERROR" not in output
    assert "pytest stopped before test_run_benchmark" in output


def test_line_that_looks_like_torchruns_notice_ends_no_run(rig: Any) -> None:
    rig_text = "print('attempt 1 failed (exitcode: 1) local_rank: 0, retrying', flush=True); time.sleep(2.5); good()"
    run_script(rig, rig_text, code=0, failure_grace_seconds=1)


def test_deeply_nested_line_ends_no_run(rig: Any) -> None:
    run_script(rig, "print('{\"a\":' * 3000, flush=True); good()", code=0)


def test_secret_in_an_error_reaches_nothing(rig: Any) -> None:
    output = run_script(
        rig,
        "good(); print('x' * (16 * 1024 - 10) + os.environ['API_TOKEN'], flush=True)\n"
        "print('RuntimeError: ' + 'y' * 280 + os.environ['API_TOKEN']); print('RuntimeError: bad ' + "
        "os.environ['API_TOKEN'])\n"
        "pathlib.Path('out/torch_profiler/rank0', os.environ['API_TOKEN']).touch(); sys.exit(3)",
        "-v",
        code=1,
        multi_node={"extra_env": {"API_TOKEN": TOKEN}},
    )

    files = [path for path in rig.path.rglob("*") if path.is_file() and path.name not in {"config.json", "mine.py"}]
    texts = {str(path): path.read_bytes().decode("utf-8", "replace") for path in files} | {"terminal": output}
    assert {name for name, text in texts.items() if TOKEN[:6] in text} == set()
    assert [path for path in rig.folder.rglob("*") if TOKEN in path.name] == []
    assert "exited 3" in output


def test_secret_in_the_traceback_of_a_defect_reaches_nothing(rig: Any) -> None:
    (rig.path / "fails.py").write_text(
        "import json, logging, pathlib\n"
        "def pytest_runtest_call(item):\n"
        "    token = json.loads(pathlib.Path('config.json').read_text())['multi_node']['extra_env']['API_TOKEN']\n"
        "    try:\n        raise KeyError(token)\n"
        "    except KeyError:\n        logging.getLogger('pytest_aorta').exception('unexpected')\n",
        "utf-8",
    )
    rig.configure(multi_node={"extra_env": {"API_TOKEN": TOKEN}})

    output = rig.run("-p", "fails", "-rA", "--html=report.html", "--log-file=own.log", code=0)

    assert "KeyError: '<redacted>'" in (rig.path / "own.log").read_text("utf-8")
    files = [path for path in rig.path.rglob("*") if path.is_file() and path.name != "config.json"]
    texts = {str(path): path.read_bytes().decode("utf-8", "replace") for path in files} | {"terminal": output}
    assert {name for name, text in texts.items() if TOKEN in text} == set()


def test_one_logger_speaks_for_all_modules_since_the_secrets_are_taken_out_there() -> None:
    modules = [module.name for module in pkgutil.iter_modules(suite.__path__, "pytest_aorta.suite.")]
    for name in (*modules, "pytest_aorta.session"):
        importlib.import_module(name)
    assert [name for name in logging.root.manager.loggerDict if name.startswith("pytest_aorta.")] == []


@pytest.mark.parametrize("option", ["config", "run", "thresholds", "set", "output", "report-dir"])
def test_empty_option_is_refused(rig: Any, option: str) -> None:
    assert f"--aorta-{option} is empty" in rig.pytest(f"--aorta-{option}=", code=4)


@pytest.mark.parametrize("without", ["junitxml", "metadata", "logging", "cacheprovider", "html", "dependency"])
def test_without_one_of_pytests_plugins(rig: Any, without: str) -> None:
    rig.configure()

    assert "INTERNALERROR" not in rig.run("-p", f"no:{without}", code=0)


def test_without_subtests_is_refused(rig: Any) -> None:
    rig.configure()

    assert "leave out `-p no:subtests`" in rig.run("-p", "no:subtests", code=4)


@pytest.mark.parametrize("text", ['{"metrics": null}', "[]", "{", '{"metrics": {"a": {"value": NaN}}}'])
def test_damaged_metrics_are_told_in_a_sentence(rig: Any, text: str) -> None:
    rig.configure()
    rig.run(code=0)
    (rig.folder / "metrics.json").write_text(text, "utf-8")

    output = rig.pytest("-k", "test_validate_thresholds", code=1)

    assert "metrics.json cannot be read" in output
    assert "defect of pytest-aorta" not in output


def test_signal_after_the_run_is_closed_changes_nothing(rig: Any) -> None:
    rig.configure()
    (rig.path / "late.py").write_text(
        "import os, pytest, signal\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionfinish(session): os.kill(os.getpid(), signal.SIGTERM)\n",
        "utf-8",
    )

    output = rig.run("-p", "late", code=0)

    assert "Traceback" not in output
    assert len(rig.junit().findall("testcase")) == 10


def test_a_run_is_refused_where_another_one_works(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5")
    first = rig.start()
    waiter.until("the first run's workload is going", (rig.path / "out" / "rank_00_metrics.jsonl").exists)
    rig.configure("--no-traces")

    output = rig.run("--aorta-report-dir=others", "--aorta-output=others_results", code=1)

    assert "another run that is going on works in" in output
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)


def test_limits_that_cannot_fail_are_refused(rig: Any) -> None:
    gates = [{"metric": "gpu_idle_ratio", "kind": "max", "value": 1}]
    rig.configure(thresholds={"min_overlap_ratio": 0.0}, gates=gates)

    output = rig.run(code=4)

    assert "enforce_thresholds: seen true, but no limit: avg_overlap_ratio is always between 0 and 1" in output


def test_a_stage_that_a_conftest_takes_away_comes_back(rig: Any) -> None:
    filters = "def pytest_collection_modifyitems(items): items[:] = [i for i in items if 'thresholds' not in i.name]\n"
    (rig.path / "conftest.py").write_text(filters, "utf-8")
    rig.configure(thresholds={"max_avg_iteration_ms": 1e-6})

    rig.run(code=1)

    assert rig.outcomes()["test_validate_thresholds"] == "failed"


def test_the_workloads_control_sequences_stay_in_its_own_log(rig: Any) -> None:
    rig.configure()
    document = json.loads((rig.path / "config.json").read_text("utf-8"))
    document["workload"]["command"] = script(rig, "print('ValueError: \\x1b[2J\\x00 wrong'); sys.exit(3)")
    (rig.path / "config.json").write_text(json.dumps(document), "utf-8")

    output = rig.run(code=1)

    assert "ValueError: \ufffd wrong" in output
    assert "\x1b[2J" not in output
    assert b"\x1b[2J\x00" in (rig.folder / "benchmark-node-0.log").read_bytes()


def test_reports_that_cannot_be_written_cost_the_exit_code_but_not_the_verdict(rig: Any, small_disk: Any) -> None:
    (rig.path / "conftest.py").write_text(
        f"import logging\n\ndef pytest_sessionfinish():\n    with open({str(small_disk / 'filler')!r}, 'wb', 0) as f:\n"
        "        try:\n            f.write(b'x' * 4_000_000); f.write(b'x' * 4_000_000)\n"
        "        except OSError:\n            pass\n"
        "    logging.getLogger('pytest_aorta').warning('x' * 9000)\n",
        "utf-8",
    )
    rig.configure()

    output = rig.run(f"--aorta-report-dir={small_disk}", code=1)

    assert "PASSED:" in output
    assert "aorta_single.log could not be written: No space left on device; free space and run again" in output
    assert output.count("the reports could not be written: No space left on device") == 1
    named = dict(re.findall(r"^([A-Za-z ]+): (/\S+)$", output, re.MULTILINE))
    assert "run folder" in named
    assert "bundle" not in named
    assert all(Path(path).is_dir() or Path(path).stat().st_size > 0 for path in named.values())
    assert "Traceback" not in output


def test_a_stage_that_comes_back_is_selected_as_the_others(rig: Any) -> None:
    filters = "def pytest_collection_modifyitems(items): items[:] = [i for i in items if 'thresholds' not in i.name]\n"
    (rig.path / "conftest.py").write_text(filters, "utf-8")
    rig.configure(thresholds={"max_avg_iteration_ms": 1e-6})

    rig.run("-k", "not test_validate_thresholds", code=0)
    assert "test_validate_thresholds" not in rig.outcomes()

    assert "no stage is selected" in rig.run("--deselect", "aorta_single", code=5)


def test_items_that_a_conftest_doubles_are_done_once(rig: Any) -> None:
    doubles = "def pytest_collection_modifyitems(items): items[:] = items + items\n"
    (rig.path / "conftest.py").write_text(doubles, "utf-8")
    rig.configure()

    assert "KeyError" not in rig.run(code=0)


def test_failed_first_keeps_the_order_of_stages(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 1e-6})
    rig.run(code=1)

    rig.run("--ff", "--nf", code=1)

    (_, second) = sorted((rig.path / "aorta_results").iterdir())
    stages = json.loads((second / "run.json").read_text("utf-8"))["stages"]
    assert [name for name, stage in stages.items() if stage["outcome"] == "failed"] == ["test_validate_thresholds"]


def test_no_green_page_of_an_earlier_run_stays_beside_a_failure(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    rig.configure(thresholds={"max_avg_iteration_ms": 1e-6})

    rig.run("-p", "no:html", "-p", "no:junitxml", code=1)

    assert not (rig.reports / "aorta_single.html").exists()
    assert not (rig.reports / "aorta_single.xml").exists()
    assert json.loads((rig.reports / "verdict.json").read_text("utf-8"))["verdict"] == "failed"


def test_a_stage_that_another_plugin_ends_is_recorded(rig: Any) -> None:
    limit = (
        "import pytest, signal\n"
        "def stop(*_): pytest.fail('over the limit of another plugin')\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_call(item):\n"
        "    if 'benchmark' in item.name: signal.signal(signal.SIGALRM, stop); signal.alarm(2)\n"
        "    try: return (yield)\n"
        "    finally: signal.alarm(0)\n"
    )
    (rig.path / "limiter.py").write_text(limit, "utf-8")
    rig.configure("--hang-at", "5")

    rig.run("-p", "limiter", code=1)

    assert rig.outcomes()["test_run_benchmark"] == "interrupted", rig.reason("test_run_benchmark")
    assert "ended from outside" in rig.reason("test_run_benchmark")
    assert "over the limit of another plugin" in rig.reason("test_run_benchmark")


def test_gpus_that_nobody_ruled_out_are_named_as_not_judged(rig: Any) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists():
        pytest.skip("this machine has GPUs")
    rig.configure(accelerator="auto")
    assert "not judged: GPUs (accelerator auto became cpu" in rig.run(code=0)

    rig.configure(accelerator="cpu")
    assert "GPUs (" not in rig.run(code=0)


def test_hosts_that_have_none_of_the_accelerators_devices_are_not_to_be_drained(rig: Any) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has GPUs")
    hosts = {"transport": "local", "node_dict": {"n1": {"vpc_ip": "127.0.0.1"}, "n2": {"vpc_ip": "127.0.0.1"}}}
    rig.configure(accelerator="cuda", cluster=hosts)

    output = rig.run(code=1)

    assert "n1 (likewise n2) shows 0 cuda devices, gpus_per_node is 2" in output
    assert "next: on n[1-2], check the driver and the devices, or correct accelerator" in output
    assert "drain" not in output
    assert (rig.reports / "failing_nodes.txt").read_text("utf-8") == ""
    assert (rig.verdict()["verdict"], rig.verdict()["fault"]) == ("could_not_measure", "config")


def test_an_unmeasured_gate_is_explained_by_no_hint_about_what_it_measures(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 5000.0, "min_compute_ratio": 0.4})
    output = rig.run(code=1)
    assert "unmeasured min_compute_ratio" in output
    assert "hint:" not in output


def test_a_new_run_that_has_nothing_to_judge_is_refused(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    before = {path: path.read_bytes() for path in rig.reports.rglob("*") if path.is_file()}

    output = rig.run("-k", "validate", code=4)

    assert "test_validate_thresholds alone has nothing to judge in a new run" in output
    assert {path: path.read_bytes() for path in rig.reports.rglob("*") if path.is_file()} == before
    assert len(list((rig.path / "aorta_results").iterdir())) == 1


def test_no_host_is_good_when_a_gate_of_all_failed(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 1e-6})

    rig.run(code=1)

    assert (rig.reports / "good_nodes.txt").read_text("utf-8") == ""
    assert (rig.reports / "failing_nodes.txt").read_text("utf-8") == ""


def test_a_long_log_is_cut_on_the_terminal_and_whole_in_its_page(rig: Any) -> None:
    output = run_script(rig, "[print('said', n) for n in range(100)]; raise SystemExit(3)", code=1)

    assert "lines above, see Full Log)" in output
    assert "said 9\n" not in output
    assert "said 99\n" in output
    assert any("said 9\n" in page.read_text("utf-8") for page in (rig.reports / "aorta_single_html").iterdir())


def test_misspelt_fields_of_the_cluster_file_are_told_with_the_verdict(rig: Any) -> None:
    rig.configure()
    cluster = {"transport": "local", "node_dict": {"here": {}}, "known_host": "x", "rack_of_switches": "of other tools"}
    (rig.path / "cluster.json").write_text(json.dumps(cluster), "utf-8")

    output = rig.pytest("--aorta-config=config.json", "--aorta-cluster=cluster.json")

    told = "configuration: cluster.known_host is ignored: there is no such field, did you mean known_hosts?"
    end = output[output.index("PASSED: ") :]
    assert f"note: {told}" in end
    assert told in (rig.path / "aorta_reports" / "aorta_single.html").read_text("utf-8")
    assert "rack_of_switches" not in end


def test_a_cluster_file_that_nobody_named_is_not_used_and_the_header_says_so(rig: Any) -> None:
    rig.configure()
    (rig.path / "cluster.json").write_text(json.dumps({"username": "x", "node_dict": {"elsewhere": {}}}), "utf-8")

    output = rig.pytest("--aorta-config=config.json", "-k", "test_launch_container")

    assert "aorta: cluster.json is not used; --aorta-cluster=cluster.json runs on its hosts" in output
