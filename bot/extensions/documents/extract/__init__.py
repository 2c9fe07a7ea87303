"""The parsers of files from outside. They run in a child process, and nothing in the bot imports them.

For each file `bot.extensions.documents.reader` starts a child.
``python -I -m bot.extensions.documents.extract text 1234 text/html .html`` reads the file from standard input, and
writes a line of JSON (`result.Extraction`) and then the text or the picture. Files may be hostile: here a parser may
run out of memory or time, or crash, and only that file is lost.
"""
