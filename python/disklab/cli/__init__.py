"""The command line."""

# Built in, as `os` is loaded: `signal` itself takes milliseconds in which nothing would be heard.
import _signal  # type: ignore[import-not-found]
import os

_heard = None
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    try:
        # The imports take most of the first second, and Ctrl-C would end them in a traceback.
        _heard = _signal.signal(_signal.SIGINT, lambda *_: os._exit(130))
    except ValueError:
        # Another thread imports this, and hears no signals.
        _heard = None

from disklab.cli.app import app, main  # noqa: E402

if _heard is not None:
    _signal.signal(_signal.SIGINT, _heard)

__all__ = ["app", "main"]
