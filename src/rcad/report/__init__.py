"""Documents, rendered as HTML, Markdown, LaTeX and terminal text. Other rooms build them from their records."""
