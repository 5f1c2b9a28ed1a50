"""`python -m rcad.cli`: the command where its script is not on the path."""

from rcad.cli.main import main

if __name__ == "__main__":
    main()
