"""MariaDB: the machine's own installation, one server or several on an experiment's volumes."""

from disklab.databases.mariadb.configuration import PORTS
from disklab.databases.mariadb.installation import checks, needed_on
from disklab.databases.mariadb.observer import MariadbObserver
from disklab.databases.mariadb.provider import provision
from disklab.databases.record import Record

RECORD = Record(provision, PORTS, checks, needed_on=needed_on, observe=MariadbObserver.connect)

__all__ = ["RECORD"]
