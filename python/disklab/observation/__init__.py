"""Looking at a database that runs, to ask afterwards what it should stand on."""
