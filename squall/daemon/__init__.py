"""What every daemon process needs: its command loop, its mark, process facts."""
