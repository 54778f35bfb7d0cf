"""Files to pages: PDF, images, OCR, and limits on hostile input."""
