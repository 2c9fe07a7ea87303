"""``threadfast completion``: the script with which a shell completes commands, options and thread ids."""

from __future__ import annotations

import os
from pathlib import Path

import click

PROGRAM = "threadfast"
VARIABLE = "_THREADFAST_COMPLETE"
"""Set by the shell's script when it asks the program what would fit."""

SHELLS = ("bash", "zsh", "fish")


HELP = """Print the script that completes commands, options and thread ids in your shell.

\b
bash  threadfast completion bash > ~/.threadfast.bash
      echo '. ~/.threadfast.bash' >> ~/.bashrc
zsh   threadfast completion zsh > ~/.threadfast.zsh
      echo '. ~/.threadfast.zsh' >> ~/.zshrc       # below compinit
fish  threadfast completion fish \\
        > ~/.config/fish/completions/threadfast.fish

Then open a new shell. Without a name it is the shell you use ($SHELL).
"""


@click.command(help=HELP, short_help="Print the script that completes commands in your shell.")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    from click.shell_completion import get_completion_class

    used = shell or Path(os.environ.get("SHELL", "")).name
    if used not in SHELLS:
        raise click.UsageError(f"name your shell: {', '.join(SHELLS)}")
    shell_class = get_completion_class(used)
    assert shell_class is not None, "click knows these three"
    complete = shell_class(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    click.echo(complete.source_template % complete.source_vars())
