"""Spark: session, data source, pipeline. The only part that may import pyspark (`pip install 'kafkasniff[spark]'`)."""
