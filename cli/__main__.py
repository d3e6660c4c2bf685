"""`python -m cli` is `plan-swarm`."""

from cli.app import main

if __name__ == "__main__":
    main()
