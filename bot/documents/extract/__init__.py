"""What takes files from outside apart. It runs in a child process of its own, and nothing in the bot imports it.

`bot.documents.reader` starts one child for each file.
``python -I -m bot.documents.extract text 1234 text/html .html`` reads the file from standard input, and writes one
line of JSON (`result.Said`) and then the text, or the picture, to standard
output. The parsers of PDFs, archives, pictures and web pages meet whatever somebody cared to send: here they may run
out of memory or time, or crash, at no cost but their own file's.
"""
