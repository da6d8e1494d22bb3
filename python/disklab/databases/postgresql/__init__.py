"""PostgreSQL: the machine's own installation, one server on the volumes of an experiment."""

from disklab.databases.postgresql.configuration import PORTS
from disklab.databases.postgresql.provider import provision

__all__ = ["PORTS", "provision"]
