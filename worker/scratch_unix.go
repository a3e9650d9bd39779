//go:build unix

package worker

import (
	"os"
	"syscall"
)

const scriptName = ".swamp-script"

// openOutputs opens the file without following a link and without waiting for the other end of a pipe.
func openOutputs(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
