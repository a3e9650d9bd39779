//go:build linux || darwin

package worker

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// killStrays kills what a dispatch left behind whose keeper did not live to do it: everything that carries the
// dispatch's mark in its environment, and, if session is not 0, everything in that session. It returns when nothing
// is found any more, or an error when ctx is over. A process that had left the session and dropped the mark is not
// found.
func killStrays(ctx context.Context, dispatch string, session int) error {
	// A process shows no environment while it becomes another program, and one that is born during a look may not be
	// seen by it: only the second look in a row that finds nothing counts.
	const enough = 2
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := firstKillPause
	for clean := 0; ; {
		left := killStraysOnce(dispatch, session)
		if left > 0 {
			clean, wait = 0, min(2*wait, lastKillPause)
		} else {
			clean, wait = clean+1, 10*firstKillPause
		}
		if clean == enough {
			return nil
		}
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes of dispatch %s are left: %w", dispatch, context.Cause(ctx))
		case <-pause.C:
		}
	}
}

// killStraysOnce is one look, and returns how many it found.
func killStraysOnce(dispatch string, session int) int {
	left := 0
	for _, p := range processTable() {
		if p.dead || p.pid == os.Getpid() || p.pid <= 1 {
			continue
		}
		if (session > 0 && p.session == session) || carriesDispatch(p.pid, dispatch) {
			left++
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
	return left
}
