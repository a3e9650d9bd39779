//go:build unix

package worker

import "os"

const programSuffix = ""

// sameTool tells whether path is the program already.
func sameTool(path, program string) bool {
	target, err := os.Readlink(path)
	return err == nil && target == program
}

func linkTool(path, program string) error { return os.Symlink(program, path) }
