"""The rules of the gate: each gives a check and the sentence that explains it."""
