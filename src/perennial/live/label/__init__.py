"""Labels for images of traffic: which to label, the page to do it, and their return as a branch."""
