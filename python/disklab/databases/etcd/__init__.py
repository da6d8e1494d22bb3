"""etcd: the machine's own installation, one member or several on the volumes of an experiment."""

from disklab.databases.etcd.cluster import provision
from disklab.databases.etcd.configuration import PORTS, checks, needed_on
from disklab.databases.etcd.gateway import rules
from disklab.databases.record import Record

RECORD = Record(provision, PORTS, checks, rules, needed_on)

__all__ = ["RECORD"]
