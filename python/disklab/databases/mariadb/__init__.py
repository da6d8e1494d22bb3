"""MariaDB: the machine's own installation, one server on the volumes of an experiment."""

from disklab.databases.mariadb.configuration import PORTS
from disklab.databases.mariadb.installation import checks, needed_on
from disklab.databases.mariadb.server import provision
from disklab.databases.record import Record

RECORD = Record(provision, PORTS, checks, needed_on=needed_on)

__all__ = ["RECORD"]
