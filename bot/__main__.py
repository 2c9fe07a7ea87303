"""``python -m bot`` is ``threadfast``."""

from bot.admin.cli import main

main()
