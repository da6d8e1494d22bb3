"""`disklab kit`: databases that are a file: list, check, begin and try them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from disklab.cli.output import Json, console, notes, print_json
from disklab.durable import write_new
from disklab.errors import Problem, UserError, refuse
from disklab.kits import kit_named, read_kit, shipped
from disklab.kits.plan import unknown_names
from disklab.kits.schema import Kit
from disklab.kits.shelf import hold, name_kit, name_program

app = typer.Typer(no_args_is_help=True, help="Databases that are a file: list, check, new, try.")

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A kit file, or the name of a kit that comes along.")
]
KitFile = Annotated[
    Path | None,
    typer.Option("--kit", help="A kit file that the experiment may use.", metavar="FILE"),
]
ProgramFolder = Annotated[
    list[str] | None,
    typer.Option("--program", help="Where a program of a kit is.", metavar="NAME=FOLDER"),
]


def name_kits(kit: Path | None, programs: list[str] | None = None) -> None:
    """Let an experiment use the kit of the command line, and find its programs there."""
    if kit is not None:
        refuse(unknown_names(name_kit(kit)))
    for given in programs or []:
        name_program(given)


def _checked(file: Path) -> Kit:
    """Return a kit all of whose words mean something. Raises UserError with every problem."""
    found = kit_named(str(file)) if str(file) in shipped() else read_kit(file)
    at = str(found.folder / "kit.yaml" if str(file) in shipped() else file)
    refuse(
        Problem(f"{at}: {one.place}", one.value, one.rule, one.way_out)
        for one in unknown_names(found.kit)
    )
    hold(found)
    return found.kit


@app.command("list")
def list_kits(json: Json = False) -> None:
    """List the kits that come with disklab.

    Example: [bold]disklab kit list[/bold]
    """
    kits = [kit_named(name).kit for name in shipped()]
    if json:
        keys = {"kit", "title", "version", "licence", "tried"}
        print_json({"kits": [kit.model_dump(include=keys) for kit in kits]})
        return
    for kit in kits:
        console().print(f"{kit.kit}: {kit.title} {kit.version} ({kit.tried})", markup=False)


@app.command()
def check(file: File) -> None:
    """Check a kit file: every key, every template. Nothing is run or fetched.

    Example: [bold]disklab kit check my-kit.yaml[/bold]
    """
    kit = _checked(file)
    loads = ", ".join(f"{name} ({load.loop} loop)" for name, load in kit.loads.items())
    console().print(
        f"{kit.title} {kit.version}: nothing is wrong. Loads: {loads or 'by its protocol'}.",
        markup=False,
    )
    silent = [name for name, kind in kit.settings.items() if not kind.promises]
    if len(silent) == len(kit.settings):
        notes().print(
            "No setting says what it promises: a report cannot say whether a setting or the disk "
            "lost what is gone after a host's loss.",
            markup=False,
        )
    if kit.check is None and kit.loads:
        notes().print(
            "It has no check: after a fault nobody looks for what was acknowledged.", markup=False
        )


@app.command()
def schema() -> None:
    """Print the JSON Schema of the kit file, for editors.

    Example: [bold]disklab kit schema > kit.schema.json[/bold]
    """
    print_json(Kit.model_json_schema(by_alias=True))


@app.command()
def new(file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]) -> None:
    """Write a kit file to begin with, each key explained.

    Example: [bold]disklab kit new my-kit.yaml[/bold]
    """
    template = resources.files("disklab") / "kits" / "new.yaml"
    write_new(file, template.read_text(encoding="utf-8"))
    console().print(f"Written: {file}. Next: disklab kit check {file}", markup=False)


@app.command()
def lock(file: File) -> None:
    """Fetch the programs of a kit that have a lock, and write the sums of their files into it.

    Example: [bold]disklab kit lock my-kit.yaml[/bold]
    """
    from disklab.databases.kit.programs import sums_of  # noqa: PLC0415

    found = kit_named(str(file)) if str(file) in shipped() else read_kit(file)
    for program in found.kit.programs:
        if program.lock is not None:
            sums = sums_of(program)
            (found.folder / program.lock).write_text(sums, encoding="ascii")
            count = len(sums.splitlines())
            console().print(f"{program.lock}: {count} files of {program.name}", markup=False)


@app.command("try")
def try_kit(  # noqa: PLR0913, PLR0917 - each option is a parameter
    file: File,
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many nodes.", metavar="N")] = 1,
    load: Annotated[str | None, typer.Option(help="Which load; the first.", metavar="LOAD")] = None,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="Of its load.", metavar="N")] = 10,
    program: ProgramFolder = None,
    json: Json = False,
) -> None:
    """Start a kit in a plain folder, run some seconds of its load, stop it, and show what was read.

    Example: [bold]disklab kit try my-kit.yaml --nodes 3[/bold]
    """
    from disklab.databases.kit.trying import Trial  # noqa: PLC0415

    name_kits(None, program)
    kit = _checked(file)
    say = notes()
    with Trial(kit, nodes, lambda text: say.print(text, style="dim", markup=False)) as trial:
        begun = time.monotonic()
        try:
            trial.database.start()
            say.print(f"ready after {time.monotonic() - begun:.1f} s", style="dim", markup=False)
            figures = _load(kit, trial.database.target, load, seconds) if kit.loads else {}
            seen = trial.database.observe()
            figures |= {"counters": {**seen.metrics, **seen.counters}}
            trial.database.stop()
        except BaseException:
            for line in trial.log_lines():
                say.print(line, style="dim", markup=False)
            raise
    if json:
        print_json({"kit": kit.kit, "nodes": nodes, **figures})
        return
    for name, value in figures.items():
        console().print(f"{name}: {value}", markup=False)


def _load(kit: Kit, target: Mapping[str, object], name: str | None, seconds: int) -> dict[str, Any]:
    from disklab.workloads.tool import tried  # noqa: PLC0415

    chosen = name or next(iter(kit.loads))
    if chosen not in kit.loads:
        rule = f"the kit {kit.kit} has no such load"
        raise UserError(Problem("--load", chosen, rule, f"choose {', '.join(kit.loads)}"))
    done = tried(kit, chosen, target, seconds)
    (operation,) = done.operations.values()
    told = operation.model_dump(by_alias=True, exclude_none=True, exclude={"count", "ops_per_s"})
    return {
        "load": chosen,
        "loop": kit.loads[chosen].loop,
        "operations": operation.count,
        "ops_per_s": round(done.ops_per_s, 1),
        **told,
    }
