"""Writes what is generated: pages of docs/, man page, completion. `--check` only compares.

Run it after changing an option; CI compares, so that no page goes stale.
"""

from __future__ import annotations

import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import typer
from disklab.catalog import Catalog, cpu_speed, description, load_catalog
from disklab.catalog.profile import latency_profile, quantile_ns
from disklab.cli import app
from disklab.cli.app import AnyCommand
from disklab.measurement.hosts_file import HostsFile
from disklab.results import TrialResult
from disklab.spec.schema import key_rows, meanings, schema_of, schema_text
from pydantic import BaseModel
from typer._completion_shared import get_completion_script
from typer.core import TyperArgument, TyperGroup, TyperOption

DOCS = Path(__file__).resolve().parents[1] / "docs"
COMMAND = "`make docs`"
COMMON = ("help", "install_completion", "show_completion")


def commands(command: AnyCommand, name: str) -> Iterator[tuple[str, AnyCommand]]:
    """Yield a command and everything below it, in the order of the help."""
    yield name, command
    if isinstance(command, TyperGroup):
        context = typer.Context(command, info_name=name)
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if isinstance(child, AnyCommand) and not child.hidden:
                yield from commands(child, f"{name} {child.name}")


def section(name: str, command: AnyCommand) -> str:
    """Return the Markdown of one command."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## {name}", "", clean(command.help or ""), "", f"    {usage}", ""]
    description = [row for parameter in command.params if (row := described(parameter, context))]
    if description:
        lines += ["| option | meaning |", "|---|---|", *description, ""]
    if command.epilog:
        lines += [clean(command.epilog), ""]
    return "\n".join(lines)


def described(parameter: object, context: typer.Context) -> str | None:
    """Return one line of the table; None for what every program has: help and completion."""
    if not isinstance(parameter, TyperOption | TyperArgument) or parameter.name in COMMON:
        return None
    found = parameter.get_help_record(context)
    if found is None:
        return None
    name, meaning = found
    return f"| `{name.strip()}` | {clean(meaning).replace('|', chr(92) + '|')} |"


def clean(text: str) -> str:
    """Return the text without terminal formatting, its paragraphs kept."""
    plain = re.sub(r"\[/?(?:bold|dim|red|green|yellow|cyan)\]", "", text)
    return "\n\n".join(" ".join(part.split()) for part in plain.split("\n\n")).strip()


def cli_page() -> str:
    """Return docs/cli.md."""
    root = typer.main.get_command(app)
    assert isinstance(root, AnyCommand)
    head = f"# Command line\n\nGenerated from the program by {COMMAND}; do not edit.\n\n"
    return head + "\n".join(section(name, command) for name, command in commands(root, "disklab"))


def catalog_page() -> str:
    """Return docs/catalog.md."""
    known = load_catalog([])
    disk_head = ["disk", "GiB", "IOPS", "MB/s", "burst", "host cache", "price", "source"]
    vm_head = ["VM size", "vCPU", "GiB", "disks", "cached", "cache GiB", "uncached", "burst"]
    disks = table(disk_head, ([d.name, *description.disk(known, d)] for d in known.disks.values()))
    vms = table(
        [*vm_head, "temp GiB", "NVMe", "USD/h"],
        ([v.name, *description.vm(v)] for v in known.vms.values()),
    )
    return CATALOG.format(command=COMMAND, disks=disks, vms=vms, sources=sources(known))


CATALOG = """# Catalogue

Generated from the catalogue's files by {command}; do not edit. `disklab catalog NAME` shows every
number of a disk or VM size with its own source and date.

Of GCP's machines the limits are those of SSD persistent disks; other disks have caps of their own
by vCPU and series, which `disklab catalog NAME` shows. What Hyperdisk may do is known of C3 and C4.

## Disks

{disks}

MB/s are 10^6 bytes unless the cell says MiB. A VM also has disks of its own: `local` (its temp
disk), `nvme`, `ephemeral-os`. Stripes: `4 x azure/P30`. Disks of your own: a file of this
form, given with `--catalog` or `$DISKLAB_CATALOG` (`disklab catalog --schema` describes it).

## VM sizes

{vms}

cached, uncached, burst: IOPS / MB/s. USD/h: East US where listed.

## Sources

{sources}
"""


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cell.strip() for cell in line)} |" for line in lines)


def sources(known: Catalog) -> str:
    """Return every source of the catalogue."""
    return "\n".join(
        f"- `{key}`{f' ({source.date})' if source.date else ''}: {source.at}"
        for key, source in known.sources.items()
    )


EVIDENCE = """# What service times rest on

Generated from the catalogue's files by {command}; do not edit. A service time of a disk is a
function of the measurements below: the median over their sources, of one period for all disks of a
vendor (`disklab/catalog/evidence.py` states it), and no longer than what waited for a limit took.
[Disks of other publishers](devices-abroad.md) has what it comes to, with and without a study's own
data. A measurement of yours is a line of data: a file with `evidence:` given with `--catalog` joins
those of the package.

## Profiles

Milliseconds at 4 KiB. Eight disks of ten are within the factor of the last column.

{profiles}

## Measurements

One that counts was taken at depth 1 of the disk itself, without a cache, below every limit, with
blocks of at most 16 KiB, and its year is known. The others are bounds, or tell of limits.

{measurements}

## Processors

How fast a vCPU is beside one of azure/Ddsv5 (Xeon Platinum 8370C) with all vCPUs busy, and the
tests that say so; the true ratio lies within the factor of the third column
(`disklab/catalog/processor.py` states how). A benchmark of yours is a line under `processors:`.

{processors}

Sources are listed in [the catalogue](catalog.md#sources).
"""


def evidence_page() -> str:
    """Return docs/disk-evidence.md."""
    known = load_catalog([])
    head = ["profile", "operation", "p50", "p99", "p99.9", "status", "rests on", "within"]
    body = []
    for name in known.profiles:
        for operation in ("read", "write"):
            facts = getattr(known.latencies[name], operation)
            times = getattr(latency_profile(known, name), operation)
            figures = [
                f"{quantile_ns(times, ppm) / 1e6:.3g}" for ppm in (500_000, 990_000, 999_000)
            ]
            body.append(
                [f"`{name}`", operation, *figures, facts.status, facts.note, f"{facts.within}"]
            )
    rows_head = [
        "disk",
        "year",
        "tool",
        "operation",
        "KiB",
        "mean",
        "percentiles",
        "counts",
        "source",
    ]
    description = []
    for kind, found in known.evidence.items():
        for row in found:
            points = " ".join(f"p{percent}: {time}" for percent, time in row.percentiles_ms.items())
            counts = row.year is not None and any(
                row.counts(operation, (row.year, row.year)) for operation in ("read", "write")
            )
            what = ", ".join(part for part in (kind, row.disk, row.vm) if part)
            operation = row.op + (f", depth {row.depth}" if row.depth > 1 else "")
            block = "" if row.kib is None else str(row.kib)
            mean = "" if row.mean_ms is None else str(row.mean_ms)
            counted = "yes" if counts else row.cap or row.basis
            named = [what, str(row.year or ""), row.tool or "", operation, block]
            description.append([*named, mean, points, counted, f"`{row.source}`"])
    return EVIDENCE.format(
        command=COMMAND,
        profiles=table(head, body),
        measurements=table(rows_head, description),
        processors=processors(known),
    )


def processors(known: Catalog) -> str:
    """Return the speeds of all VM series."""
    head = ["series", "speed", "within", "processors", "rests on", "source"]
    body = []
    for series in dict.fromkeys(vm.series_name for vm in known.vms.values()):
        speed = cpu_speed(known, series)
        said = f"assumed: {speed.note}" if speed.assumed else speed.note.partition(": ")[2]
        named = ", ".join(speed.processors)
        cited = ", ".join(f"`{key}`" for key in speed.source)
        body.append([series, f"{speed.value:.2f}", f"{speed.within:.2f}", named, said, cited])
    return table(head, body)


def experiment_page() -> str:
    """Return docs/experiment-file.md: its text as it is, its list of keys from the program."""
    text = (DOCS / "experiment-file.md").read_text(encoding="utf-8")
    head = ["key", "what", "default", "example", "meaning"]
    body = [[f"`{row.key}`", row.kind, row.default, row.example, row.meaning] for row in key_rows()]
    keys = f"<!-- keys: {COMMAND} -->\n\n{table(head, body)}\n\n<!-- /keys -->"
    return re.sub(r"<!-- keys:.*?<!-- /keys -->", lambda _: keys, text, flags=re.DOTALL)


def results_page() -> str:
    """Return docs/results.md: its text as it is, its list of keys from the models."""
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    body = [[f"`{key}`", meaning] for key, meaning in result_keys(TrialResult)]
    keys = f"<!-- keys: {COMMAND} -->\n\n{table(['key', 'meaning'], body)}\n\n<!-- /keys -->"
    return re.sub(r"<!-- keys:.*?<!-- /keys -->", lambda _: keys, text, flags=re.DOTALL)


def result_keys(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of a record with its meaning, those of its parts below it."""
    for name, field in model.model_fields.items():
        yield f"{above}{name}", meanings(model).get(name, "").replace("|", "\\|")
        for part in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from result_keys(part, f"{above}{name}.")


def manual() -> str:
    """Return the man page: every command with its options, as roff."""
    root = typer.main.get_command(app)
    assert isinstance(root, AnyCommand)
    parts = [MANUAL_HEAD]
    for name, command in commands(root, "disklab"):
        context = typer.Context(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        parts += [f".SS {roff(name)} {roff(usage)}".rstrip(), roff_paragraphs(command.help or "")]
        for parameter in command.params:
            if row := described(parameter, context):
                option, meaning = row.strip("| ").split(" | ", 1)
                meaning = meaning.replace("\\|", "|")
                parts += [".TP", f"\\fB{roff(option.strip('`'))}\\fR", roff(meaning)]
    return "\n".join([*parts, MANUAL_FOOT])


MANUAL_HEAD = """.\\" Generated from the program by `make docs`; do not edit.
.TH DISKLAB 1
.SH NAME
disklab \\- which disks should my distributed database live on?
.SH SYNOPSIS
.B disklab
.I COMMAND
[\\fIOPTIONS\\fR]
.SH COMMANDS"""
MANUAL_FOOT = """.SH EXIT STATUS
0: done; 1: an operating fault; 2: a mistake in a file or an option; 130: interrupted.
.SH FILES
.TP
\\fBdisklab\\-runs/\\fR
Runs, in the current directory unless \\fB\\-\\-out\\fR names another one.
"""


def roff(text: str) -> str:
    """Return a text with what roff takes for its own escaped."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def roff_paragraphs(text: str) -> str:
    """Return paragraphs as roff."""
    return "\n.PP\n".join(roff(part) for part in clean(text).split("\n\n"))


def completion(shell: str) -> str:
    """Return a shell's completion, as a package installs it."""
    return (
        get_completion_script(
            prog_name="disklab", complete_var="_DISKLAB_COMPLETE", shell=shell
        ).rstrip("\n")
        + "\n"
    )


SHARE = "../installer/data/share"
PAGES = {
    f"{SHARE}/man/man1/disklab.1": manual,
    f"{SHARE}/bash-completion/completions/disklab": lambda: completion("bash"),
    f"{SHARE}/zsh/site-functions/_disklab": lambda: completion("zsh"),
    f"{SHARE}/fish/vendor_completions.d/disklab.fish": lambda: completion("fish"),
    "cli.md": cli_page,
    "catalog.md": catalog_page,
    "disk-evidence.md": evidence_page,
    "experiment-file.md": experiment_page,
    "experiment.schema.json": schema_text,
    "hosts.schema.json": lambda: schema_text(schema_of(HostsFile, "hosts")),
    "results.md": results_page,
}


def main() -> int:
    """Write every page, or with `--check` name those that differ."""
    check = "--check" in sys.argv[1:]
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for name in stale:
        told = "differs; run make docs" if check else "written"
        print(f"{os.path.normpath(f'{DOCS.name}/{name}')}: {told}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
