"""What the commands that use Spark share."""
