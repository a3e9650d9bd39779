package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
)

// slowEngine makes an orchestrator that starts or stops only when it is let.
type slowEngine struct {
	daemon.Engine

	starting, stopping chan struct{} // closed when it has begun
	working            chan struct{} // closed when it is looked after
	once               sync.Once
	letStart, letStop  chan struct{}
	deaf               bool // its start does not hear that it is to end
	stopErr            error
	fails              chan struct{}
}

func newSlowEngine() *slowEngine {
	return &slowEngine{
		starting: make(chan struct{}), stopping: make(chan struct{}), working: make(chan struct{}), letStart: make(chan struct{}), letStop: make(chan struct{}),
		fails: make(chan struct{}),
	}
}

func (e *slowEngine) Start(ctx context.Context, _ daemon.Config) (daemon.Orchestrator, error) {
	close(e.starting)
	heard := ctx.Done()
	if e.deaf {
		heard = nil
	}
	select {
	case <-e.letStart:
		return e, nil
	case <-heard:
		return nil, context.Cause(ctx)
	}
}

func (*slowEngine) URL() string            { return "http://127.0.0.1:1" }
func (*slowEngine) Token() messages.Secret { return "" }
func (*slowEngine) Failure() error         { return nil }

func (e *slowEngine) Failed() <-chan struct{} {
	e.once.Do(func() { close(e.working) })
	return e.fails
}

func (e *slowEngine) Stop(ctx context.Context) error {
	close(e.stopping)
	select {
	case <-e.letStop:
		return e.stopErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestServe_Stops(t *testing.T) {
	t.Parallel()
	closed := func() chan struct{} {
		c := make(chan struct{})
		close(c)
		return c
	}
	tests := []struct {
		name  string
		args  []string
		setup func(e *slowEngine)
		story func(e *slowEngine, signals chan<- os.Signal)
		code  int
		says  string
	}{
		{"while it starts, which hears of it", nil, func(*slowEngine) {}, func(e *slowEngine, s chan<- os.Signal) {
			<-e.starting
			s <- syscall.SIGTERM
		}, ExitOK, "stopping"},
		{"while it starts, which does not hear of it and comes to its end", nil, func(e *slowEngine) { e.deaf, e.letStop = true, closed() }, func(e *slowEngine, s chan<- os.Signal) {
			<-e.starting
			s <- syscall.SIGTERM
			close(e.letStart)
		}, ExitOK, "stopping"},
		{"while it starts, which does not hear of it, and once more", nil, func(e *slowEngine) { e.deaf = true }, func(e *slowEngine, s chan<- os.Signal) {
			<-e.starting
			s <- syscall.SIGTERM
			s <- syscall.SIGTERM
		}, ExitFailed, "stopped at once by a second signal"},
		{"while it works", nil, func(e *slowEngine) { e.letStart = closed() }, func(e *slowEngine, s chan<- os.Signal) {
			<-e.working
			s <- os.Interrupt
			<-e.stopping
			close(e.letStop)
		}, ExitOK, "stopping"},
		{"while it works, and once more while it stops", nil, func(e *slowEngine) { e.letStart = closed() }, func(e *slowEngine, s chan<- os.Signal) {
			<-e.working
			s <- syscall.SIGTERM
			<-e.stopping
			s <- os.Interrupt
		}, ExitFailed, "stopped at once by a second signal"},
		{"and does not come to its end", []string{"--shutdown-timeout", "1s"}, func(e *slowEngine) { e.letStart = closed() }, func(e *slowEngine, s chan<- os.Signal) {
			<-e.working
			s <- syscall.SIGTERM
			<-e.stopping
		}, ExitFailed, "it did not end in 1s (--shutdown-timeout)"},
		{"and something goes wrong", nil, func(e *slowEngine) {
			e.letStart, e.letStop, e.stopErr = closed(), closed(), errors.New("close the store: it is on fire")
		}, func(e *slowEngine, s chan<- os.Signal) {
			<-e.working
			s <- syscall.SIGTERM
		}, ExitFailed, "close the store: it is on fire"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newSlowEngine()
			tt.setup(e)
			h := newTestHost(t, append([]string{"--data-dir", t.TempDir()}, tt.args...)...)
			h.Engine = e
			code := h.start(context.Background(), Swampd)
			tt.story(e, h.signals)
			if got := h.wait(t, code); got != tt.code || !strings.Contains(h.err.String(), tt.says) {
				t.Errorf("exit %d, says %q", got, h.err.String())
			}
			// What nobody waits for any more ends too: the process goes on here.
			for _, let := range []chan struct{}{e.letStart, e.letStop} {
				select {
				case <-let:
				default:
					close(let)
				}
			}
		})
	}
}
