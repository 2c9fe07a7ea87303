"""What is read of a page, and how much of it.

The expression runs in a world of its own (`Page.createIsolatedWorld`): the page's scripts cannot change what its
built-ins do, so its limits hold. Only what a person would see is read. Text within open shadow roots and frames of
the same origin comes after the text around them.
"""

from __future__ import annotations

import json

MAX_TEXT = 100_000
"""Characters of text; far more than a model is shown at once, the rest goes into a file it can page."""

MAX_LINKS = 80

_READ = """
(() => {
  const limits = %s, parts = [];
  let room = limits.text, cut = false;
  const take = (text) => {
    text = (text || "").trim();
    if (!text) return;
    cut = cut || text.length > room;
    parts.push(text.slice(0, room));
    room -= Math.min(room, text.length);
  };
  const shown = (element) => element.checkVisibility({visibilityProperty: true, opacityProperty: true});
  const read = (root) => {
    if (root.body) take(shown(root.body) ? root.body.innerText : "");
    else for (const child of root.children) if (shown(child)) take(child.innerText);
    for (const element of root.querySelectorAll("*")) {
      if (room <= 0) return;
      if (!element.shadowRoot && element.localName !== "iframe") continue;
      if (!shown(element)) continue;
      if (element.shadowRoot) read(element.shadowRoot);
      else if (element.contentDocument) read(element.contentDocument);
    }
  };
  read(document);
  const links = new Map();
  for (const link of document.links) {
    if (links.size >= limits.links) break;
    const name = (link.innerText || "").trim().replace(/\\s+/g, " ").slice(0, 100);
    const address = String(link.href).split("#")[0].slice(0, 500);
    if (name && /^https?:/.test(address) && !links.has(address) && shown(link)) links.set(address, name);
  }
  return {
    url: location.href.slice(0, 4000), title: document.title.slice(0, 300), text: parts.join("\\n\\n"), cut,
    links: [...links].map(([address, name]) => name + " <" + address + ">").join("\\n"),
    height: document.documentElement.scrollHeight,
  };
})()
"""

READ = _READ % json.dumps({"text": MAX_TEXT, "links": MAX_LINKS})
"""Returns the fields of a `PageView` that are read in the page."""
