"""The parts that every daemon process needs: command loop, state mark, process data."""
