"""Machines: one seam for programs, files and clocks, wherever they are."""

from __future__ import annotations

from disklab.machines.protocol import Child, ClockOffset, Command, Files, Finished, Machine

__all__ = ["Child", "ClockOffset", "Command", "Files", "Finished", "Machine"]
