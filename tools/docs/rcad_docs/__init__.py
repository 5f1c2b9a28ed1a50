"""What the site shows beyond docs/: method cards, the command line, evidence, the API, pictures."""
