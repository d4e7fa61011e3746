"""Search settings by training with them and comparing on the validation split."""
