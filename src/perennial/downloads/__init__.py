"""Original files, fetched and verified: what stands under a final name is what was asked for."""
