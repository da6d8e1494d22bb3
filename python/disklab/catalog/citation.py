"""Where a number comes from, on one line."""

from __future__ import annotations

from disklab.catalog.facts import Provenance
from disklab.catalog.load import Catalog


def cite(catalog: Catalog, provenance: dict[str, Provenance], field: str = "default") -> str:
    """Return `key, date: place` of the first source of a field, as error messages quote it."""
    key = (provenance.get(field) or provenance["default"]).source[0]
    date = date_of(catalog, provenance, field)
    return f"source {key}{f', {date}' if date else ''}: {catalog.sources[key].at}"


def date_of(catalog: Catalog, provenance: dict[str, Provenance], field: str = "default") -> str:
    """Return the date of a field's numbers; empty: its source shows none."""
    found = provenance.get(field) or provenance["default"]
    return found.date or catalog.sources[found.source[0]].date or ""
