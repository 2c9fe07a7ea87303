"""What an operator uses: the command line, and the status of the running bot."""
