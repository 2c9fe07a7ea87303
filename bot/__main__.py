"""``python -m bot`` and ``python -m threadfast`` are ``threadfast``."""

from bot.cli import main

if __name__ == "__main__":
    main(prog_name="threadfast")
