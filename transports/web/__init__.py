"""A page in the browser: a place to talk, beside the chat platforms. Loopback only, and off, until the settings say so."""
