"""The parts that every daemon process needs: a command loop, a state directory with its mark, the kernel's data on
processes."""
