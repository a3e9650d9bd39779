package actors

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/swampd/swampd/messages"
)

// Restart pauses and the window in which panics count. A scheduler or router that panics more often than giveUpAfter in
// the window ends the process: the orchestrator would be alive but dead.
const (
	restartFirst  = 10 * time.Millisecond
	restartMax    = 5 * time.Second
	restartWindow = 10 * time.Second
	giveUpAfter   = 10
)

// backoff counts an actor's recent panics.
type backoff struct {
	recent int
	last   time.Time
}

// failed notes a panic, and returns how many were recent and how long to wait before the restart.
func (b *backoff) failed(now time.Time) (recent int, wait time.Duration) {
	if now.Sub(b.last) > restartWindow {
		b.recent = 0
	}
	b.recent++
	b.last = now
	return b.recent, min(restartFirst<<min(b.recent-1, 16), restartMax)
}

// supervision restarts what panics, after a pause that doubles. The actor's mailbox keeps what is queued meanwhile;
// only the message in hand is lost, and whoever sent it still owes it (rule P3).
type supervision struct{ sys *System }

// HandleFailure is called by the parent's actor context, one failure of a child at a time.
func (s *supervision) HandleFailure(_ *actor.ActorSystem, parent actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	info := s.sys.info(child)
	info.restarts.Add(1)
	s.sys.counters.restarts.Add(1)
	recent, wait := info.backoff.failed(time.Now())
	if essential := info.address.kind == kindScheduler || info.address.kind == kindRouter; essential && recent > giveUpAfter {
		s.sys.fail(fmt.Errorf("%s panicked %d times in a row: %v", child.GetId(), recent, reason))
		return
	}
	s.sys.log.Warn("actor restarts", slog.String(messages.KeyPID, child.GetId()), slog.Int(messages.KeyCount, recent), slog.Duration(messages.KeyDur, wait))
	time.AfterFunc(wait, func() { parent.RestartChildren(child) })
}
