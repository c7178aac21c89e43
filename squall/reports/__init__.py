"""What a cluster reports of a topology: errors, status, histograms."""
