"""The pages on which admins look at what the bot does and did, whichever platform it was on. They change nothing."""
