"""From downloads to validated TFRecords and decoded images."""
