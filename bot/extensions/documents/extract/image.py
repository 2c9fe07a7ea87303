"""A picture as models take it: upright, small, one frame, and only pixels."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from typing import cast

from PIL import Image, ImageOps, UnidentifiedImageError

from threads.store.image_header import LONG_SIDE

from .result import Extraction, Unreadable

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")
"""Pillow knows dozens more, and each is a parser that a hostile file could attack."""

MAX_PIXELS = 50_000_000
"""Pixels of the largest picture that is decoded: 150 to 200 MB."""

SMALL_PNG = 1_500_000
"""Bytes of the largest PNG; above, it becomes a JPEG, which fits any provider's limit."""


def picture(data: bytes) -> Extraction:
    """Return a picture as PNG or JPEG; raises `Unreadable`, or any error of Pillow for a broken one."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            frames = getattr(opened, "n_frames", 1)
            shown = _encode(_shrink(opened), photograph=opened.format == "JPEG")
            return replace(shown, left_out=("frames",)) if frames > 1 else shown
    except UnidentifiedImageError:
        raise Unreadable("unseen") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable("pixels") from None


def _shrink(opened: Image.Image) -> Image.Image:
    opened.draft("RGB", (LONG_SIDE, LONG_SIDE))  # a JPEG is decoded at a fraction of its size
    image = opened
    if image.mode == "F":  # measurements, in any range
        low, high = cast("tuple[float, float]", image.getextrema())
        scale = 255 / ((high - low) or 1)
        image = image.point(lambda value: value * scale - low * scale).convert("L")
    elif image.mode.startswith("I"):
        image = image.point(lambda value: value * (1 / 256)).convert("L")  # 16 bits a pixel
    elif image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    image.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    upright = ImageOps.exif_transpose(image)
    return Image.frombytes(upright.mode, upright.size, upright.tobytes())  # pixels, and nothing else


def _encode(image: Image.Image, *, photograph: bool) -> Extraction:
    """Return a PNG of drawings, screens and transparent pictures, a JPEG of photographs and large pictures."""
    if not photograph and len(body := _save(image, "PNG", optimize=False)) <= SMALL_PNG:
        return Extraction(body, media_type="image/png")
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return Extraction(_save(image, "JPEG", quality=85), media_type="image/jpeg")


def _save(image: Image.Image, form: str, **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()
