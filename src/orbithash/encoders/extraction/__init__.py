"""Features of images by a backbone, in one file."""
