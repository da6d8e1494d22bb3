"""The simulator on a page: what it offers, and the page, one file without a server."""

from disklab.knob.page import has_module, page_text

__all__ = ["has_module", "page_text"]
