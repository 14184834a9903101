"""The suites; each module registers one."""
