"""Reading a table: its committed rows as a frame, and what the table holds."""
