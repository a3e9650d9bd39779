package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// strayPatience bounds the wait for processes that were sent KILL.
const strayPatience = 10 * time.Second

func keeperLockPath(cacheDir string) string { return filepath.Join(cacheDir, "keepers.lock") }

// WaitForKeepers returns when no keeper of any worker process on this cache directory lives, and what they left is
// gone: processes of a step whose keeper was killed, and scratch folders. A new worker process calls it before it
// enrolls, because enrolling tells the orchestrator that every earlier step of this machine has ended. It returns an
// error when ctx is over first. No step may be started by this process in the meantime.
func WaitForKeepers(ctx context.Context, cacheDir string) error {
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return fmt.Errorf("wait for keepers: %w", err)
	}
	lock, err := waitForLock(ctx, keeperLockPath(cacheDir))
	if err != nil {
		return fmt.Errorf("wait for keepers: %w", err)
	}
	defer func() { _ = lock.Close() }()
	entries, err := os.ReadDir(scratchRoot(cacheDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read scratch folders: %w", err)
	}
	for _, e := range entries {
		if err := killStrays(ctx, e.Name(), 0); err != nil {
			return fmt.Errorf("wait for keepers: %w", err)
		}
		// A folder that stays is no reason not to work, and the next process tries again.
		_ = scratch{dir: filepath.Join(scratchRoot(cacheDir), e.Name())}.remove()
	}
	return nil
}

// waitForLock takes the lock for itself alone. The kernel offers no wait for it that can be interrupted.
func waitForLock(ctx context.Context, path string) (*os.File, error) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		lock, err := tryKeeperLock(path)
		if err != nil || lock != nil {
			return lock, err
		}
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("keepers of an earlier process still live: %w", context.Cause(ctx))
		case <-pause.C:
		}
	}
}
