package worker

import "strings"

// inherits tells whether a step gets this variable of the worker's. Without the names of the second line most Windows
// programs, PowerShell among them, do not start.
func inherits(name string) bool {
	switch key := envKey(name); key {
	case "PATH", "HOME", "USER", "LANG", "TZ",
		"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERNAME", "USERPROFILE", "APPDATA",
		"LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "NUMBER_OF_PROCESSORS",
		"PROCESSOR_ARCHITECTURE", "PSMODULEPATH":
		return true
	default:
		return strings.HasPrefix(key, "LC_")
	}
}

// tempNames are the variables that name the folder for temporary files.
func tempNames() []string { return []string{"TMPDIR", "TEMP", "TMP"} }

// envKey is what two names have in common if they are the same variable.
func envKey(name string) string { return strings.ToUpper(name) }
