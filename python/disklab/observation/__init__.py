"""Looking at a database that runs, to ask afterwards what it should stand on."""

from disklab.observation.found import Found, found_of
from disklab.observation.machine import Window, watch

__all__ = ["Found", "Window", "found_of", "watch"]
