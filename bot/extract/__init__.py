"""What takes files from outside apart. It runs in a child process of its own, and nothing in the bot imports it.

`bot.documents` starts one child for each file: ``python -I -m bot.extract text 1234 text/html .html`` has the file on
standard input, and writes one line of JSON (`bot.extract.said.Said`) and then the text, or the picture, to standard
output. The parsers of PDFs, archives, pictures and web pages meet whatever somebody cared to send: here they may run
out of memory or time, or crash, at no cost but their own file's.
"""
