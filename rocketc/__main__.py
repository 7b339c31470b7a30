"""python -m rocketc: the same as the command `rocketc`."""

from rocketc_command import main

if __name__ == "__main__":
    main()
