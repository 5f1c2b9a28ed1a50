"""One document, shown four ways: HTML, Markdown, LaTeX and terminal. It knows no record; whoever has one builds it."""
