"""What a submitter sends: parsed, checked, accepted."""
