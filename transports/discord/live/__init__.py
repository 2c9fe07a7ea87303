"""Signs of life while a turn runs: reactions, typing, drafts. None of it is urgent."""
