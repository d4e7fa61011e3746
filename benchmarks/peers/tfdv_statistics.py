"""TensorFlow Data Validation: statistics, the schema they imply, anomalies: `tfdv_statistics FOLDER`."""

import sys
from pathlib import Path

import tensorflow_data_validation as tfdv

statistics = tfdv.generate_statistics_from_tfrecord(data_location=str(Path(sys.argv[1]) / "*.tfrecord"))
anomalies = tfdv.validate_statistics(statistics, tfdv.infer_schema(statistics))
print(statistics.datasets[0].num_examples, len(anomalies.anomaly_info))
