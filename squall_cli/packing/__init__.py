"""From a user's file to a submission: loading, the user's modules, the upload."""
