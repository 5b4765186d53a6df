// Empty: functions without bodies (go:linkname) need an assembly file in the package.
