"""Apache Cassandra: fetched or the user's own, started on the volumes of an experiment."""

from disklab.databases.cassandra.configuration import PORTS
from disklab.databases.cassandra.observer import CassandraObserver
from disklab.databases.cassandra.provider import checks, needed_on, provision
from disklab.databases.record import Record

RECORD = Record(provision, PORTS, checks, needed_on=needed_on, observe=CassandraObserver.connect)

__all__ = ["RECORD"]
