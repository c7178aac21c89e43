"""Reports on a topology: errors, status, histograms."""
