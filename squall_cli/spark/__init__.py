"""The shared parts of commands that use Spark."""
