"""The options of `disklab measure`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from disklab import spec
from disklab.cli import cloud_options
from disklab.cli.amounts import Out
from disklab.cli.cloud_options import CloudOptions
from disklab.cli.experiment import Only, choices
from disklab.cli.kit import KitFile, ProgramFolder
from disklab.cli.output import Check, notes
from disklab.cli.rehearse import (
    RESUMED,
    Again,
    AgainToo,
    Experiment,
    JsonTrials,
    OnEnd,
    Quick,
    Resume,
    Seed,
    again_problems,
)
from disklab.cli.rehearsing import check_on_end
from disklab.errors import Problem, UserError, refuse_given
from disklab.interrupts import end_as_ctrl_c
from disklab.kits import name_kits
from disklab.results import DEFAULT_OUT

HostsOption = Annotated[
    Path | None,
    typer.Option("--hosts", help="The hosts file: where to measure.", metavar="FILE"),
]


def measure(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: Experiment = None,
    hosts: HostsOption = None,
    cloud: cloud_options.Cloud = None,
    region: cloud_options.Region = None,
    max_usd: cloud_options.MaxUsd = None,
    ssh_from: cloud_options.SshFrom = None,
    keep_until: cloud_options.KeepUntil = None,
    subscription: cloud_options.Subscription = None,
    fresh_hosts: cloud_options.FreshHosts = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Look at the hosts, show what would be done, and stop there."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="How often each trial runs; 3, or once on each host if there are more.",
            metavar="N",
        ),
    ] = None,
    only: Only = None,
    seed: Seed = None,
    quick: Quick = False,
    resume: Resume = None,
    again: AgainToo = None,
    out: Out = DEFAULT_OUT,
    on_end: OnEnd = None,
    kit: KitFile = None,
    program: ProgramFolder = None,
    check: Check = False,
    json: JsonTrials = False,
) -> None:
    """Measure an experiment on your hosts, or on hosts created in a cloud, after showing a plan.

    Examples: [bold]disklab measure FILE --hosts hosts.yaml --plan[/bold],
    [bold]disklab measure FILE --cloud azure --max-usd 5 --ssh-from ADDRESS --fresh-hosts 3[/bold],
    [bold]disklab measure --resume RUN --yes[/bold]
    """
    from disklab.cli.measuring import How, run_it  # noqa: PLC0415 - brings NumPy: nobody else waits
    from disklab.measurement import preparation  # noqa: PLC0415

    name_kits([kit], program)
    check_on_end(on_end)
    # `kill` ends it as Ctrl-C does: what was changed is changed back.
    end_as_ctrl_c()
    made = CloudOptions(cloud, region, max_usd, ssh_from, keep_until, subscription, fresh_hosts)
    options = preparation.Options(
        repeats=repeat, seed=1 if seed is None else seed, quick=quick, only=choices(only)
    )
    how = How(notes(), out, plan=plan, yes=yes, as_json=json, check=check, on_end=on_end)
    states: Any = [one.value for one in again or []]
    if resume is not None:
        told = {"EXPERIMENT": experiment, "--hosts": hosts, "--repeat": repeat, "--only": only}
        more = {} if cloud else made.given()
        refuse_given({**more, **told, "--seed": seed, "--quick": quick or None}, RESUMED)
    if cloud is not None:
        sys.exit(_in_cloud((experiment, hosts), options, made, (resume, states, out), how))
    if resume is not None:
        wanted, _ = preparation.resumed(resume, out, states)
    else:
        wanted = _on_hosts(_needed(experiment, hosts, again), options, made)
    sys.exit(run_it(wanted, how))


def _in_cloud(
    files: tuple[Path | None, Path | None],
    options: Any,
    made: CloudOptions,
    where: tuple[str | None, Any, Path],
    how: Any,
) -> int:
    from disklab.cli import measuring_in_cloud as cloud  # noqa: PLC0415

    (experiment, hosts), (resume, states, out) = files, where
    if hosts is not None:
        rule = "hosts either exist already or are created"
        raise UserError(Problem("--hosts", str(hosts), rule, "give --hosts or --cloud"))
    if resume is not None:
        planned = cloud.planned_again(resume, out, states, made)
    elif experiment is not None:
        planned = cloud.planned_new(spec.load(experiment), options, made)
    else:
        way_out = "name a file, such as experiments/azure-local-disks.yaml"
        raise UserError(Problem("EXPERIMENT", "(nothing)", "there is nothing to measure", way_out))
    return cloud.run_in_cloud(planned, made, how)


def _on_hosts(files: tuple[Path, Path], options: Any, made: CloudOptions) -> Any:
    from disklab.measurement import hosts_file, preparation  # noqa: PLC0415

    refuse_given(made.given(), "is about hosts that are made", "give --cloud azure as well")
    return preparation.wanted(spec.load(files[0]), hosts_file.load(files[1]), options)


def _needed(
    experiment: Path | None, hosts: Path | None, again: list[Again] | None
) -> tuple[Path, Path]:
    problems = again_problems(again)
    if experiment is None:
        way_out = "name a file, such as experiments/azure-local-disks.yaml"
        problems.append(Problem("EXPERIMENT", "(nothing)", "there is nothing to measure", way_out))
    if hosts is None:
        rule = "a measurement needs hosts"
        way_out = "describe them in a hosts file (docs/measure.md) and name it: --hosts hosts.yaml"
        problems.append(Problem("--hosts", "(nothing)", rule, way_out))
    if experiment is None or hosts is None or problems:
        raise UserError(*problems)
    return experiment, hosts
