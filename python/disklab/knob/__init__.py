"""The simulator on a page: what it offers, and the page, one file without a server."""

import base64
import gzip
import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from disklab import reading
from disklab.catalog import load_catalog
from disklab.errors import MachineError
from disklab.knob.offer import offer
from disklab.machines.programs import run
from disklab.reading import Kind
from disklab.report.html import DARK, LIGHT, axes_script, variables

# The page as one file, under a policy that lets it reach nothing.

HTML = "knob.html"
MODULE = "simulator.wasm"
NAMED = "DISKLAB_WASM"
SCRIPTS = ("jobs.js", "charts.js", "picture.js", "scenes.js", "knob.js")
KIND = Kind("the simulator for browsers", 64 << 20, "build it again by `scripts/knob.sh`")
BUILDER = Path("scripts/knob.sh")
MOST_BUILD_S = 7200.0
"""Of a build: two minutes of processor time, on a machine that others keep busy."""


def module_path() -> Path:
    """Return where the simulator for browsers lies: `$DISKLAB_WASM`, else beside this file."""
    named = os.environ.get(NAMED)
    return Path(named) if named else Path(str(resources.files(__package__) / MODULE))


def has_module() -> bool:
    """Return whether the simulator for browsers was built here."""
    return module_path().is_file()


def builder() -> Path | None:
    """Return the script of a clone that builds the simulator for browsers; None: no clone."""
    clone = Path(__file__).resolve().parents[3]
    script = clone / BUILDER
    return script if script.is_file() and (clone / "Cargo.toml").is_file() else None


def build_module() -> None:
    """Build the simulator where this is a clone and it is missing or older than its sources.

    What the build prints goes to standard error. Raises MachineError, with what is missing.
    """
    script = builder()
    if os.environ.get(NAMED) or script is None:
        return
    ended = run([str(script)], MOST_BUILD_S, inherits=True, shown=True)
    if ended.code and not has_module():
        raise MachineError(f"{script} did not build the simulator for browsers; see above")


@dataclass(frozen=True)
class Page:
    """The page, and what it may do, which it says itself too."""

    text: str
    policy: str


@lru_cache(maxsize=4)
def made_page(vms: frozenset[str] | None = None) -> Page:
    """Return the page, with these VMs and those of the studies; None: with all.

    Raises MachineError where the simulator for browsers was not built.
    """
    path = module_path()
    if not path.is_file():
        raise MachineError(
            f"{path}: the simulator for browsers is not there; in a clone `disklab knob` builds "
            "it (one to two minutes of processor time), and wheels of a release have it"
        )
    script = "\n".join([axes_script(), *map(_file, SCRIPTS)])
    style = f":root{{{variables(LIGHT)}}}\n" + _file("knob.css").replace(
        "/* dark */", variables(DARK)
    )
    offered = json.dumps(
        offer(load_catalog(), vms),
        ensure_ascii=False,
        separators=(",", ":"),
    )
    policy = _policy(script, style)
    parts = {
        "POLICY": policy,
        "STYLE": style,
        "SCRIPT": script,
        "WORKER": _file("worker.js"),
        "OFFER": _packed(offered.encode()),
        "MODULE": _packed(reading.contents(path, KIND, str(path))),
    }
    text = _file(HTML)
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return Page(text, policy)


def _policy(script: str, style: str) -> str:
    """Return what the page may do: run its own script and style, and a worker made of its text."""
    return (
        f"default-src 'none'; script-src {_digest(script)} 'wasm-unsafe-eval'; "
        f"style-src {_digest(style)}; img-src data:; worker-src blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(content: bytes) -> str:
    # Without a date: the same content gives the same page.
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


__all__ = ["Page", "build_module", "has_module", "made_page"]
