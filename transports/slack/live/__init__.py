"""Signs of life while a turn runs: status, reactions, drafts, task cards. None of it is urgent."""
