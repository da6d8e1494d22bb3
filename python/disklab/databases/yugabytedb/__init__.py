"""YugabyteDB: a running cluster by its address, or `yugabyted` nodes on volumes."""

from disklab.databases.record import Record
from disklab.databases.yugabytedb.provider import checks, provision
from disklab.databases.yugabytedb.ysql import PORTS

RECORD = Record(provision, PORTS, checks)

__all__ = ["RECORD"]
