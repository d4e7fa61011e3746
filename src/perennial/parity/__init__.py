"""Whether an export, in each of its forms, answers as the model that was scored."""
