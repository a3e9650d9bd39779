package engine

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
)

// adminToken returns the server token of a data directory, and whether it is new: then it has to be saved.
func adminToken(dir string) (token messages.Secret, fresh bool, err error) {
	file := filepath.Join(dir, daemon.AdminTokenFile)
	token, err = daemon.ReadTokenFile(file)
	switch {
	case err == nil:
		return token, false, nil
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR): // what is wrong with the directory is told when it is made
		return "", false, fmt.Errorf("read the server token: %w; make %s readable, or remove it to get a new one", err, file)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", false, fmt.Errorf("make a server token: %w", err)
	}
	return messages.Secret(hex.EncodeToString(secret)), true, nil
}

// saveAdminToken writes the server token, readable by this user only. The file is whole from the moment that it exists,
// also after a crash. Whoever calls it holds the lock of the directory.
func saveAdminToken(dir string, token messages.Secret) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the server token: %w", err)
		}
	}()
	file, err := os.CreateTemp(dir, "."+daemon.AdminTokenFile+"-*") // 0600 from the start
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.WriteString(token.Reveal() + "\n")
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(dir, daemon.AdminTokenFile))
}

// makeDataDir makes the directory, for this user only, and makes sure that it can be written.
func makeDataDir(dir string) error {
	next := "allow this user to write there, or choose another with --data-dir"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory %s: %w: %s", dir, daemon.PlainPathError(err), next)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return fmt.Errorf("write to the data directory %s: %w: %s", dir, daemon.PlainPathError(err), next)
	}
	return nil
}
