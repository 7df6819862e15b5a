"""Routes of the API and the search page, one module per group of paths."""
