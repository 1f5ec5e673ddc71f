"""`python -m uni_train`."""

from uni_train.cli.main import main

if __name__ == "__main__":
    main()
