"""The command line."""

from disklab.cli.app import app, main

__all__ = ["app", "main"]
