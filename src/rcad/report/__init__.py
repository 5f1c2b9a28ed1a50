"""From records to pages: one self-contained HTML file, and pictures that can stand inside it."""
