package sim

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

// judge is the test that a fleet sees: it notes what would have failed it, for a scenario that fails is played again many
// times while it is made shorter.
type judge struct {
	testing.TB

	mu       sync.Mutex
	findings []string
	class    string
	cleanups []func()
	found    chan struct{} // closed at the first finding
}

// findingsKept bounds what is noted: one fault often shows in many places.
const findingsKept = 20

func newJudge(t testing.TB) *judge { return &judge{TB: t, found: make(chan struct{})} }

func (j *judge) find(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.findings) == 0 {
		j.class = format
		close(j.found)
	}
	if len(j.findings) < findingsKept {
		j.findings = append(j.findings, since().String()+": "+fmt.Sprintf(format, args...))
	}
}

// since is the virtual time since the bubble began.
func since() time.Duration { return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) }

// Helper, Errorf, Error, Fatalf, Fatal, Failed, Logf and Cleanup stand in for those of the test.
func (j *judge) Helper() {}

func (j *judge) Errorf(format string, args ...any) { j.find(format, args...) }

func (j *judge) Error(args ...any) { j.find("%s", fmt.Sprint(args...)) }

func (j *judge) Fatalf(format string, args ...any) {
	j.find(format, args...)
	runtime.Goexit()
}

func (j *judge) Fatal(args ...any) {
	j.find("%s", fmt.Sprint(args...))
	runtime.Goexit()
}

func (j *judge) Logf(string, ...any) {}

func (j *judge) Failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.findings) > 0
}

func (j *judge) Cleanup(fn func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cleanups = append(j.cleanups, fn)
}

// end runs the cleanups, the last one first.
func (j *judge) end() {
	for i := len(j.cleanups) - 1; i >= 0; i-- {
		j.cleanups[i]()
	}
}

// ear listens to the orchestrator's log: what it takes for an error of its own is a finding, unless the scenario has made
// it.
type ear struct{ w *world }

var _ slog.Handler = ear{}

func (e ear) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (e ear) WithAttrs([]slog.Attr) slog.Handler { return e }

func (e ear) WithGroup(string) slog.Handler { return e }

func (e ear) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	text := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != messages.KeyStack || r.Message != "actor panicked" {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		}
		if a.Key == messages.KeyErr {
			text = a.Value.String()
		}
		return true
	})
	e.w.hear(r.Level, r.Message, text, b.String())
	return nil
}
