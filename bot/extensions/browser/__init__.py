"""Pages that need JavaScript: `tool` is what a model calls, `chromium` the browser, `proxy` its only way out."""
