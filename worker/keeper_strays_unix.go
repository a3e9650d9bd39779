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
// is found any more, or an error when ctx is over.
func killStrays(ctx context.Context, dispatch string, session int) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := firstKillPause; ; wait = min(2*wait, lastKillPause) {
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
		if left == 0 {
			return nil
		}
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes of dispatch %s are left: %w", left, dispatch, context.Cause(ctx))
		case <-pause.C:
		}
	}
}
