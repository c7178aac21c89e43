"""What a person sees: tables, live views, number formats, interrupts."""
