"""`threadfast doctor`: looks over all that a bot stands on, and says what is found, what it means, and what to do.

Subjects look side by side and know nothing of each other. Only `bot.admin.doctor.fixes` changes anything, on demand.
"""
