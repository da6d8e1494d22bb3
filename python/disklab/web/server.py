"""The live page: run folders read again and again, sent as server-sent events.

Each event is the whole state of the page (some tens of kilobytes at most), so that a browser that
lost its connection needs nothing but the next one, and a page that stays open for days does not
grow.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from disklab import reading
from disklab.errors import UserError
from disklab.folders import Inside
from disklab.knob import Page, has_module, made_page
from disklab.reading import Kind
from disklab.report.html import POLICY, axes_script
from disklab.results.event_log import Wish, wish
from disklab.web.access import KNOB, Address, Guard, knob_address, report_address
from disklab.web.state import Followed, runs_in

# The same figures for Prometheus: OpenMetrics text.
#
# Source: the OpenMetrics specification, version 1.0 (metric names with their units, `# EOF`).

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

FAMILIES = {
    "disklab_run": ("info", "What the run is."),
    "disklab_run_trials": ("gauge", "Trials by what became of them, and how many were planned."),
    "disklab_run_left_seconds": ("gauge", "How long the run still takes."),
    "disklab_run_operations_per_second": ("gauge", "Rate of the load under way."),
    "disklab_run_p99_seconds": ("gauge", "99th percentile of the last second."),
    "disklab_disk": ("gauge", "What a disk, limit or process did in the last second."),
}


def metrics(states: Iterable[dict[str, Any]]) -> str:
    """Return the text for these states of runs."""
    lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for state in states:
        for family, line in of_run(state):
            lines[family].append(line)
    shown = []
    for name, (kind, helps) in FAMILIES.items():
        if lines[name]:
            shown += [f"# TYPE {name} {kind}", f"# HELP {name} {helps}", *lines[name]]
    return "\n".join([*shown, "# EOF"]) + "\n"


def of_run(state: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield family and line of each figure of a run."""
    run = {"run": state["id"]}
    told = {**run, **{key: state[key] for key in ("title", "mode", "status")}}
    yield "disklab_run", f"disklab_run_info{labels(told)} 1"
    for status, count in {**state["counts"], "planned": state["planned"]}.items():
        given = labels({**run, "status": status})
        yield "disklab_run_trials", f"disklab_run_trials{given} {count}"
    if state["left_s"] is not None:
        left = f"disklab_run_left_seconds{labels(run)} {state['left_s']:.0f}"
        yield "disklab_run_left_seconds", left
    if state["status"] != "running":
        return
    load = state["now"].get("load") or {}
    if load.get("ops_per_s") is not None:
        name = "disklab_run_operations_per_second"
        yield name, f"{name}{labels(run)} {load['ops_per_s']:g}"
    if load.get("p99_ms") is not None:
        name = "disklab_run_p99_seconds"
        yield name, f"{name}{labels(run)} {load['p99_ms'] / 1000:g}"
    for key, value in state["seen"].items():
        source, _, metric = key.partition(": ")
        given = labels({**run, "source": source, "metric": metric})
        yield "disklab_disk", f"disklab_disk{given} {value:g}"


def labels(given: dict[str, Any]) -> str:
    """Return labels as OpenMetrics writes them."""
    shown = ",".join(f'{name}="{escaped(str(value))}"' for name, value in given.items())
    return f"{{{shown}}}"


def escaped(value: str) -> str:
    """Return a label's value with backslash, quote and line feed escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


LOOK_S = 1.0
"""How often a run's folder is looked at while somebody watches."""
# A comment now and then lets both ends notice that the other one has gone.
QUIET_LOOKS = 15
MOST_FOLLOWED = 32
MOST_LISTED = 500
ASSETS = {"live.js": "text/javascript", "live.css": "text/css"}
MOST_WISH_BYTES = 100
WISH_S = 10.0
"""For the few letters of a wish."""
REPORT = Kind("a report", 1 << 30, "make it again by `disklab report`")
# A report may come from anywhere. It runs in an origin of its own, and whatever policy it has
# itself, it reaches nothing: no port of this machine, and no other one.
SANDBOX = f"sandbox allow-scripts allow-downloads; {POLICY}; base-uri 'none'; form-action 'none'"


class Runs:
    """The runs of a folder, each followed from where it was last read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._followed: OrderedDict[Path, Followed] = OrderedDict()

    def listed(self) -> list[Followed]:
        """Return the runs, newest first, as they are now."""
        return [self._looked(folder) for folder in runs_in(self.folder)[:MOST_LISTED]]

    def named(self, name: str) -> Followed:
        """Return a run by its folder's name. A page that is not there: HTTPException 404."""
        # Only what the folder lists: a name is never made into a path.
        for folder in runs_in(self.folder):
            if folder.name == name:
                return self._looked(folder)
        raise HTTPException(404, f"no run {name[:100]!r} here")

    def _looked(self, folder: Path) -> Followed:
        followed = self._followed.pop(folder, None) or Followed(folder)
        self._followed[folder] = followed
        while len(self._followed) > max(MOST_FOLLOWED, MOST_LISTED):
            self._followed.popitem(last=False)
        followed.look()
        return followed


def application(folder: Path, token: str, address: Address) -> Starlette:
    """Return the pages of a folder of runs, or of one run."""
    pages = Pages(Runs(folder.resolve()), token)
    return Starlette(
        routes=[
            Route("/", pages.page),
            Route("/runs/{run}", pages.page),
            Route("/runs/{run}/report", pages.report),
            Route("/api/runs", pages.index),
            Route("/api/runs/{run}", pages.state),
            Route("/api/runs/{run}/events", pages.events),
            Route("/api/runs/{run}/after-trial", pages.after_trial, methods=["POST"]),
            Route(KNOB, pages.knob),
            Route("/api/knob", pages.knob_address),
            Route("/metrics", pages.scrape),
            Route("/assets/{name}", pages.asset),
        ],
        middleware=[Middleware(Guard, token=token, address=address)],
    )


class Pages:
    """What is answered at each address."""

    def __init__(self, runs: Runs, token: str) -> None:
        self._runs = runs
        self._token = token
        # Made when it is first asked for.
        self._knob: Page | None = None
        # Followers are read by one request at a time.
        self._turn = asyncio.Lock()

    async def page(self, _request: Request) -> Response:
        """Answer the page itself; which run it shows, it reads from its address."""
        return HTMLResponse(asset("live.html"))

    async def asset(self, request: Request) -> Response:
        """Answer the page's script or style."""
        name = request.path_params["name"]
        if name not in ASSETS:
            raise HTTPException(404)
        before = axes_script() if name == "live.js" else ""
        return Response(before + asset(name), media_type=ASSETS[name])

    async def index(self, _request: Request) -> Response:
        """Answer every run in a few figures."""
        async with self._turn:
            runs = await run_in_threadpool(self._runs.listed)
            return JSONResponse([run.summary() for run in runs])

    async def state(self, request: Request) -> Response:
        """Answer one run, whole."""
        return JSONResponse(json.loads(await self._text(request.path_params["run"])))

    async def events(self, request: Request) -> Response:
        """Send one run's state, each time that it changed."""
        name = request.path_params["run"]
        first = await self._text(name)
        return StreamingResponse(self._follow(name, first), media_type="text/event-stream")

    async def after_trial(self, request: Request) -> Response:
        """Pause, stop or go on after the trial under way."""
        async with self._turn:
            run = await run_in_threadpool(self._runs.named, request.path_params["run"])
        wanted = (await wish_in(request)).decode("utf-8", "replace").strip()
        try:
            wish(run.folder, Wish(wanted))
        except ValueError:
            choices = ", ".join(one.value for one in Wish)
            raise HTTPException(400, f"{wanted!r}: choose one of {choices}") from None
        except OSError as error:
            raise HTTPException(403, f"the run's folder: {error.strerror}") from None
        return Response(status_code=204)

    async def report(self, request: Request) -> Response:
        """Answer the run's own report."""
        async with self._turn:
            run = await run_in_threadpool(self._runs.named, request.path_params["run"])
        try:
            file = reading.opened(Inside(run.folder, "report.html"), REPORT)
        except UserError:
            raise HTTPException(404, "this run has no report yet") from None
        headers = {"content-security-policy": SANDBOX}
        return StreamingResponse(parts_of(file), media_type="text/html", headers=headers)

    async def knob_address(self, _request: Request) -> Response:
        """Answer where the simulator's page is; null: it was not built here."""
        return JSONResponse({"address": knob_address(self._token) if has_module() else None})

    async def knob(self, _request: Request) -> Response:
        """Answer the simulator's page, under its own policy."""
        if not has_module():
            raise HTTPException(404, "the simulator for browsers was not built here")
        async with self._turn:
            if self._knob is None:
                self._knob = await run_in_threadpool(made_page)
            page = self._knob
        headers = {"content-security-policy": f"{page.policy}; frame-ancestors 'none'"}
        return HTMLResponse(page.text, headers=headers)

    async def scrape(self, _request: Request) -> Response:
        """Answer all runs for Prometheus."""
        async with self._turn:
            runs = await run_in_threadpool(self._runs.listed)
            shown = metrics(run.state() for run in runs)
        return PlainTextResponse(shown, headers={"content-type": CONTENT_TYPE})

    async def _text(self, name: str) -> str:
        async with self._turn:
            run = await run_in_threadpool(self._runs.named, name)
            state = run.state()
            if state["report"]:
                state["report"] = report_address(self._token, run.folder.name)
            return json.dumps(state, allow_nan=False)

    async def _follow(self, name: str, text: str) -> AsyncIterator[str]:
        quiet = 0
        yield f"retry: 1000\ndata: {text}\n\n"
        while True:
            await asyncio.sleep(LOOK_S)
            before, text = text, await self._text(name)
            quiet = 0 if text != before else quiet + 1
            if text != before:
                yield f"data: {text}\n\n"
            elif quiet % QUIET_LOOKS == 0:
                yield ": still here\n\n"


async def wish_in(request: Request) -> bytes:
    """Return the few letters of a request, whose sender may say more, or say it slowly."""
    wanted = b""

    async def read() -> None:
        nonlocal wanted
        async for part in request.stream():
            wanted += part
            if len(wanted) > MOST_WISH_BYTES:
                raise HTTPException(413, f"a wish has at most {MOST_WISH_BYTES} bytes")

    try:
        await asyncio.wait_for(read(), WISH_S)
    except asyncio.TimeoutError:
        raise HTTPException(408, "the wish did not come") from None
    return wanted


def parts_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in parts; it is closed at its end."""
    with file:
        while part := file.read(1 << 16):
            yield part


def asset(name: str) -> str:
    """Return a file of the page."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
