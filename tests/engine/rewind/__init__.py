"""An old master that has diverged from the new one."""
