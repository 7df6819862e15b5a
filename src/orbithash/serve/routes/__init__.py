"""The paths of the API, and what each does."""
