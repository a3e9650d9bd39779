package worker

import (
	"os"
	"path/filepath"
)

// defaultPath is searched for a shell where the worker has no PATH.
const defaultPath = `C:\Program Files\PowerShell\7`

// shells are the commands that can run a script, the best first.
func shells() [][]string {
	return [][]string{{"pwsh.exe", "-NoLogo", "-NoProfile", "-NonInteractive", "-File"}}
}

// findProgram returns the absolute path of a program, or nothing.
func findProgram(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		program := filepath.Join(dir, name)
		if !filepath.IsAbs(program) {
			continue
		}
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
			return program
		}
	}
	return ""
}
