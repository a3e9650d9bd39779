//go:build !linux

package badgerstore

import (
	"errors"
	"os"
)

// reserve has no call on this system.
func reserve(*os.File, int64) error { return errors.ErrUnsupported }
