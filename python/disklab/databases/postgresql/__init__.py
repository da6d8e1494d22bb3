"""PostgreSQL: the machine's own installation, one server on the volumes of an experiment."""

from disklab.databases.postgresql.cluster import provision
from disklab.databases.postgresql.configuration import PORTS
from disklab.databases.postgresql.installation import checks, needed_on
from disklab.databases.postgresql.observer import PostgresqlObserver
from disklab.databases.record import Record

RECORD = Record(provision, PORTS, checks, needed_on=needed_on, observe=PostgresqlObserver.connect)

__all__ = ["RECORD"]
