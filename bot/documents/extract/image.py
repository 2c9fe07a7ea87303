"""A picture as models take it: upright, small enough, its first frame only, and nothing beside its pixels."""

from __future__ import annotations

import io
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

from threads.store.image_header import LONG_SIDE

from .result import Extraction, Unreadable

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
"""What is read. Pillow knows dozens more, and each is a parser that somebody could aim at."""

MAX_PIXELS = 50_000_000
"""Pixels of a picture that is decoded: 150 to 200 MB."""

SMALL_PNG = 1_500_000
"""Bytes up to which a PNG stays one. A JPEG of this many pixels is smaller than any provider's limit."""


def picture(data: bytes) -> Extraction:
    """Return a picture as PNG or JPEG; raises `Unreadable`, or whatever Pillow raises on a broken one."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            return _encoded(_small(opened), photograph=opened.format == "JPEG")
    except UnidentifiedImageError:
        raise Unreadable("unseen") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable("pixels") from None


def _small(opened: Image.Image) -> Image.Image:
    opened.draft("RGB", (LONG_SIDE, LONG_SIDE))  # a JPEG is decoded at a fraction of its size
    shown = opened
    if shown.mode.startswith("I"):
        shown = shown.point(lambda value: value * (1 / 256)).convert("L")  # 16 bits a pixel
    elif shown.mode not in ("L", "RGB", "RGBA"):
        shown = shown.convert("RGBA" if shown.has_transparency_data else "RGB")
    shown.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    upright = ImageOps.exif_transpose(shown)
    return Image.frombytes(upright.mode, upright.size, upright.tobytes())  # pixels, and nothing else


def _encoded(shown: Image.Image, *, photograph: bool) -> Extraction:
    """Return a PNG of drawings, screens and what one can see through, a JPEG of photographs and what is too large."""
    if not photograph and len(body := _saved(shown, "PNG", optimize=False)) <= SMALL_PNG:
        return Extraction(body, media_type="image/png")
    if shown.mode == "RGBA":
        shown = Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB")
    return Extraction(_saved(shown, "JPEG", quality=85), media_type="image/jpeg")


def _saved(shown: Image.Image, form: str, **how: int) -> bytes:
    file = io.BytesIO()
    shown.save(file, form, **how)
    return file.getvalue()
