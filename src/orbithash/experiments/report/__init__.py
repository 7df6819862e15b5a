"""Results as figures, Markdown, LaTeX and HTML."""
