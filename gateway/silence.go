package gateway

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/swampd/swampd/messages"
)

// peerClosedError is how a peer closed its socket.
type peerClosedError struct {
	status int
	reason string
}

func (e *peerClosedError) Error() string {
	if e.reason == "" {
		return fmt.Sprintf("the peer closed the socket with status %d", e.status)
	}
	return fmt.Sprintf("the peer closed the socket with status %d: %s", e.status, e.reason)
}

// watchSilence looks at every socket several times in each ping interval, until the server stops.
func (s *Server) watchSilence() {
	last := s.clock()
	for {
		interval := max(s.orchestrator.PingInterval(), time.Millisecond)
		timer := time.NewTimer(interval / 4)
		select {
		case <-s.streams.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		now := s.clock()
		stalled := now-last >= interval
		if stalled {
			s.log.Warn("this process stood still: its peers get a fresh interval", slog.Duration(messages.KeyDur, now-last))
		}
		last = now
		for _, c := range s.allConns() {
			c.judge(now, interval, stalled)
		}
	}
}

// judge pings a peer that was silent for one interval, and gives up one that was silent for three. What came while this
// process stood still, or while the session took no more frames, has not been read yet, so that it is not the peer's
// silence.
func (c *conn) judge(now, interval time.Duration, stalled bool) {
	switch {
	case c.busy.Load():
		c.wire.excuse(now)
	case stalled:
		c.wire.excuse(now - 2*interval)
	}
	silence := c.wire.silence(now)
	switch {
	case c.closing.Load():
	case silence >= 3*interval:
		c.log.Debug("a peer has fallen silent", slog.Duration(messages.KeyDur, silence))
		c.die(fmt.Errorf("no byte from the peer for %s", silence.Round(time.Millisecond)))
	case c.anonymous.Load() && now-c.opened >= enrollTimeout:
		c.shut(messages.Faultf(messages.CodeUnavailable, "no enrollment within %s", enrollTimeout))
	case silence >= interval:
		c.probe()
	}
}
