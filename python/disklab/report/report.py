"""A report before it has a form: the answers, comparisons and charts of some runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from disklab.report import (
    charts_by_factor,
    charts_of_course,
    charts_of_tail,
    charts_of_telemetry,
    faults,
    tables,
    wording,
)
from disklab.report.answer import Answer, Finding, answer_of
from disklab.report.bursts import bursts
from disklab.report.comparison import Comparison, comparisons_of
from disklab.report.history import findings_between
from disklab.report.pair import Kind
from disklab.report.panel import Section, unchecked
from disklab.report.part import Part, bounded
from disklab.report.subject import RunLike, Subject, subjects_of

MOST_BELOW = 3
"""Sentences below the answer; the matrix has every comparison."""
OUTSIDE = "outside the calibrated range: "
"""How a prediction's warning of a sketch begins."""

Said = tuple[str, Finding]
"""Whose finding it is (empty when there is one run), and the finding."""


@dataclass
class Report:
    """What is said of some runs; the page, the terminal and the JSON show it."""

    subjects: Sequence[Subject]

    @classmethod
    def of(cls, runs: Sequence[RunLike]) -> Report:
        """Return the report of runs; the first one's factors order the charts."""
        return cls(subjects_of([bounded(run) for run in runs]))

    @cached_property
    def answers(self) -> list[Answer]:
        """The verdict of each run by itself."""
        return [answer_of(subject) for subject in self.subjects]

    def answer_of(self, subject: Subject) -> Answer:
        """Return what is said of one of the runs."""
        return next(answer for answer in self.answers if answer.subject is subject)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The runs against each other."""
        return comparisons_of(self.subjects) if len(self.subjects) > 1 else []

    @cached_property
    def said(self) -> list[Said]:
        """Every sentence, the answer first.

        Where burst credits decide, that comes first: what is equal on credits may differ all day.
        What changed between runs of one mode comes before everything else. How far runs of
        different modes are from each other comes after the first one's answer and what makes it a
        sketch.
        """
        several = len(self.subjects) > 1
        first, *others = [
            [(answer.subject.label if several else "", finding) for finding in answer.findings]
            for answer in self.answers
        ]
        changes: list[Said] = []
        errors: list[Said] = []
        for comparison in self.comparisons:
            into = changes if comparison.is_history else errors
            into += [("", finding) for finding in findings_between(comparison)]
        own = [*changes, *first]
        sketch: list[Said] = [("", one) for one in sketches(self.subjects)]
        deciding: list[Said] = [("", one) for one in bursts(self.subjects)]
        head = [*deciding, *own[:1], *sketch]
        return [*head, *errors, *own[1:], *(said for told in others for said in told)]

    @property
    def headline(self) -> list[Said]:
        """The answer: one sentence, or none of an empty run."""
        return self.said[:1]

    @property
    def below(self) -> list[Said]:
        """What the first screen says beneath it."""
        return self.said[1 : 1 + MOST_BELOW]

    @property
    def first_screen(self) -> list[tuple[str, Finding, str]]:
        """The answer and the sentences below it, each with what it rests on where that changes."""
        told, last = [], ""
        for heading, finding in [*self.headline, *self.below]:
            told.append((heading, finding, "" if finding.basis == last else finding.basis))
            last = finding.basis or last
        return told

    @property
    def rest(self) -> list[Said]:
        """What it has no room for."""
        return self.said[1 + MOST_BELOW :]

    @property
    def status(self) -> list[str]:
        """Return what limits the answer: cells without figures, and what `no difference` means."""
        told = []
        for subject in self.subjects:
            label = f"{subject.label}: " if len(self.subjects) > 1 else ""
            if isinstance(subject.run, Part):
                told.append(wording.sentence(label + subject.run.told()))
            bad: dict[str, int] = {}
            for cell in subject.matrix.cells.values():
                if not cell.usable:
                    bad[cell.results[-1].status] = bad.get(cell.results[-1].status, 0) + 1
            if bad:
                counted = ", ".join(f"{count} {status}" for status, count in bad.items())
                total = len(subject.matrix.cells)
                told.append(f"{label}{counted} of {total} cells: left out, see Warnings.")
            missing = tables.missing_repeats(subject)
            if missing:
                told.append(wording.sentence(label + missing))
        if any(pair.kind is Kind.EQUAL for _, one in self.said for pair in one.pairs):
            told.append(wording.sentence(wording.bounds()))
        return told

    @cached_property
    def sections(self) -> list[Section]:
        """The charts."""
        with unchecked():
            broken = faults.fault_section(self.subjects[0])
            return [
                *([] if broken is None else [broken]),
                charts_by_factor.rate_section(self.subjects),
                charts_by_factor.latency_section(self.subjects),
                charts_of_tail.tail_section(self.subjects[0]),
                charts_of_course.course_section(self.subjects[0]),
                charts_of_course.percentile_section(self.subjects),
                charts_of_telemetry.telemetry_section(self.subjects[0]),
            ]


MODES = {"predict": "simulated", "rehearse": "rehearsed", "measure": "measured"}


def caption_of(report: Report) -> str:
    """Return where the charts' figures come from: how, seed, version, run."""
    told = []
    for subject in report.subjects:
        info = subject.info
        parts = [MODES.get(info.mode, str(info.mode))]
        if info.mode == "published" and info.experiment.source:
            parts.append(info.experiment.source)
        if info.seed is not None and info.mode != "published":
            parts.append(f"seed {info.seed}")
        if version := info.versions.get("disklab"):
            parts.append(f"disklab {version}")
        if info.mode != "published":
            parts.append(info.id)
        told.append(" · ".join([wording.capital(parts[0]), *parts[1:]]))
    return "; ".join(told)


def sketches(subjects: Sequence[Subject]) -> list[Finding]:
    """Return a sentence for each run whose loads no measurement was like."""
    found = []
    for subject in subjects:
        told = dict.fromkeys(
            part
            for result in subject.run.results()
            for text in result.warnings
            if text.startswith(OUTSIDE)
            for part in text.removeprefix(OUTSIDE).split("; ")
        )
        if told:
            # A calibration that was fitted on nothing has no range to tell.
            what = (
                "; ".join(told).replace(" (fitted on )", "").replace("(fitted on ", "(measured: ")
            )
            file = subject.info.experiment.file or "EXPERIMENT"
            text = f"Take this as a sketch: no run like it was measured: {what}"
            reason = f"a short rehearsal narrows it: disklab rehearse {file} --quick"
            found.append(Finding(text, reason, "", None, ()))
    return found
