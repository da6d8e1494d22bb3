"""`disklab kit`: databases that are a file: list, check, begin and try them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from disklab.cli.output import Json, console, notes, print_json
from disklab.durable import write_new
from disklab.kits import KitFolder, kit_named, name_kit, name_kits, shipped
from disklab.kits.schema import Kit

_HELP = "Databases described by a file: list, check, new, try."
app = typer.Typer(no_args_is_help=True, help=_HELP)
_WHICH = "A kit file, or the name of a kit that comes with disklab."
File = Annotated[Path, typer.Argument(metavar="FILE", help=_WHICH)]
_USED = "A kit file that the experiment may use."
KitFile = Annotated[Path | None, typer.Option("--kit", help=_USED, metavar="FILE")]
_FOLDER = typer.Option("--program", help="Where a program of a kit is.", metavar="NAME=FOLDER")
ProgramFolder = Annotated[list[str] | None, _FOLDER]


def _chosen(file: Path) -> KitFolder:
    return kit_named(str(file)) if str(file) in shipped() else name_kit(file)


def _say(text: str) -> None:
    console().print(text, markup=False)


@app.command("list")
def list_kits(json: Json = False) -> None:
    """List the kits that come with disklab.

    Example: [bold]disklab kit list[/bold]
    """
    kits = [kit_named(name).kit for name in shipped()]
    keys = {"kit", "title", "version", "licence", "tried"}
    if json:
        print_json({"kits": [kit.model_dump(include=keys) for kit in kits]})
    for kit in () if json else kits:
        _say(f"{kit.kit}: {kit.title} {kit.version} ({kit.tried})")


@app.command()
def check(file: File) -> None:
    """Check a kit file: every key, every template. Nothing is run or downloaded.

    Example: [bold]disklab kit check my-kit.yaml[/bold]
    """
    kit = _chosen(file).kit
    loads = ", ".join(f"{name} ({load.loop} loop)" for name, load in kit.loads.items())
    _say(f"{kit.title} {kit.version}: nothing is wrong. Loads: {loads or 'by its protocol'}.")
    if not any(kind.promises for kind in kit.settings.values()):
        notes().print("No setting says what it promises, so a loss looks like the disk's.")
    if kit.check is None and kit.loads:
        notes().print("It has no check: after a fault, nothing looks for what was acknowledged.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of the kit file, for editors.

    Example: [bold]disklab kit schema > kit.schema.json[/bold]
    """
    print_json(Kit.model_json_schema(by_alias=True))


@app.command()
def new(file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]) -> None:
    """Write a first kit file, with an explanation of each key.

    Example: [bold]disklab kit new my-kit.yaml[/bold]
    """
    write_new(file, (resources.files("disklab") / "kits" / "new.yaml").read_text(encoding="utf-8"))
    _say(f"Written: {file}. Next: disklab kit check {file}")


@app.command("try")
def try_kit(  # noqa: PLR0913, PLR0917 - each option is a parameter
    file: File,
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many nodes.", metavar="N")] = 1,
    load: Annotated[str | None, typer.Option(help="Which load; the first.", metavar="LOAD")] = None,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="Of its load.", metavar="N")] = 10,
    program: ProgramFolder = None,
    json: Json = False,
) -> None:
    """Start a kit in a plain folder, run its load for some seconds, stop it, and show the results.

    Example: [bold]disklab kit try my-kit.yaml --nodes 3[/bold]
    """
    from disklab.databases.kit.trying import tried  # noqa: PLC0415

    def say(text: str) -> None:
        notes().print(text, style="dim", markup=False)

    name_kits((), program)
    kit = _chosen(file).kit
    figures = tried(kit, nodes, load, seconds, say)
    if json:
        print_json({"kit": kit.kit, "nodes": nodes, **figures})
    for name, value in () if json else figures.items():
        _say(f"{name}: {value}")
