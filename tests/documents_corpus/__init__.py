"""Real public files, and words of each that must arrive.

The files are not ours to ship. ``files.tsv`` has the kind, the repository and path, the SHA-256 and the words of each.
The words were taken without our readers: from the expected results of the repositories, by pdftotext, by Python's own
mail package, by the encodings that the folders of chardet's tests name, and from the elements of the XML.

``python -m tests.documents_corpus DIR`` reads those that are anywhere below a folder.
"""
