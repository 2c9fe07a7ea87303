"""What the program can do beside its core: one folder an extension, listed in `bot.config.extensions`.

No extension knows another, and the core knows none: they meet it in `bot.host.extension`.
"""
