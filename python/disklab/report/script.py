"""Vega, Vega-Lite and vega-embed as one script for the page, so that it needs no network.

Bundling takes seconds, so the result is kept in the user's cache folder, by version.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import altair as alt
import vl_convert

from disklab import reading

SNIPPET = "window.vegaEmbed=vegaEmbed;"


def vega_lite_version() -> str:
    """Return the Vega-Lite version that altair writes, as vl-convert names it: `6.4`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def cache_folder() -> Path:
    """Return where disklab keeps what it can make again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "disklab"


@cache
def vega_script() -> str:
    """Return the script; it sets `vegaEmbed`."""
    kept = cache_folder() / f"vega-embed-{version('vl-convert-python')}-{vega_lite_version()}.js"
    if (told := reading.record_text(kept, reading.SCRIPT)) is not None:
        return told
    made: str = vl_convert.javascript_bundle(SNIPPET, vl_version=vega_lite_version())
    # A cache that cannot be written costs seconds the next time, nothing else.
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        beside = kept.with_name(f".{kept.name}.{os.getpid()}")
        beside.write_text(made, encoding="utf-8")
        beside.replace(kept)
    return made
