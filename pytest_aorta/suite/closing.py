"""Closing: from a run's outcomes to its record, its documents, the lists of hosts and the bundle."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pytest_aorta.plugin import LAST_RUN
from pytest_aorta.reporting.bundle import LISTS, bundle_name, write_bundle
from pytest_aorta.reporting.json_report import host_lines, sort_hosts, verdict_document, write_json, write_text
from pytest_aorta.reporting.model import RunView
from pytest_aorta.run.conclusion import view_of, write_documents
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.deck import with_deck
from pytest_aorta.run.dossier import write_dossiers
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.gating import Pipeline
from pytest_aorta.run.record import Judgement, RunRecord, Verdict, now
from pytest_aorta.suite.html import HtmlRows
from pytest_aorta.suite.opening import Opened, remember
from pytest_aorta.suite.reports import Reports
from pytest_aorta.table import stages_of

log = logging.getLogger("pytest_aorta")


class Closing:
    """Writes what a run leaves behind; `judged_by` names the limits that a stored run is judged by."""

    def __init__(self, opened: Opened, reports: Reports, judged_by: str) -> None:
        self._opened = opened
        self._reports = reports
        self._judged_by = judged_by
        self._bundle: Path | None = None
        self._evidence: tuple[Path, ...] = ()

    def close(
        self, pipeline: Pipeline, plan: tuple[str, ...], verdict: Verdict, sentence: str, html: HtmlRows | None
    ) -> RunView:
        """Put the verdict on record, write the documents and lists, and give the run as reports show it.

        A file that cannot be written is told in the log, and of the record in the sentence; none keeps the others back.
        """
        run = pipeline.run
        shown = run.record.document
        try:
            if self._opened.stored is None:
                run.record.close(verdict, sentence, dict(self._reports.paths()))
                write_documents(run)
                self._evidence = write_dossiers(shown, run.folder)
            else:
                shown = self._judge(pipeline, plan, verdict, sentence)
                write_documents(run, shown)
        except OSError as error:
            log.error("the record could not be written: %s", error)
            sentence = f"{sentence}; and the record could not be written: {error}"
            run.record.document.verdict, run.record.document.sentence = verdict, sentence
        if self._reports.folder is not None:
            self._bundle = self._reports.folder / bundle_name(self._opened.report_stem, datetime.now(tz=UTC))
        stored = run.record.document if self._opened.stored is not None else None
        view = view_of(shown, run.folder, paths=tuple(self._paths(run)), stored=stored)
        if html is not None:
            labels = {stage.test: stage.label for stage in stages_of(self._opened.settings.suite)}
            view = with_deck(view, shown, run.folder, html.deck(labels, self._reports.log))
        try:
            self._write_lists(run, view)
        except OSError as error:
            log.error("%s could not be written: %s", self._reports.folder, error)
        return view

    def pack(self, run: RunFolder, html: HtmlRows | None) -> None:
        """Pack the reports, which are written by now, into the bundle that `close` has named."""
        bundle, folder = self._bundle, self._reports.folder
        if bundle is None or folder is None:
            return
        lists = {name: folder / name for name in LISTS}
        if self._opened.stored is not None:
            lists = {run.verdict.name: run.verdict}
        files = {**self._reports.packed(), **lists, run.record.name: run.record}
        try:
            write_bundle(bundle, files, pages=html.pages if html is not None else None, evidence=self._evidence)
        except OSError as error:
            bundle.unlink(missing_ok=True)
            sys.stderr.write(f"{bundle} could not be written: {error.strerror or error}\n")  # no log is left

    def _paths(self, run: RunContext) -> Iterator[tuple[str, str]]:
        """Give (label, path) of what the summary names: what needs somebody first, the bundle last."""
        if uncleaned := run.record.document.uncleaned:
            again = f"run `aorta clean {run.folder.run_id}` when that is mended"
            yield "not cleaned up", f"{', '.join(uncleaned)}; {again}"
        if self._evidence:
            where = self._evidence[0] if len(self._evidence) == 1 else self._evidence[0].parent
            yield "evidence for the vendor", str(where)
        yield from self._reports.paths()
        if self._bundle is not None:
            yield "bundle", str(self._bundle)

    def _judge(self, pipeline: Pipeline, plan: tuple[str, ...], verdict: Verdict, sentence: str) -> RunRecord:
        """Add a judgement to the record of a stored run, and give what it makes of the run."""
        run = pipeline.run
        stages = tuple(pipeline.outcomes.values())
        run.record.judged(
            Judgement(
                at=now(),
                judged_by=self._judged_by,
                stages=stages,
                thresholds=run.settings.thresholds.model_dump(),
                gates=tuple(gate.model_dump(mode="json") for gate in run.settings.config.gates),
            )
        )
        return RunRecord.model_validate(
            {
                **run.record.document.model_dump(mode="json"),
                "plan": plan,
                "verdict": verdict,
                "sentence": sentence,
                "stages": {stage.name: stage.model_dump(mode="json") for stage in stages},
            }
        )

    def _write_lists(self, run: RunContext, view: RunView) -> None:
        """Write verdict.json and the lists of hosts into the report folder; a stored run's stay as they are.

        What is judged of a stored run stands beside them under a name of its own.
        """
        folder = self._reports.folder
        if folder is None:
            return
        if self._opened.stored is not None:
            write_json(folder / f"{self._opened.report_stem}-verdict.json", verdict_document(view))
            return
        if not (folder / LAST_RUN).exists():  # somebody removed the folder
            remember(folder, run.folder, self._opened.suite_name)
        failing, good = sort_hosts(view, [host.name for host in self._opened.settings.cluster.hosts])
        write_json(folder / "verdict.json", verdict_document(view))
        write_text(folder / "failing_nodes.txt", host_lines(failing))
        write_text(folder / "good_nodes.txt", host_lines(good))
