"""`python -m kafkasniff`."""

from kafkasniff.cli.main import main

if __name__ == "__main__":
    main()
