"""Helpers of the end-to-end tests: processes, stores, the gateway, signing, the strict reader of a batch."""
