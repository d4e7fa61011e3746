"""Data sets of this project. They stand apart so that an edit elsewhere does not convert the images again."""
