"""sysbench's OLTP tables and transactions, made by the installed program."""

from disklab.workloads.sysbench.driver import Sysbench

__all__ = ["Sysbench"]
