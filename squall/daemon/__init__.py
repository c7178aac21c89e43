"""The parts that every daemon process needs: command loop, state directory and its mark, process data."""
