"""Redis: the machine's own installation, one server with its append-only file on a volume."""

from disklab.databases.record import Record
from disklab.databases.redis.cluster import provision
from disklab.databases.redis.configuration import PORTS, checks, needed_on

RECORD = Record(provision, PORTS, checks, needed_on=needed_on)

__all__ = ["RECORD"]
