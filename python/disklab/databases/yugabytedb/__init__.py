"""YugabyteDB: a running cluster by its address, or `yugabyted` nodes on volumes."""

from disklab.databases.yugabytedb.provider import provision
from disklab.databases.yugabytedb.ysql import PORTS

__all__ = ["PORTS", "provision"]
