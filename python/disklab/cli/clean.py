"""`disklab clean`: removes what a crash left."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from disklab.cli.output import Json, console, notes, print_json
from disklab.errors import MachineError, UserError
from disklab.hosts.cleaning import Kept, Scope, as_json
from disklab.hosts.cleaning import clean as remove
from disklab.hosts.left_databases import Removed
from disklab.hosts.places import Places


def clean(  # noqa: PLR0913, PLR0917 - each option is a parameter
    everything: Annotated[
        bool, typer.Option("--all", help="Also healthy hosts, in use or not.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="Only this emulated host.")] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Also remove the data of hosts that no longer exist.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed.")
    ] = False,
    cloud: Annotated[
        bool,
        typer.Option(
            "--cloud",
            help="Only what runs left in a cloud; with --all, also what was meant to stay.",
        ),
    ] = False,
    forget: Annotated[
        str | None,
        typer.Option(
            help="Only forget what measurements left on this host, which no longer exists."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Remove all mounts, devices and processes that a crash left behind. Data stay.

    A healthy host stays unless [bold]--all[/bold] is given. What disklab cannot
    prove to be its own is left alone and named.

    Examples: [bold]disklab clean --dry-run[/bold], [bold]disklab clean --all[/bold]
    """
    if cloud:
        # Loaded here: it brings the report, and cleaning is to be quick.
        from disklab.cli.run_progress import waits_shown  # noqa: PLC0415

        with waits_shown(notes()):
            clean_clouds(everything=everything, dry_run=dry_run, quiet=json)
        return
    if forget is not None:
        from disklab.measurement.preparation import give_up  # noqa: PLC0415

        for line in give_up(forget, dry_run=dry_run):
            (notes() if json else console()).print(line, markup=False)
        return
    measured = [] if host is not None else clean_measurements(dry_run=dry_run, quiet=json)
    if host is None:
        measured += clean_traces(dry_run=dry_run, quiet=json)
    scope = Scope(everything=everything, host=host, data=data, dry_run=dry_run)
    try:
        removed, kept = remove(Places.usual(), scope)
    except UserError:
        if not measured:
            raise
        # Hosts are measured without root; emulated disks are not for this user.
        removed, kept = [], Kept([], [])
    if json:
        print_json(as_json(removed, kept))
    else:
        _show(removed, kept, dry_run=dry_run, quiet=bool(measured))
    if not all(one.done for one in removed) or not all(fine for _, fine in measured):
        gone = "; --forget HOST forgets a host that no longer exists" if measured else ""
        again = "see above, and run `disklab clean` again later"
        raise MachineError(f"something is left; {again}{gone}")


def _show(removed: list[Removed], kept: Kept, *, dry_run: bool, quiet: bool) -> None:
    out = console()
    verb = "would remove" if dry_run else "removed"
    for one in removed:
        note = f" ({one.note})" if one.note else ""
        word = verb if one.done else "could not remove"
        out.print(f"{word} {one.kind} {one.what} of host {one.host}{note}", markup=False)
    for name in kept.healthy:
        out.print(f"host {name} is running and stays; --all removes it", markup=False)
    for path in kept.data:
        out.print(f"data are kept in {path}", markup=False)
    for left in kept.foreign:
        out.print(f"left alone {left.what}: {left.why}", markup=False)
    if not removed and not quiet:
        out.print("nothing to remove")


def clean_measurements(*, dry_run: bool, quiet: bool) -> list[tuple[str, bool]]:
    """Undo what killed measurements have left on their hosts; return what was told."""
    # Loaded where something is left: it brings polars, and cleaning is to be quick.
    from disklab.measurement.journal import remembered  # noqa: PLC0415

    if not any(True for _ in remembered()):
        return []
    from disklab.measurement.preparation import clean_left  # noqa: PLC0415

    told = []
    for line, fine in clean_left(dry_run=dry_run):
        told.append((line, fine))
        (notes() if quiet else console()).print(line, markup=False)
    return told


def clean_traces(*, dry_run: bool, quiet: bool) -> list[tuple[str, bool]]:
    """Remove the block traces of observations that were killed; return what was told."""
    from disklab.observation.tracing import remove_left  # noqa: PLC0415

    told = remove_left(dry_run=dry_run)
    for line, _ in told:
        (notes() if quiet else console()).print(line, markup=False)
    return told


def clean_clouds(*, everything: bool, dry_run: bool, quiet: bool) -> None:
    """Remove the groups that runs have left. Raises MachineError when something is left."""
    from disklab.cli.cloud_options import region_of, site_at, site_of  # noqa: PLC0415
    from disklab.cloud import guard, record  # noqa: PLC0415
    from disklab.cloud.protocol import SystemClock  # noqa: PLC0415

    to = notes() if quiet else console()
    known = frozenset(one.group for _, one in record.records() if one is not None)
    lines = list(
        guard.clean_left(site_at, SystemClock().now(), everything=everything, dry_run=dry_run)
    )
    for line, _ in lines:
        to.print(line, markup=False)
    # What no record of this machine has, in the subscription or account of the login.
    clouds = {"azure": region_of("azure")}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        clouds["aws"] = region
    for cloud, region in clouds.items():
        try:
            site = site_of(region, None, cloud)
        except UserError as error:  # noqa: PERF203 - each cloud for itself
            to.print(f"not looked for by tag: {error.problems[0]}", markup=False)
        else:
            tagged = list(guard.clean_tagged(site, record.owner(), known, dry_run=dry_run))
            for line, _ in tagged:
                to.print(line, markup=False)
            lines += tagged
    if not lines:
        to.print("nothing to remove", markup=False)
    if not all(fine for _, fine in lines):
        raise MachineError("something is left; see above, and run `disklab clean --cloud` later")
