"""Calls of Azure's resource manager: each with a bound on tries and time, none of them blind.

All are idempotent (GET, PUT, DELETE), so what got no answer is asked again. Tokens go to the
endpoint and to no other server, and over TLS only.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from disklab import reading
from disklab.cloud.protocol import Clock, CloudError, SystemClock
from disklab.errors import Problem, UserError
from disklab.reading import digits
from disklab.waiting import Wait

ENDPOINT = "https://management.azure.com"
EXTRA = "install it: pip install 'disklab[azure]'"
TRIES = 6
"""Azure's own libraries try four times; throttled writes are let in again within a minute."""
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 120.0
"""Retry-After of throttled calls has been up to a minute; a longer one is cut."""
POLL_S = 10.0
"""Where the answer has no Retry-After; Azure's libraries wait 30 s."""
ANSWER_S = 60
PATIENCE_S = TRIES * (ANSWER_S + LONGEST_WAIT_S)
"""No call with all its tries takes longer."""
MOST_PAGES = 200
AGAIN = {408, 429, 500, 502, 503, 504}
MOST_BYTES = 64 << 20
"""The list of a region's VM sizes is the longest answer, about 10 MB."""


@dataclass(frozen=True)
class Answer:
    """What the resource manager said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: dict[str, Any]


Send = Callable[[str, str, Any], Answer]
"""Sends method, address and body once. Raises NoAnswerError."""


class NoAnswerError(CloudError):
    """The connection failed, so that nobody knows whether the call was heard."""


class ArmError(CloudError):
    """The resource manager refused."""

    def __init__(self, what: str, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{what}: {code}: {message}" + _advice(code))
        self.code = code
        self.status = status


_ADVICE = {
    "QuotaExceeded": "ask for more in the portal (Quotas), or choose another --region",
    "OperationNotAllowed": "it is often a quota: see Quotas in the portal, or another --region",
    "SkuNotAvailable": "choose another --region or VM size",
    "ZonalAllocationFailed": "the zone is full: choose another --region, or try later",
    "AllocationFailed": "the region is full: choose another --region, or try later",
    "OverconstrainedAllocationRequest": "choose another --region or VM size",
    "OverconstrainedZonalAllocationRequest": "choose another --region or VM size",
    "AuthorizationFailed": "docs/azure.md lists the permissions that are needed",
    "InvalidAuthenticationTokenTenant": "log in to the subscription's tenant: az login --tenant",
}


def _advice(code: str) -> str:
    return f"; {_ADVICE[code]}" if code in _ADVICE else ""


@dataclass
class Arm:
    """The resource manager of one subscription."""

    subscription: str
    send: Send
    endpoint: str = ENDPOINT
    clock: Clock = field(default_factory=SystemClock)
    asked: int = 0
    """Calls so far."""

    def get(self, path: str, version: str, **query: str) -> dict[str, Any] | None:
        """Return what is at a path below the subscription; None: nothing is."""
        answer = self._call("GET", self._address(path, version, query), None)
        return None if answer.status == 404 else answer.body

    def pages(self, path: str, version: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list, page after page."""
        address = self._address(path, version, query)
        for _ in range(MOST_PAGES):
            body = self._call("GET", address, None).body
            yield from body.get("value", [])
            if not body.get("nextLink"):
                return
            address = self._own(str(body["nextLink"]))
        raise CloudError(f"{path}: the list has more than {MOST_PAGES} pages")

    def put(self, path: str, version: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Make or change what is at a path, and wait until that is done."""
        answer = self._call("PUT", self._address(path, version, {}), body)
        self._settle(f"PUT {path}", answer, seconds)
        return answer.body

    def delete(self, path: str, version: str, seconds: float) -> None:
        """Remove what is at a path, and wait until it is gone; nothing when it is not there."""
        answer = self._call("DELETE", self._address(path, version, {}), None)
        if answer.status != 404:
            self._settle(f"DELETE {path}", answer, seconds)

    def _address(self, path: str, version: str, query: Mapping[str, str]) -> str:
        told = {"api-version": version, **query}
        words = "&".join(f"{name}={_quoted(value)}" for name, value in told.items())
        return f"{self.endpoint}/subscriptions/{self.subscription}{path}?{words}"

    def _own(self, address: str) -> str:
        """Return an address of an answer. Raises CloudError when it leads to another server."""
        if urlsplit(address)[:2] != urlsplit(self.endpoint)[:2]:
            raise CloudError(
                f"{address}: the answer points away from {self.endpoint} and is not followed"
            )
        return address

    def _call(self, method: str, address: str, body: Any) -> Answer:
        """Send a call until it is answered; raises what is no success, but for 404."""
        what = f"{method} {urlsplit(address).path}"
        with Wait(f"Azure answers {what}", PATIENCE_S, clock=self.clock) as wait:
            answer = self._answer(wait, what, (method, address, body))
        if answer.status >= 400 and not (answer.status == 404 and method in {"GET", "DELETE"}):
            raise _refusal(what, answer)
        return answer

    def _answer(self, wait: Wait, what: str, call: tuple[str, str, Any]) -> Answer:
        pause_s = FIRST_WAIT_S
        for tries in range(1, TRIES + 1):
            self.asked += 1
            try:
                answer = self.send(*call)
            except NoAnswerError as error:
                if tries == TRIES:
                    raise NoAnswerError(f"{what}: no answer at {TRIES} tries: {error}") from None
                answer = None
            if answer is not None and (answer.status not in AGAIN or tries == TRIES):
                return answer
            after_s = None if answer is None else _retry_after(answer)
            why = "no answer" if answer is None else f"HTTP {answer.status}"
            seconds = min(LONGEST_WAIT_S, pause_s if after_s is None else after_s)
            wait.pause(seconds, f"{why} at try {tries} of {TRIES}")
            pause_s *= 2
        raise AssertionError("the last try is answered or has raised")

    def _settle(self, what: str, answer: Answer, seconds: float) -> None:
        """Wait until an operation that goes on has ended. Raises ArmError when it failed."""
        headers = answer.headers
        address = headers.get("azure-asyncoperation") or headers.get("location")
        if address is None or (answer.status == 200 and "azure-asyncoperation" not in headers):
            return
        with Wait(f"Azure is done with {what}", seconds, clock=self.clock) as wait:
            while not wait.is_over:
                after_s = _retry_after(answer)
                wait.pause(min(LONGEST_WAIT_S, POLL_S if after_s is None else after_s))
                answer = self._call("GET", self._own(address), None)
                state = wait.what = str(answer.body.get("status", "")).lower()
                if state in {"failed", "canceled"}:
                    raise _refusal(what, answer)
                # A Location answers 202 while it goes on; a group's is not found when it is gone.
                if state == "succeeded" or (not state and answer.status != 202):
                    return
        raise CloudError(
            f"{what}: it has not ended after {seconds / 60:.0f} min; Azure continues with it"
        )


def _quoted(text: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415

    return quote(text, safe="")


def _retry_after(answer: Answer) -> float | None:
    return digits(answer.headers.get("retry-after", ""))


def _refusal(what: str, answer: Answer) -> ArmError:
    """Return an answer's error: the innermost of its details, which says what is wrong."""
    error = answer.body.get("error") or {}
    while isinstance(error.get("details"), list) and error["details"]:
        inner = error["details"][0]
        if not isinstance(inner, dict) or not inner.get("code"):
            break
        error = inner
    code = str(error.get("code") or f"HTTP {answer.status}")
    message = " ".join(str(error.get("message") or "no reason was given").split())[:600]
    return ArmError(what, code, message, answer.status)


def connected(endpoint: str = ENDPOINT) -> Send:
    """Return what sends calls with the token of whoever is logged in (`az login` and others).

    Raises UserError where the extra is not installed.
    """
    try:
        from azure.core.pipeline import Pipeline  # noqa: PLC0415
        from azure.core.pipeline.policies import (  # noqa: PLC0415
            BearerTokenCredentialPolicy,
            UserAgentPolicy,
        )
        from azure.core.pipeline.transport import RequestsTransport  # noqa: PLC0415
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415
    except ImportError as error:
        rule = f"the module {error.name} is not installed"
        raise UserError(Problem("--cloud", "azure", rule, EXTRA)) from None
    # Which ways of logging in it tried in vain; the last line of it is told by us.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    scope = f"{endpoint}/.default"
    policies = [
        UserAgentPolicy(base_user_agent="disklab"),
        BearerTokenCredentialPolicy(DefaultAzureCredential(), scope),
    ]
    transport = RequestsTransport(connection_timeout=10, read_timeout=ANSWER_S)
    return sending(Pipeline(transport, policies))


def sending(pipeline: Any) -> Send:
    """Return what sends a call through a pipeline of azure-core, once."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError  # noqa: PLC0415
    from azure.core.rest import HttpRequest  # noqa: PLC0415

    def send(method: str, address: str, body: Any) -> Answer:
        request = HttpRequest(method, address, json=body)
        try:
            response = pipeline.run(request).http_response
            content = response.body() if hasattr(response, "body") else response.content
        except ClientAuthenticationError as error:
            told = [line.strip() for line in str(error.message).splitlines()]
            said = next((line for line in told if line.startswith("AzureCliCredential")), told[0])
            raise CloudError(f"Azure: you are not logged in: {said}; run `az login`") from None
        except AzureError as error:
            raise NoAnswerError(str(error).splitlines()[0]) from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, headers, _json(content))

    return send


def _json(content: bytes) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise CloudError(f"Azure: an answer of {len(content)} bytes is none that is expected")
    try:
        body = json.loads(content) if content.strip() else {}
    except ValueError:
        # A proxy's page; its status says enough.
        return {}
    return body if isinstance(body, dict) else {}


def subscription_of(given: str | None) -> str:
    """Return the subscription: given, of the environment, or that of `az account show`.

    Raises UserError for none, or one that is no identifier.
    """
    found = given or os.environ.get("AZURE_SUBSCRIPTION_ID") or _default_subscription()
    if found is None:
        rule = "no subscription is given, and the Azure CLI knows of none"
        raise UserError(Problem("--subscription", "(nothing)", rule, "give it, or `az login`"))
    plain = found.replace("-", "")
    if len(plain) != 32 or not plain.isalnum() or not plain.isascii():
        rule = "an identifier of a subscription has 32 digits and letters a to f"
        raise UserError(Problem("--subscription", found, rule, "see `az account list`"))
    return found


def _default_subscription() -> str | None:
    folder = Path(os.environ.get("AZURE_CONFIG_DIR") or Path.home() / ".azure")
    path = folder / "azureProfile.json"
    kind = reading.Kind("the Azure CLI's profile", 4 << 20, "give --subscription")
    try:
        # The Azure CLI writes it with a mark of byte order.
        text = reading.contents(path, kind).decode("utf-8-sig")
        profile = json.loads(text)
    except (UserError, ValueError):
        return None
    for one in profile.get("subscriptions", []) if isinstance(profile, dict) else []:
        if isinstance(one, dict) and one.get("isDefault"):
            return str(one.get("id"))
    return None
