"""A page in the browser: a place to talk, beside the chat platforms. It is off until the settings name it."""
