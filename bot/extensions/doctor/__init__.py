"""`threadfast doctor` checks all that a bot needs and says what it found, what that means, and what to do.

The checks run side by side and do not know each other. Only `bot.extensions.doctor.fixes` changes anything, on
demand.
"""
