"""MySQL, which is predicted; MariaDB's server is rehearsed in its place."""

from disklab.databases.record import Record, predicted_alone

INSTEAD = "MariaDB: `rehearse: {engine: mariadb}`"
RECORD = Record(predicted_alone("MySQL", INSTEAD, " so far"), ports=())

__all__ = ["RECORD"]
