"""Templates of pages, into which no text gets as markup."""

from pathlib import Path

import jinja2

from perennial.records.problems import printable


def environment(folder: Path) -> jinja2.Environment:
    """Templates of HTML in a folder; a name that they lack is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Escaping for HTML leaves control characters in, which no page may hold.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
