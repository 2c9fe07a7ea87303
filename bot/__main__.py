"""``python -m bot`` is ``threadfast``."""

from bot.cli import main

main()
