"""HTML pages that load nothing: styles and pictures are inside."""

import base64
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from orbithash.experiments.report.figure import follow_page


@dataclass(frozen=True)
class Picture:
    """A figure inside a page, which follows the page's light or dark colours."""

    source: str  # data URI
    description: str


def render_page(template: str, **values: Any) -> str:
    """Return the text of a page."""
    templates = Environment(
        loader=PackageLoader("orbithash.experiments.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = templates.get_template(template).render(**values)
    # Names of files may be any bytes, and those that are not UTF-8 cannot be written as text.
    return page.encode(errors="backslashreplace").decode()


def svg_picture(svg: str, description: str) -> Picture:
    return Picture(data_uri(follow_page(svg).encode(), "image/svg+xml"), description)


def data_uri(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
