"""Hostile inputs, each with the refusal that it must meet, through the real composition.

`bench` puts the tools together as `bot.wiring.app.serve` does, with fakes for the network, the sandbox and the model. A
row is an input and its expected outcome. Besides, for every row: nobody can read the canary or a path of this machine,
nothing outside the workspace has changed, and no command ran without a person's yes. Rows prove that a wall is in
place; each wall has its own tests with more inputs.
"""
