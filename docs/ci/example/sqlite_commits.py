"""A hundred commits of SQLite, in the folder that it is started in."""

import sqlite3

database = sqlite3.connect("orders.db")
database.execute("pragma journal_mode = wal")
database.execute("pragma synchronous = normal")
database.execute("create table orders(number integer primary key, text)")
for number in range(100):
    database.execute("insert into orders values(?, ?)", (number, "x" * 200))
    database.commit()
database.close()
