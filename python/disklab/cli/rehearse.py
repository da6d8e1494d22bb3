"""The options of `disklab rehearse`."""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from disklab import spec
from disklab.cli.amounts import MOST_SEED, Out, bundled_names, scale_of
from disklab.cli.experiment import Only, TimeDilation, choices
from disklab.cli.kit import KitFile, ProgramFolder
from disklab.cli.output import Check, code_of_run, needs_promise, notes
from disklab.cli.rehearsing import check_on_end
from disklab.cli.root_part import root_part
from disklab.errors import Problem, UserError, refuse_given
from disklab.interrupts import end_as_ctrl_c
from disklab.kits import name_kits
from disklab.results import DEFAULT_OUT

Experiment = Annotated[
    Path | None,
    typer.Argument(
        metavar="EXPERIMENT",
        help="Experiment file, or the name of one that comes with disklab.",
        autocompletion=bundled_names,
    ),
]

Repeat = Annotated[
    int | None,
    typer.Option(
        help="How often each trial runs; 3 by default. With --resume: the total.",
        metavar="N",
    ),
]


class Again(str, Enum):
    """Ends of a trial that are worth another try. Refused trials stay refused."""

    failed = "failed"
    invalid = "invalid"


Resume = Annotated[str | None, typer.Option(help="Continue a run that was stopped.", metavar="RUN")]
Quick = Annotated[
    bool, typer.Option("--quick", help="A first look: one repeat, short measurements.")
]
AgainToo = Annotated[
    list[Again] | None,
    typer.Option(help="With --resume: also retry trials that ended like this. May be given twice."),
]
OnEnd = Annotated[
    str | None,
    typer.Option(
        help="When it is over, run this command or send JSON to this address.",
        metavar="COMMAND|URL",
    ),
]


JsonTrials = Annotated[bool, typer.Option("--json", help="One JSON object a finished trial.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of order, keys and content; 1 by default.", metavar="N", min=0, max=MOST_SEED
    ),
]
Nodes = Annotated[
    int | None, typer.Option(help="How many of the cluster's nodes run here.", metavar="N")
]


def rehearse(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: Experiment = None,
    scale: Annotated[
        str | None,
        typer.Option(help="Scale of data, caches and credits, such as 1/100.", metavar="SCALE"),
    ] = None,
    nodes: Nodes = None,
    time_dilation: TimeDilation = None,
    repeat: Repeat = None,
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
    """Run a real database under real load on emulated disks, and report the results.

    Examples: [bold]disklab rehearse experiments/cassandra-local-or-attached.yaml --quick[/bold],
    [bold]disklab rehearse FILE --only workload=read --repeat 5[/bold],
    [bold]disklab rehearse --resume RUN --again failed[/bold]
    """
    # Loaded here because it brings NumPy and polars: no other command is to wait for them.
    from disklab.cli.rehearsing import root_of, run_it  # noqa: PLC0415
    from disklab.procedures import preparation  # noqa: PLC0415

    name_kits([kit], program)
    root, look = root_of(root_part())
    check_on_end(on_end)
    console = notes()
    say = partial(console.print, style="dim", markup=False)
    # `kill` ends it as Ctrl-C does: what was made is taken away.
    end_as_ctrl_c()
    given = {
        "EXPERIMENT": experiment,
        "--scale": scale,
        "--nodes": nodes,
        "--time-dilation": time_dilation,
        "--only": only,
        "--seed": seed,
        "--quick": quick or None,
    }
    if resume is not None:
        refuse_given(given, RESUMED)
        prepared = preparation.resume(
            resume, out, say, [one.value for one in again or []], repeat, look
        )
        needs_promise(prepared.experiment, check=check)
    else:
        described = spec.load(_experiment_of_new_run(experiment, again))
        needs_promise(described, check=check)
        options = preparation.Options(
            scale=scale_of(scale),
            nodes=nodes,
            time_dilation=time_dilation,
            repeats=repeat if repeat is not None else 1 if quick else preparation.DEFAULT_REPEATS,
            seed=1 if seed is None else seed,
            quick=quick,
            only=choices(only),
        )
        prepared = preparation.prepare(described, options, out, say, look)
    code = run_it(prepared, console, as_json=json, on_end=on_end, root=root)
    sys.exit(code_of_run(prepared.run) if check and code == 0 else code)


RESUMED = "a resumed run continues with its original options"


def again_problems(again: list[Again] | None) -> list[Problem]:
    """Return why a new run has nothing to try again."""
    if not again:
        return []
    stated = ", ".join(one.value for one in again)
    rule = "only a run that was begun has results"
    return [Problem("--again", stated, rule, "name the run: --resume RUN")]


def _experiment_of_new_run(experiment: Path | None, again: list[Again] | None) -> Path:
    problems = again_problems(again)
    if experiment is None:
        way_out = "name a file, such as experiments/cassandra-local-or-attached.yaml"
        problems.append(Problem("EXPERIMENT", "(nothing)", "there is nothing to rehearse", way_out))
    if experiment is None or problems:
        raise UserError(*problems)
    return experiment
