"""The simulator on a page: what it offers, and the page, one file without a server."""

from disklab.knob.page import Page, has_module, made_page

__all__ = ["Page", "has_module", "made_page"]
