"""From a user's file to a submission: loading the file, finding the user's modules, uploading."""
