"""Tests of the providers' batches."""
