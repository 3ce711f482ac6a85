// The target of the integration tests.
