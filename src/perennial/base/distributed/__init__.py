"""Workers that train together: processes of this machine, or on the nodes of a Ray cluster."""
