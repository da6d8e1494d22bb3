"""A measurement on hosts that are made for it: price first, then make, measure, remove, bill."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from disklab.catalog import load_catalog
from disklab.cli.cloud_options import TITLES, CloudOptions, region_of, site_of, until_of
from disklab.cli.measuring import How, ask, measure_on_hosts
from disklab.cli.output import console, needs_promise
from disklab.cli.run_progress import waits_shown
from disklab.cloud.first_boot import wait_until_ready
from disklab.cloud.guard import (
    LONGEST_S,
    Budget,
    Held,
    Making,
    Tariff,
    budget_of,
    check_known,
    held,
    tariff_of,
)
from disklab.cloud.layout import Layout, check_databases, layout_of
from disklab.cloud.protocol import Clock, CloudError, CloudSite, Fit, SystemClock
from disklab.cloud.record import Notebook, Record, owner
from disklab.errors import Problem, UserError, refuse
from disklab.events import Emit, Warned
from disklab.measurement import hosts_file, preparation
from disklab.measurement.preparation import HostPlan, Options, Wanted
from disklab.procedures import life
from disklab.procedures.life import Stage
from disklab.procedures.outcome import Frame
from disklab.procedures.turn import Turn
from disklab.results import Mode, Run, Status, TrialResult, new_run_id
from disklab.results.event_log import EventLog, Wish, wish
from disklab.spec import Experiment

MADE = "the hosts to be made"


@dataclass(frozen=True)
class Planned:
    """Everything that is decided before anything is made."""

    wanted: Wanted
    run_id: str
    region: str
    layout: Layout
    tariff: Tariff
    budget: Budget
    until: datetime


@dataclass
class Timed:
    """A stage that ends while there is time to remove the hosts."""

    inner: Stage
    there: Held
    longest_s: float

    @property
    def mode(self) -> Mode:
        """As the stage within."""
        return self.inner.mode

    def begin(self, emit: Emit) -> None:
        """Begin the stage within."""
        self.inner.begin(emit)

    def turn(self, turn: Turn, run: Run, frame: Frame, emit: Emit) -> TrialResult:
        """Run one turn; the next begins only when it can end in time."""
        result = self.inner.turn(turn, run, frame, emit)
        if not self.there.has_time_for(self.longest_s):
            until = self.there.record.until.strftime("%H:%M")
            emit(
                Warned(
                    f"the hosts are removed at {until} UTC: no further trial is started", *turn.key
                )
            )
            wish(run.folder, Wish.STOP)
        return result

    def close(self) -> None:
        """Close the stage within."""
        self.inner.close()


def run_in_cloud(planned: Planned, cloud: CloudOptions, how: How) -> int:
    """Show the plan with its price, make the hosts, measure, remove them; return the exit code."""
    needs_promise(planned.wanted.experiment, check=how.check)
    _show(planned, cloud, console() if how.plan and not how.as_json else how.notes)
    site = site_of(planned.region, cloud.subscription, cloud.cloud)
    fit = site.fit(planned.layout)
    if fit.problems:
        raise UserError(*fit.problems)
    if how.plan:
        return 0
    if cloud.max_usd is None:
        if how.yes:
            rule = "without a confirmation there must be a limit on the costs"
            raise UserError(
                Problem("--max-usd", "(not given)", rule, "give the most you would pay")
            )
        ask(how.notes, yes=False)
    run = planned.wanted.run or preparation.create(planned.wanted, [], how.out, planned.run_id)
    making = _making(planned, site, fit, cloud, run)
    return _make_and_measure(planned, making, run, how)


def planned_new(experiment: Experiment, options: Options, cloud: CloudOptions) -> Planned:
    """Return what a new run needs. Raises UserError; reaches no cloud."""
    cloud.check()
    chosen = experiment.only(options.only) if options.only else experiment
    run_id = new_run_id(str(experiment.path), "measure")
    layout = _layout(chosen, cloud)
    hosts = hosts_file.parse(layout.hosts_text(str(Notebook.of(run_id).ssh_config)), MADE)
    wanted = preparation.wanted(experiment, hosts, options)
    _check_repeats(wanted, cloud)
    return _priced(wanted, run_id, layout, cloud.region or region_of(cloud.cloud), cloud)


def _layout(chosen: Experiment, cloud: CloudOptions) -> Layout:
    trials = chosen.trials("measure")
    check_databases(chosen, trials)
    return layout_of(chosen, trials, load_catalog(), cloud.copies, cloud.cloud or "azure")


def _check_repeats(wanted: Wanted, cloud: CloudOptions) -> None:
    """Refuse hosts that no repeat would ever be on."""
    repeats = max((turn.repeat + 1 for turn in wanted.turns), default=0)
    if wanted.turns and repeats < cloud.copies:
        rule = f"each trial runs {repeats} times, each time on one of {cloud.copies}"
        way_out = f"give --repeat {cloud.copies} or more"
        raise UserError(Problem("--fresh-hosts", str(cloud.fresh_hosts), rule, way_out))


def planned_again(resume: str, out: Path, again: list[Status], cloud: CloudOptions) -> Planned:
    """Return what is left of a run whose hosts are to be made once more. Raises UserError."""
    cloud.check()
    wanted, run = preparation.resumed(resume, out, again)
    place = str(run.folder)
    told = (run.info.model_extra or {}).get("cloud")
    only = wanted.options.only
    chosen = wanted.experiment.only(only) if only else wanted.experiment
    begun_with = (run.info.model_extra or {}).get("fresh_hosts")
    if cloud.fresh_hosts not in {None, begun_with}:
        rule = "the run was begun with another number"
        raise UserError(Problem("--fresh-hosts", str(cloud.fresh_hosts), rule, "leave it out"))
    cloud = replace(cloud, fresh_hosts=begun_with if isinstance(begun_with, int) else None)
    layout = _layout(chosen, cloud)
    text = layout.hosts_text(str(Notebook.of(run.info.id).ssh_config))
    if not isinstance(told, dict) or wanted.hosts.document.text != text:
        rule = "was not begun on hosts like those that would be made now, from this state folder"
        raise UserError(Problem("--resume", place, rule, "leave --cloud out, or begin another run"))
    if not wanted.turns:
        rule = "every trial has its result"
        raise UserError(Problem("--resume", place, rule, "`--again invalid` measures those again"))
    region = str(told.get("region", region_of(cloud.cloud)))
    if cloud.region not in {None, region}:
        rule = f"the run was begun in {region}, and one run is measured in one region"
        raise UserError(Problem("--region", str(cloud.region), rule, "leave it out"))
    return _priced(wanted, run.info.id, layout, region, cloud)


def _priced(
    wanted: Wanted, run_id: str, layout: Layout, region: str, cloud: CloudOptions
) -> Planned:
    clock = SystemClock()
    tariff = tariff_of(layout, load_catalog(), region)
    if cloud.max_usd is not None:
        check_known(tariff, "--max-usd")
    seconds = sum(preparation.expected_s(turn) for turn in wanted.turns)
    budget = budget_of(tariff, seconds, cloud.max_usd)
    until = clock.now() + timedelta(seconds=budget.allowed_s)
    if cloud.keep_until is not None:
        until = until_of(cloud.keep_until, clock.now())
        _check_kept(until, tariff, budget, cloud, clock)
    return Planned(wanted, run_id, region, layout, tariff, budget, until)


def _check_kept(
    until: datetime, tariff: Tariff, budget: Budget, cloud: CloudOptions, clock: Clock
) -> None:
    seconds = (until - clock.now()).total_seconds()
    problems = []
    told = str(cloud.keep_until)
    if not budget.expected_s <= seconds <= LONGEST_S:
        rule = (
            f"is {seconds / 3600:.1f} h ahead; the run takes {budget.expected_s / 3600:.1f} h, and "
            f"hosts are created for at most {LONGEST_S / 3600:.0f} h"
        )
        problems.append(Problem("--keep-until", told, rule, "choose a time between"))
    if cloud.max_usd is not None and tariff.usd(seconds) > cloud.max_usd:
        rule = f"until then they cost {tariff.usd(seconds):.2f} USD, and --max-usd is less"
        problems.append(Problem("--keep-until", told, rule, "choose an earlier time"))
    refuse(problems)


def _show(planned: Planned, cloud: CloudOptions, to: Console) -> None:
    budget, tariff, layout = planned.budget, planned.tariff, planned.layout
    where = f"{TITLES[cloud.cloud or 'azure']}, {planned.region}"
    to.print(Text(f"{len(planned.wanted.turns)} measurements in {where}:"))
    for host in layout.hosts:
        disks = ", ".join(f"{one.disks} as {one.name}" for one in host.volumes)
        to.print(
            Text(f"  make    {host.name}: {host.vm.name}" + (f" with {disks}" if disks else ""))
        )
    for item in tariff.items:
        price = f"{item.usd_per_hour:.3f} USD an hour ({item.source})"
        to.print(Text(f"  price   {item.count} x {item.what}: {price}"))
    for one in tariff.unknown:
        to.print(Text(f"  price   {one}"))
    until = planned.until.strftime("%Y-%m-%d %H:%M UTC")
    to.print(
        Text(
            f"Expected: {budget.expected_s / 60:.0f} min and {budget.expected_usd:.2f} USD with "
            f"setting up and removing; at {until} at the latest they are removed"
            + (" (kept until then)" if cloud.keep_until else f": {budget.most_usd:.2f} USD")
        )
    )
    if cloud.cloud == "aws":
        dead = "the instances terminate themselves then, and their volumes and addresses with them."
    else:
        dead = (
            "the VMs are deallocated then; disks and addresses go on at "
            f"{tariff.idle_usd_per_hour * 24:.2f} USD a day until `disklab clean --cloud`."
        )
    to.print(Text(f"If this machine dies, {dead}"))
    whose = "account" if cloud.cloud == "aws" else "subscription"
    to.print(Text(f"SSH is open to {cloud.ssh_from} only. Nothing else in the {whose} changes."))


def _making(planned: Planned, site: CloudSite, fit: Fit, cloud: CloudOptions, run: Run) -> Making:
    record = Record(
        cloud="aws" if cloud.cloud == "aws" else "azure",
        run=planned.run_id,
        run_folder=str(run.folder.absolute()),
        # Azure's groups have names of up to 90 characters.
        group=f"disklab-{planned.run_id}"[-90:],
        subscription=site.account,
        endpoint=site.endpoint,
        region=planned.region,
        owner=owner(),
        until=planned.until,
        kept=cloud.keep_until is not None,
        usd_per_hour=planned.tariff.usd_per_hour,
        idle_usd_per_hour=planned.tariff.idle_usd_per_hour,
    )
    if planned.wanted.run is None:
        _note_command(planned, cloud, run)
    notebook = Notebook.of(planned.run_id)
    return Making(site, fit, record, notebook, str(cloud.ssh_from), SystemClock())


def _note_command(planned: Planned, cloud: CloudOptions, run: Run) -> None:
    command = [word for word in run.info.command if word not in {"--hosts", MADE}]
    command += [
        "--cloud",
        cloud.cloud or "azure",
        "--region",
        planned.region,
        "--ssh-from",
        "ADDRESS",
    ]
    command += [] if cloud.max_usd is None else ["--max-usd", f"{cloud.max_usd:g}"]
    command += [] if cloud.fresh_hosts is None else ["--fresh-hosts", str(cloud.fresh_hosts)]
    run.plan_again({"command": command, "fresh_hosts": cloud.fresh_hosts})


def _make_and_measure(planned: Planned, making: Making, run: Run, how: How) -> int:
    # While the run lives, its own view shows what is waited for.
    with EventLog(run.folder) as log, waits_shown(how.notes, log):
        return _in_hosts_made(planned, making, run, how)


def _in_hosts_made(planned: Planned, making: Making, run: Run, how: How) -> int:
    told = how.tell
    clock, group = making.clock, making.record.group
    _note(run, making, {})
    if planned.wanted.run is not None:
        # A killed start's hosts have other keys; what was measured on them is stored.
        told(f"removing what an earlier start may have left of {group}")
        making.site.remove(group, making.record.run)
    told(f"making the group {group}")
    begun = clock.now()
    try:
        with held(making, told) as there, ExitStack() as undo:
            told(f"made {len(there.addresses)} hosts; waiting for their first boot")
            config = making.notebook.ssh_config
            wait_until_ready(planned.wanted.names, config, planned.run_id, clock, told)
            return _measure(planned, run, there, how, undo)
    finally:
        seconds = (clock.now() - begun).total_seconds()
        rows = list(planned.tariff.rows(seconds))
        _note(run, making, {"bill": rows})
        for what, hours, usd in rows:
            told(f"bill: {what}: {hours:.2f} h, {usd:.2f} USD")
        stays = ", so far: the hosts stay" if making.record.kept else ""
        told(f"bill: {planned.tariff.usd(seconds):.2f} USD by list prices{stays}")


def _measure(planned: Planned, run: Run, there: Held, how: How, undo: ExitStack) -> int:
    def agreed(plans: list[HostPlan]) -> bool:
        run.plan_again({"environment": {"hosts": {plan.name: plan.facts for plan in plans}}})
        return True

    def in_time(prepared: life.Planned, stage: Stage) -> Stage:
        longest = max(prepared.expected_s, default=0.0)
        if not there.has_time_for(longest):
            raise CloudError("setting up took so long that no trial would end in time; allow more")
        return Timed(stage, there, longest)

    wanted = replace(planned.wanted, run=run)
    return measure_on_hosts(wanted, how, undo, agreed, in_time)


def _note(run: Run, making: Making, more: dict[str, Any]) -> None:
    """Note in the run where it was measured, and what that has cost."""
    record = making.record
    facts = {
        "cloud": record.cloud,
        "region": record.region,
        "zones": list(making.fit.zones),
        "group": record.group,
        "until": record.until.isoformat(timespec="seconds"),
        "usd_per_hour": round(record.usd_per_hour, 4),
        **more,
    }
    run.plan_again({"cloud": facts})
