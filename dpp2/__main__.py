"""`python -m dpp2` is `dpp2`."""

from runpy import run_module

if __name__ == "__main__":
    run_module("dpp2.orchestrator", run_name="__main__")
