"""A resource manager that answers as Azure's does, over TLS, without anything behind it.

Bodies are held against the SDKs' models; operations go on for a while in a clock of the test;
faults come at chosen calls. What it says of sizes, zones and quota is what a test sets.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import trustme
import uvicorn
from azure.core.credentials import AccessToken
from azure.core.pipeline import Pipeline
from azure.core.pipeline.policies import BearerTokenCredentialPolicy
from azure.core.pipeline.transport import RequestsTransport
from disklab.catalog import load_catalog
from disklab.cloud.azure.arm import sending
from starlette.types import Receive, Scope, Send

from tests.programs import wait_until

from .sdk_models import complaints

SUBSCRIPTION = "00000000-0000-4000-8000-000000000001"
TOKEN = "a-token-of-the-fake"
DEPLOY_S, DELETE_S, RETRY_AFTER_S = 180.0, 300.0, 100


class FakeClock:
    """A clock that waits in no time."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float, /) -> None:
        self.time += timedelta(seconds=seconds)


class RealClock:
    """The machine's clock, for processes that are killed."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


@dataclass
class Group:
    name: str
    location: str
    tags: dict[str, str]
    made: datetime
    resources: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    deployment: str | None = None
    gone: datetime | None = None
    """When its removal is done, once it was asked for."""


@dataclass
class Operation:
    ends: datetime
    group: Group
    error: dict[str, Any] | None = None
    kind: str = "deploy"


@dataclass
class Reply:
    status: int
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, code: str, message: str = "as the test wants it") -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}})


class FakeArm:
    """The state, and what each call does to it."""

    def __init__(self, clock: FakeClock | RealClock) -> None:
        self.clock = clock
        self.endpoint = ""
        self.groups: dict[str, Group] = {}
        self.removed: list[Group] = []
        self.operations: dict[str, Operation] = {}
        self.calls: list[str] = []
        self.invalid: list[str] = []
        self.faults: dict[int, str] = {}
        """By the number of a call, from 0: 429, 500, 409, lost, deaf, QuotaExceeded, ..."""
        self.core_limit = 500
        self.missing_sizes: set[str] = set()
        self.restricted: set[str] = set()
        self.zones = ["1", "2", "3"]
        self.on_made: Callable[[Group], dict[str, str]] = lambda group: {}
        """Makes real hosts of a group's VMs; returns their addresses by name."""
        self.on_removed: Callable[[Group], None] = lambda group: None
        self.lock = threading.Lock()
        self._numbers = itertools.count(1)

    def answer(  # noqa: PLR0911 - one for each fault
        self, method: str, path: str, query: str, token: str, body: Any
    ) -> Reply | None:
        """Return what a call is answered with; None: the connection breaks."""
        with self.lock:
            self._pass_time()
            fault = self.faults.pop(len(self.calls), None)
            self.calls.append(f"{method} {path}")
            if token != f"Bearer {TOKEN}":
                return refusal(401, "InvalidAuthenticationToken")
            if fault == "429":
                return Reply(429, {"error": {"code": "TooManyRequests"}}, {"Retry-After": "7"})
            if fault == "500":
                return refusal(500, "InternalServerError")
            if fault == "deaf":
                return None
            if fault == "409" and method != "GET":
                return refusal(409, "Conflict", "another operation is in progress")
            reply = self._route(method, path, query, body)
            if fault == "lost":
                return None
            if fault is not None and "deployments" in path and method == "PUT":
                self._fail_deployment(fault)
            return reply

    def _fail_deployment(self, code: str) -> None:
        operation = list(self.operations.values())[-1]
        inner = {"code": code, "message": f"the operation failed: {code}"}
        operation.error = {
            "code": "DeploymentFailed",
            "message": "At least one resource deployment operation failed.",
            "details": [inner],
        }

    def _pass_time(self) -> None:
        now = self.clock.now()
        for group in list(self.groups.values()):
            if group.gone is not None and group.gone <= now:
                self.groups.pop(group.name.lower())
                self.removed.append(group)
                self.on_removed(group)

    def _route(  # noqa: PLR0911 - one for each kind of call
        self, method: str, path: str, query: str, body: Any
    ) -> Reply:
        root = f"/subscriptions/{SUBSCRIPTION}"
        if not path.startswith(root):
            return refusal(404, "SubscriptionNotFound")
        rest = path.removeprefix(root)
        if "api-version=" not in query and "/operations/" not in rest:
            return refusal(400, "MissingApiVersionParameter")
        if found := re.fullmatch(r"/operations/(\d+)", rest):
            return self._operation(found[1])
        if rest == "/resourcegroups" and method == "GET":
            return self._list(query)
        if found := re.fullmatch(r"/resourcegroups/([\w.()-]{1,90})(/.*)?", rest):
            if found[2] is None:
                return self._group(method, found[1], body)
            if found[2] == "/providers/Microsoft.Resources/deployments/disklab":
                return self._deployment(method, found[1], body)
        if rest == "/providers/Microsoft.Compute/skus":
            return self._skus()
        if found := re.fullmatch(r"/providers/Microsoft.Compute/locations/(\w+)/usages", rest):
            return self._usages()
        return refusal(404, "InvalidResourceType", f"{method} {path}")

    def _list(self, query: str) -> Reply:
        found = re.search(r"tagName%20eq%20%27([\w-]+)%27.*tagValue%20eq%20%27(\w+)%27", query)
        assert found is not None, query
        value = [
            {"name": one.name, "location": one.location, "tags": one.tags}
            for one in self.groups.values()
            if one.tags.get(found[1]) == found[2]
        ]
        return Reply(200, {"value": value})

    def _group(self, method: str, name: str, body: Any) -> Reply:
        group = self.groups.get(name.lower())
        if method == "PUT":
            if group is not None and group.gone is not None:
                return refusal(409, "ResourceGroupBeingDeleted")
            if set(body) != {"location", "tags"} or not body["tags"]:
                self.invalid.append(f"group {body}")
            if group is None:
                group = Group(name, body["location"], body["tags"], self.clock.now())
                self.groups[name.lower()] = group
                return Reply(201, self._told(group))
            group.tags = body["tags"]
            return Reply(200, self._told(group))
        if group is None:
            return refusal(404, "ResourceGroupNotFound")
        if method == "DELETE":
            if group.gone is None:
                group.gone = self.clock.now() + timedelta(seconds=DELETE_S)
            return Reply(202, None, self._started(Operation(group.gone, group, None, "delete")))
        return Reply(200, self._told(group))

    def _told(self, group: Group) -> dict[str, Any]:
        state = "Succeeded" if group.gone is None else "Deleting"
        return {
            "name": group.name,
            "location": group.location,
            "tags": group.tags,
            "properties": {"provisioningState": state},
        }

    def _started(self, operation: Operation) -> dict[str, str]:
        number = str(next(self._numbers))
        self.operations[number] = operation
        address = f"{self.endpoint}/subscriptions/{SUBSCRIPTION}/operations/{number}?t=1"
        name = "Location" if operation.kind == "delete" else "Azure-AsyncOperation"
        return {name: address, "Retry-After": str(RETRY_AFTER_S)}

    def _operation(self, number: str) -> Reply:
        operation = self.operations[number]
        again = {"Retry-After": str(RETRY_AFTER_S)}
        if self.clock.now() < operation.ends:
            if operation.kind == "delete":
                return Reply(202, None, again)
            return Reply(200, {"status": "Running"}, again)
        if operation.kind == "delete":
            return Reply(200, None)
        group = operation.group
        if operation.error is not None:
            group.deployment = "Failed"
            return Reply(200, {"status": "Failed", "error": operation.error})
        if group.deployment != "Succeeded":
            made = self.on_made(group)
            group.deployment = "Succeeded"
            names = [name for kind, name in group.resources if kind.endswith("publicIPAddresses")]
            for at, name in enumerate(names):
                address = made.get(name, f"20.0.0.{at + 1}")
                group.outputs[f"address-{name}"] = {"type": "String", "value": address}
        return Reply(200, {"status": "Succeeded"})

    def _deployment(self, method: str, name: str, body: Any) -> Reply:
        group = self.groups.get(name.lower())
        if group is None:
            return refusal(404, "ResourceGroupNotFound")
        if method == "GET":
            state = {"provisioningState": group.deployment, "outputs": group.outputs}
            return Reply(200, {"properties": state})
        if group.gone is not None:
            return refusal(409, "ResourceGroupBeingDeleted")
        wrong = self._wrong(body)
        if wrong:
            self.invalid += wrong
            return refusal(400, "InvalidTemplateDeployment", "; ".join(wrong))
        template = body["properties"]["template"]
        group.resources = {(one["type"], one["name"]): one for one in template["resources"]}
        group.deployment = "Running"
        told = {name: one["value"] for name, one in body["properties"]["parameters"].items()}
        for one in group.resources.values():
            one["_parameters"] = told
        ends = self.clock.now() + timedelta(seconds=DEPLOY_S)
        headers = self._started(Operation(ends, group))
        return Reply(201, {"properties": {"provisioningState": "Accepted"}}, headers)

    def _wrong(self, body: dict[str, Any]) -> list[str]:
        properties = body["properties"]
        template = properties["template"]
        wrong = [text for one in template["resources"] for text in complaints(one["type"], one)]
        if set(template["parameters"]) - set(properties["parameters"]) - {"location"}:
            wrong.append("a parameter has no value")
        if properties["mode"] != "Incremental":
            wrong.append(f"mode {properties['mode']}")
        there = {(one["type"], one["name"]) for one in template["resources"]}
        for one in template["resources"]:
            for text in one.get("dependsOn", []):
                found = re.fullmatch(r"\[resourceId\('([^']+)', '([^']+)'\)\]", text)
                if found is None or (found[1], found[2]) not in there:
                    wrong.append(f"{one['name']}: {text}")
        return wrong

    def _skus(self) -> Reply:
        value = []
        for name, vm in load_catalog().vms.items():
            size = name.partition("/")[2]
            if not name.startswith("azure/") or size in self.missing_sizes:
                continue
            restricted = size in self.restricted
            restriction = {
                "type": "Location",
                "values": ["eastus"],
                "reasonCode": "NotAvailableForSubscription",
            }
            value.append({
                "resourceType": "virtualMachines",
                "name": size,
                "family": f"{vm.series_name.partition('/')[2]}Family",
                "locationInfo": [{"location": "eastus", "zones": self.zones}],
                "restrictions": [restriction] if restricted else [],
                "capabilities": [
                    {"name": "vCPUs", "value": str(vm.facts.vcpu)},
                    {"name": "AcceleratedNetworkingEnabled", "value": "True"},
                ],
            })  # fmt: skip
        return Reply(200, {"value": value})

    def _usages(self) -> Reply:
        cores = {"name": {"value": "cores"}, "currentValue": 0, "limit": self.core_limit}
        return Reply(200, {"value": [{**cores, "unit": "Count"}]})


class Served:
    """The fake behind a real TLS server on this machine."""

    def __init__(self, arm: FakeArm, folder: Path, listen: Callable[[], Any] | None = None) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        key = folder / "server.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(key))
        self.arm = arm
        config = uvicorn.Config(
            self._app,
            host="127.0.0.1",
            port=0,
            ssl_certfile=str(key),
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
            log_level="critical",
            lifespan="off",
            interface="asgi3",
        )
        self._server = uvicorn.Server(config)
        sockets = None if listen is None else [listen()]
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        arm.endpoint = f"https://127.0.0.1:{port}"

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                # Its client died within the request, which nobody acts on then.
                return
            content += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = json.loads(content) if content else None
        query = scope["query_string"].decode()
        token = headers.get("authorization", "")
        try:
            reply = self.arm.answer(scope["method"], scope["path"], query, token, body)
        except Exception as error:
            self.arm.invalid.append(f"the fake itself: {error!r}")
            raise
        if reply is None:
            # The server closes the connection on an answer that does not come.
            start = {"type": "http.response.start", "status": 200}
            await send({**start, "headers": [(b"content-length", b"100")]})
            return
        told = b"" if reply.body is None else json.dumps(reply.body).encode()
        sent = [(name.lower().encode(), value.encode()) for name, value in reply.headers.items()]
        sent += [(b"content-length", str(len(told)).encode())]
        await send({"type": "http.response.start", "status": reply.status, "headers": sent})
        await send({"type": "http.response.body", "body": told})

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(20)


@contextlib.contextmanager
def served(
    clock: FakeClock | RealClock, folder: Path, listen: Callable[[], Any] | None = None
) -> Iterator[Served]:
    server = Served(FakeArm(clock), folder, listen)
    try:
        yield server
    finally:
        server.stop()


class FixedToken:
    """A credential that is always logged in."""

    def get_token(self, *scopes: str, **_other: Any) -> Any:
        return AccessToken(TOKEN, int(time.time()) + 3600)


def sender(server: Served) -> Any:
    """Return what sends calls to the fake, through the pipeline that Azure gets."""
    policy = BearerTokenCredentialPolicy(FixedToken(), f"{server.arm.endpoint}/.default")
    transport = RequestsTransport(connection_verify=str(server.ca), read_timeout=20)
    return sending(Pipeline(transport, [policy]))
