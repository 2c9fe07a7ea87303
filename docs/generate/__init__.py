"""Makes the documents that are drawn from the code: ``python -m docs.generate``. A test compares them."""
