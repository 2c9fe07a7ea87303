"""Makes the package's description from README.md. On an index a link to a file leads nowhere, so it becomes text."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")


class Readme(MetadataHookInterface):
    """The hook that pyproject.toml names."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the description to *metadata*."""
        text = Path(self.root, "README.md").read_text("utf-8")
        plain = LINK.sub(r"\1", PICTURE.sub("", text))
        metadata["readme"] = {"content-type": "text/markdown", "text": plain}
