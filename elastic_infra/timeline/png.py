"""A picture as PNG, through resvg (https://github.com/linebender/resvg): a wheel without system libraries.

The format is optional, because it alone needs a renderer. The picture has the light scheme and the system's fonts.
"""

from __future__ import annotations

from typing import Final

EXTRA: Final = "png"
SCALE: Final = 2.0
"""Twice the picture's size, for screens of high density and for print."""
FONT: Final = "DejaVu Sans"
"""A font that most Linux systems have; without it another font of the system is used."""

_PROBE: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}</svg>'


class RendererError(RuntimeError):
    """The picture cannot be rendered here; the message says what to install."""


def png(svg: str) -> bytes:
    """Render a picture.

    Raises:
        RendererError: the extra is not installed, or there is no font.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        message = f"PNG needs a renderer. Install elastic-infra[{EXTRA}], or write .svg or .html."
        raise RendererError(message) from error

    def render(text: str, zoom: float = 1.0) -> bytes:
        return bytes(svg_to_bytes(svg_string=text, zoom=zoom, font_family=FONT, sans_serif_family=FONT))

    if render(_PROBE.format("")) == render(_PROBE.format('<text y="9">M</text>')):
        message = "PNG needs a font, and this system has none. Install one (Debian: fonts-dejavu-core)."
        raise RendererError(message)
    return render(svg, SCALE)
