"""PostgreSQL: the machine's own installation, one server on the volumes of an experiment."""

from disklab.databases.postgresql.provider import provision

__all__ = ["provision"]
