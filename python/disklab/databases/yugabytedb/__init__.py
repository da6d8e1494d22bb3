"""YugabyteDB, which is predicted: no package registry has a server to rehearse."""

from disklab.databases.record import Record, predicted_alone

INSTEAD = "PostgreSQL: `rehearse: {engine: postgresql}`"
WHY = ": no package registry has its server"
RECORD = Record(predicted_alone("YugabyteDB", INSTEAD, WHY), ports=())

__all__ = ["RECORD"]
