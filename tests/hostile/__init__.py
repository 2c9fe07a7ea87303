"""The hostile corpus: inputs that want to do harm, each with the refusal it must meet, through the real composition.

`bench` puts the bot together as `bot.wiring.app.serve` does, with what is outside of it replaced: the network, the sandbox
(a stage that only writes down what it was made to run), the model (a script). Each `test_*` file has the rows of one
group. A row is an input and what must come of it; beside that the same holds for every row: the canary is nowhere
that anybody can read, nothing outside the workspace has changed, no command ran without a person's yes, no path of
this machine is told. `test_whole` counts the rows.
"""
