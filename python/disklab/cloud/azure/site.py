"""A region of an Azure subscription as a site: a resource group is all that a run makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from disklab.cloud.azure.arm import Arm, ArmError
from disklab.cloud.azure.template import needs_zone, template
from disklab.cloud.layout import Layout
from disklab.cloud.protocol import OWNER, RUN, UNTIL, CloudError, Fit, Found, Wish
from disklab.errors import Problem
from disklab.waiting import Wait

GROUPS, DEPLOYMENTS, SIZES, USAGE = "2021-04-01", "2021-04-01", "2021-07-01", "2024-07-01"
DEPLOYMENT = "/providers/Microsoft.Resources/deployments/disklab"
# VMs come up within 2 to 5 min; Azure itself ends a deployment that waits for VMs after an hour.
MAKE_S = 3600.0
# Groups of a dozen VMs go in 5 to 10 min.
REMOVE_S = 3600.0
REMOVALS = 3
TRY_AGAIN_S = 30.0


@dataclass(frozen=True)
class AzureSite:
    """One region."""

    arm: Arm
    region: str

    @property
    def account(self) -> str:
        """The subscription."""
        return self.arm.subscription

    @property
    def endpoint(self) -> str:
        """The resource manager."""
        return self.arm.endpoint

    def fit(self, layout: Layout) -> Fit:
        """Look at sizes, zones and cores. Two lists are read, and nothing is made."""
        wanted = Counter(host.vm.name.partition("/")[2] for host in layout.hosts)
        query = {"$filter": f"location eq '{self.region}'"}
        sizes = {
            str(one["name"]): one
            for one in self.arm.pages("/providers/Microsoft.Compute/skus", SIZES, **query)
            if one.get("resourceType") == "virtualMachines" and one.get("name") in wanted
        }
        problems = [*_unknown_sizes(wanted, sizes, self.region)]
        zones = _zones([sizes[name] for name in wanted if name in sizes])
        if not problems and (needs_zone(layout) and len(zones) < layout.zones):
            what = f"{layout.zones} zone{'s' if layout.zones > 1 else ''}"
            rule = f"all VM sizes together are available in  {', '.join(zones) or 'none'}"
            problems.append(Problem("--region", f"{self.region}: {what}", rule, "choose another"))
        problems += self._quota_problems(wanted, sizes)
        hosts = tuple(
            replace(host, accelerated=False)
            if _says_no(sizes.get(host.vm.name.partition("/")[2]), "AcceleratedNetworkingEnabled")
            else host
            for host in layout.hosts
        )
        used = tuple(zones[: layout.zones]) if needs_zone(layout) else ()
        return Fit(replace(layout, hosts=hosts), used, tuple(problems))

    def _quota_problems(
        self, wanted: Counter[str], sizes: dict[str, dict[str, Any]]
    ) -> Iterator[Problem]:
        """Yield which quotas of cores would be exceeded."""
        path = f"/providers/Microsoft.Compute/locations/{self.region}/usages"
        left = {
            str(one["name"]["value"]).lower(): int(one["limit"]) - int(one["currentValue"])
            for one in self.arm.pages(path, USAGE)
        }
        cores: Counter[str] = Counter()
        for name, count in wanted.items():
            size = sizes.get(name)
            each = int(_capability(size, "vCPUs") or 0)
            cores["cores"] += each * count
            cores["virtualmachines"] += count
            if size is not None:
                cores[str(size.get("family", "")).lower()] += each * count
        for quota, count in cores.items():
            if count > left.get(quota, count):
                rule = f"{left[quota]} are left of the quota {quota} in {self.region}"
                way_out = (
                    "ask for more in the portal (Quotas), measure less (--only), or another region"
                )
                yield Problem("quota", f"{count} wanted", rule, way_out)

    def make(self, wish: Wish) -> dict[str, str]:
        """Make group and resources; return the hosts' public addresses."""
        path = f"/resourcegroups/{wish.group}"
        there = self.arm.get(path, GROUPS)
        if there is not None and (there.get("tags") or {}).get(RUN) != wish.tags[RUN]:
            raise CloudError(
                f"{wish.group}: there is a group of this name that does not belong to this run"
            )
        body = {"location": self.region, "tags": dict(wish.tags)}
        self.arm.put(path, GROUPS, body, REMOVE_S)
        until = datetime.fromisoformat(wish.tags[UNTIL])
        told = {
            "sshPublicKey": wish.ssh_public_key,
            "allowSshFrom": wish.ssh_from,
            "shutdownTime": until.strftime("%H%M"),
            **{f"userData-{name}": text for name, text in wish.user_data.items()},
        }
        deployment = {
            "properties": {
                "mode": "Incremental",
                "template": template(wish.layout, dict(wish.tags), wish.zones),
                "parameters": {name: {"value": value} for name, value in told.items()},
            }
        }
        self.arm.put(path + DEPLOYMENT, DEPLOYMENTS, deployment, MAKE_S)
        made = self.arm.get(path + DEPLOYMENT, DEPLOYMENTS) or {}
        outputs = made.get("properties", {}).get("outputs", {})
        addresses = {
            name.removeprefix("address-"): str(one.get("value", ""))
            for name, one in outputs.items()
            if name.startswith("address-")
        }
        missing = [host.name for host in wish.layout.hosts if not addresses.get(host.name)]
        if missing:
            raise CloudError(f"{wish.group}: Azure reports no address for {', '.join(missing)}")
        return addresses

    def remove(self, group: str, run: str) -> None:
        """Remove a group, once it is proven by its tag to be this run's."""
        limit_s = REMOVALS * (REMOVE_S + TRY_AGAIN_S)
        with Wait(f"{group} is gone", limit_s, clock=self.arm.clock) as wait:
            self._remove(wait, group, run)

    def _remove(self, wait: Wait, group: str, run: str) -> None:
        path = f"/resourcegroups/{group}"
        for tries in range(1, REMOVALS + 1):
            there = self.arm.get(path, GROUPS)
            if there is None:
                return
            tag = (there.get("tags") or {}).get(RUN)
            if tag != run:
                raise CloudError(
                    f"{group}: its tag {RUN} is {tag!r} and not {run!r}: it is left alone"
                )
            try:
                self.arm.delete(path, GROUPS, REMOVE_S)
            except ArmError as error:
                # 409: something is still being made in it, or somebody removes it already.
                if error.status != 409 or tries == REMOVALS:
                    raise
                wait.pause(TRY_AGAIN_S, "something is still being created in it")
        if self.arm.get(path, GROUPS) is not None:
            raise CloudError(f"{group}: it is still there; `disklab clean --cloud` tries it again")

    def ours(self, owner: str) -> list[Found]:
        """Return the groups of the subscription with an owner's tag, in all regions."""
        query = {"$filter": f"tagName eq '{OWNER}' and tagValue eq '{owner}'"}
        return [
            Found(str(one["name"]), dict(one.get("tags") or {}))
            for one in self.arm.pages("/resourcegroups", GROUPS, **query)
        ]


def _unknown_sizes(
    wanted: Counter[str], sizes: dict[str, dict[str, Any]], region: str
) -> Iterator[Problem]:
    for name in wanted:
        size = sizes.get(name)
        if size is None:
            yield Problem(
                "--region", f"{region}: {name}", "there is no such size", "choose another"
            )
            continue
        for one in size.get("restrictions") or []:
            if one.get("type") == "Location":
                rule = f"this subscription may not use the size there ({one.get('reasonCode')})"
                way_out = "choose another region, or ask Azure's support for it"
                yield Problem("--region", f"{region}: {name}", rule, way_out)
                break


def _zones(sizes: list[dict[str, Any]]) -> list[str]:
    """Return the zones in which all sizes are to be had."""
    each = []
    for size in sizes:
        there = {zone for one in size.get("locationInfo") or [] for zone in one.get("zones") or []}
        for one in size.get("restrictions") or []:
            if one.get("type") == "Zone":
                there -= set((one.get("restrictionInfo") or {}).get("zones") or [])
        each.append(there)
    return sorted(set.intersection(*each)) if each else []


def _capability(size: dict[str, Any] | None, name: str) -> str | None:
    for one in (size or {}).get("capabilities") or []:
        if one.get("name") == name:
            return str(one.get("value"))
    return None


def _says_no(size: dict[str, Any] | None, name: str) -> bool:
    return _capability(size, name) == "False"
