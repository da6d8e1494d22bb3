"""etcd: the machine's own or a release that is built, one member or several on volumes."""

from disklab.databases.etcd.cluster import provision
from disklab.databases.etcd.configuration import PORTS
from disklab.databases.etcd.gateway import rules
from disklab.databases.etcd.installation import checks, needed_on
from disklab.databases.record import Record

RECORD = Record(provision, PORTS, checks, rules, needed_on)

__all__ = ["RECORD"]
