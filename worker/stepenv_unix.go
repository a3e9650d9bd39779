//go:build unix

package worker

import "strings"

// inherits tells whether a step gets this variable of the worker's.
func inherits(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LANG", "TZ":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// tempNames are the variables that name the folder for temporary files.
func tempNames() []string { return []string{"TMPDIR"} }

// envKey is what two names have in common if they are the same variable.
func envKey(name string) string { return name }
