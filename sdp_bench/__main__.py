"""``python -m sdp_bench``: the command ``sdp-bench``, if it is not on the path."""

from sdp_bench.cli import main

if __name__ == "__main__":
    main()
