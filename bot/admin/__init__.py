"""What an operator uses: the command line."""
