package worker

import (
	"errors"
	"io"
	"os"
)

const programSuffix = ".exe"

// sameTool tells whether path is a copy of the program, or the program itself.
func sameTool(path, program string) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	own, err := os.Stat(program)
	return err == nil && (os.SameFile(there, own) || there.Size() == own.Size() && there.ModTime().Equal(own.ModTime()))
}

// linkTool makes a hard link, or a copy where the two are on different drives: a symbolic link is a privilege there.
func linkTool(path, program string) (err error) {
	if os.Link(program, path) == nil {
		return nil
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close(), os.Chtimes(path, info.ModTime(), info.ModTime()))
}
