package badgerstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve takes up size bytes for a file without writing them.
func reserve(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return errors.ErrUnsupported
		default:
			return err
		}
	}
}
