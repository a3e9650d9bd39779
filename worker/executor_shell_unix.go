//go:build unix

package worker

import (
	"os"
	"path/filepath"
)

// defaultPath is searched for a shell where the worker has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// shells are the commands that can run a script, the best first.
func shells() [][]string { return [][]string{{"bash", "-eo", "pipefail"}, {"sh", "-e"}} }

// findProgram returns the absolute path of a program, or nothing.
func findProgram(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		program := filepath.Join(dir, name)
		if !filepath.IsAbs(program) {
			continue // it would mean another one in the step's working directory
		}
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return program
		}
	}
	return ""
}
