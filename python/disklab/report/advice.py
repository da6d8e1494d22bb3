"""What would tell when a run cannot: the command, and how long it takes. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime

from disklab.report import wording
from disklab.report.pair import Kind, Pair
from disklab.report.part import Part
from disklab.report.subject import Subject
from disklab.results import DEFAULT_OUT, Run


def of(subject: Subject, pairs: Sequence[Pair]) -> list[str]:
    """Return the way to an answer, in at most one sentence; nothing when there is one already."""
    if subject.info.mode == "predict":
        return doubt(pairs)
    if subject.info.mode != "rehearse":
        return []
    kinds = [pair.kind for pair in pairs]
    if Kind.UNKNOWN in kinds:
        open_ = [pair.judgement.more_repeats for pair in pairs if pair.kind is Kind.UNKNOWN]
        return [more_repeats(subject, [one for one in open_ if one is not None], len(open_))]
    if set(kinds) == {Kind.MACHINE}:
        return [elsewhere(subject)]
    return []


def doubt(pairs: Sequence[Pair]) -> list[str]:
    """Return what most of a prediction's doubt is about; nothing when little is in doubt."""
    named = [pair.judgement.unknown for pair in pairs if pair.judgement.unknown]
    if not named:
        return []
    name = in_words(max(set(named), key=named.count))
    if any(pair.kind is Kind.UNKNOWN for pair in pairs):
        return [f"it depends on {name}"]
    return [f"most of the doubt is {name}"]


def in_words(name: str) -> str:
    """Return a value that is not known as a sentence names it."""
    kind, _, what = name.partition(": ")
    words = {"service time": "how long the disk takes", "limit": "the exact limit"}
    if kind in words:
        return f"{words[kind]} ({what})"
    return next((said for pattern, said in CALIBRATED if pattern.search(name)), UNNAMED)


CALIBRATED = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        ("pause|collector|allocated|kept|moved|young", "how long garbage collection stops a node"),
        ("^client", "how much processor time the client takes for an operation"),
        ("overhead_ns$", "how long an operation takes beside all that is modelled"),
        ("cpu_ns$|byte_ps$", "how much processor time the database takes for an operation"),
        ("^one_way|^spread|between_zones", "how long the network takes"),
        ("memory|page_cache", "how much memory is left for caches"),
        ("table_write|compaction|rewrites", "how fast tables are written again"),
    )
)
"""What a sentence calls the parameters of calibrations, whose names no reader knows."""

UNNAMED = "what was calibrated on other machines"


def named(subject: Subject) -> str:
    """Return a run as a command finds it: by its id, or by its folder where --out was given."""
    run = subject.run.whole if isinstance(subject.run, Part) else subject.run
    if isinstance(run, Run) and run.folder.name == run.info.id:
        return run.info.id if run.folder.parent == DEFAULT_OUT else str(run.folder)
    return run.info.id


def more_repeats(subject: Subject, wanted: Sequence[int], of_all: int) -> str:
    """Return how many repeats would tell, how long they take, and the command."""
    if len(wanted) < of_all or not wanted:
        return "The repeats differ so much that more of them would not tell in reasonable time"
    info = subject.info
    have, total = info.repeats or 1, max(wanted)
    more = max(1, total - have)
    minutes = repeat_s(subject)
    time = f" ({wording.span(minutes * more)})" if minutes else ""
    count = wording.counted(more, "more repeat")
    run = named(subject)
    command = shlex.join(["disklab", "rehearse", "--resume", run, "--repeat", str(have + more)])
    return f"About {count} would tell{time}: {command}"


def repeat_s(subject: Subject) -> float | None:
    """Return how long a repeat of all cells took, seconds; None: the run did not end."""
    info = subject.info
    if not info.started or not info.ended:
        return None
    try:
        took = datetime.fromisoformat(info.ended) - datetime.fromisoformat(info.started)
    except (ValueError, TypeError):
        return None  # damaged: no time, or one of them has no zone
    seconds = took.total_seconds() / (info.repeats or 1)
    return seconds if seconds >= 1 else None


def elsewhere(subject: Subject) -> str:
    """Return what answers when this machine is too small."""
    file = subject.info.experiment.file or "EXPERIMENT"
    return f"A machine with more processors would tell, or a prediction: disklab predict {file}"
