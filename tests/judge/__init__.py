"""The judges of the simulation, the crash runs and the soak. They import nothing of the bot."""
