"""The terminal: tables, live views, number formats, interrupts."""
