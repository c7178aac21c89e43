"""Reading a table: its committed rows as a frame, and a summary of its contents."""
