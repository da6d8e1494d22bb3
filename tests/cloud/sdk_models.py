"""Bodies held against the models of Azure's own SDKs: unknown keys, types, enumerations, needs.

The SDKs' models take anything; what is strict here is read from their annotations.
"""

from __future__ import annotations

import datetime
import enum
import functools
import importlib
import operator
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

MODELS: dict[str, tuple[str, str]] = {
    "microsoft.compute/virtualmachines": ("compute", "VirtualMachine"),
    "microsoft.compute/disks": ("compute", "Disk"),
    "microsoft.compute/proximityplacementgroups": ("compute", "ProximityPlacementGroup"),
    "microsoft.network/networksecuritygroups": ("network", "NetworkSecurityGroup"),
    "microsoft.network/virtualnetworks": ("network", "VirtualNetwork"),
    "microsoft.network/publicipaddresses": ("network", "PublicIPAddress"),
    "microsoft.network/networkinterfaces": ("network", "NetworkInterface"),
    "microsoft.devtestlab/schedules": ("devtestlabs", "Schedule"),
}
OUTSIDE = {"type", "apiVersion", "name", "dependsOn"}
"""Keys of a template's resource that are not in its body."""


def complaints(kind: str, body: dict[str, Any]) -> list[str]:
    """Return what is wrong with a resource of a template."""
    if kind.lower() not in MODELS:
        return [f"{kind}: no such resource type is known"]
    package, name = MODELS[kind.lower()]
    model = getattr(importlib.import_module(f"azure.mgmt.{package}.models"), name)
    inner = {key: value for key, value in body.items() if key not in OUTSIDE}
    if hasattr(model, "_attribute_map"):
        return list(_of_older(model, _flat(inner), name))
    return list(_of_model(model, inner, name))


@cache
def _fields(model: Any) -> dict[str, tuple[Any, bool]]:
    """Return a model's fields by their names in JSON: type, and whether a request may have it."""
    found: dict[str, tuple[Any, bool]] = {}
    hints: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        if not base.__module__.endswith("._models"):
            continue  # the SDK's own machinery
        module = importlib.import_module(base.__module__)
        space = {**vars(typing), "datetime": datetime, **vars(module)}
        space["_models"] = importlib.import_module(base.__module__.rpartition(".")[0])
        for name, hint in vars(base).get("__annotations__", {}).items():
            if not name.startswith("_"):
                hints[name] = eval(hint, space) if isinstance(hint, str) else hint
                hints[name] = _resolved(hints[name], space)
    instance: Any = model.__new__(model)  # fills the model's map of fields
    for name, field in instance._attr_to_rest_field.items():
        read_only = "read" in (field._visibility or []) and len(field._visibility) == 1
        found[field._rest_name] = (hints.get(name, Any), not read_only)
    return found


def _resolved(hint: Any, space: dict[str, Any]) -> Any:
    if isinstance(hint, typing.ForwardRef):
        return _resolved(eval(hint.__forward_arg__, space), space)
    if isinstance(hint, str):
        return _resolved(eval(hint, space), space)
    arguments = typing.get_args(hint)
    if not arguments:
        return hint
    origin = typing.get_origin(hint)
    made = tuple(_resolved(one, space) for one in arguments)
    if origin in {typing.Union, types.UnionType}:
        return functools.reduce(operator.or_, made)
    return origin[made] if origin in {list, dict} else hint


def _of_model(model: Any, body: object, place: str) -> Iterator[str]:
    if not isinstance(body, dict):
        yield f"{place}: is not an object"
        return
    fields = _fields(model)
    for key, value in body.items():
        if key not in fields:
            yield f"{place}.{key}: {model.__name__} has no such property"
            continue
        hint, writable = fields[key]
        if not writable and key not in {"id", "name", "type"}:
            yield f"{place}.{key}: is read only"
        yield from _of_value(hint, value, f"{place}.{key}")


def _of_value(hint: Any, value: object, place: str) -> Iterator[str]:
    origin = typing.get_origin(hint)
    if origin in {typing.Union, types.UnionType}:
        yield from _of_choice(hint, value, place)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{place}: is no list"
            return
        for at, one in enumerate(value):
            yield from _of_value(typing.get_args(hint)[0], one, f"{place}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{place}: is no mapping"
            return
        for key, one in value.items():
            yield from _of_value(typing.get_args(hint)[1], one, f"{place}.{key}")
    elif isinstance(hint, type) and any(one.__name__ == "Model" for one in hint.__mro__):
        yield from _of_model(hint, value, place)
    elif hint in {str, int, bool, float} and not _is_plain(hint, value):
        yield f"{place}: {value!r} is no {hint.__name__}"


def _is_plain(hint: Any, value: object) -> bool:
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _of_choice(hint: Any, value: object, place: str) -> Iterator[str]:
    each = [one for one in typing.get_args(hint) if one is not type(None)]
    enums = [one for one in each if isinstance(one, type) and issubclass(one, enum.Enum)]
    if enums and enums[0].__name__ != "VirtualMachineSizeTypes":  # its own text: out of date
        allowed = [str(member.value) for member in enums[0]]
        # ARM compares without case.
        if str(value).lower() not in [one.lower() for one in allowed]:
            yield f"{place}: {value!r} is none of {', '.join(allowed)}"
        return
    found = [list(_of_value(one, value, place)) for one in each]
    if found and all(found):
        yield from found[0]


def _flat(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with `properties.x` as the older models name it."""
    inner = {f"properties.{key}": value for key, value in body.get("properties", {}).items()}
    return {**{key: value for key, value in body.items() if key != "properties"}, **inner}


def _of_older(model: Any, body: dict[str, Any], place: str) -> Iterator[str]:
    kinds = {entry["key"]: entry["type"] for entry in model._attribute_map.values()}
    for key, value in body.items():
        if key not in kinds:
            yield f"{place}.{key}: {model.__name__} has no such property"
            continue
        kind = kinds[key]
        models = importlib.import_module(model.__module__)
        inner = getattr(models, kind, None)
        if inner is not None:
            yield from _of_older(inner, value, f"{place}.{key}")
        elif kind == "str" and not isinstance(value, str):
            yield f"{place}.{key}: {value!r} is no str"
        elif kind == "int" and not isinstance(value, int):
            yield f"{place}.{key}: {value!r} is no int"
