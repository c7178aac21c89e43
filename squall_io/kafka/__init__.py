"""Kafka: topics as streams. Needs the extra `squall[kafka]`."""
