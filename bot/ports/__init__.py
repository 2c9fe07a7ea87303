"""The Protocols and shared values through which the parts of the bot meet."""
