"""YugabyteDB: a running cluster by its address, or `yugabyted` nodes on volumes."""

from disklab.databases.yugabytedb.provider import provision

__all__ = ["provision"]
