"""What a report's page may do: the browser holds it to this, whoever made the page."""

# Nothing is loaded from anywhere; vega compiles its expressions, hence 'unsafe-eval'.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:"
)
