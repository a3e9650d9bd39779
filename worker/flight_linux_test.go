package worker

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
)

// startReal starts a worker that runs real steps under keepers, on real time.
func startReal(t *testing.T) (o *orchestrator, dir string) {
	t.Helper()
	dir = t.TempDir()
	exec, err := NewExecutor(ExecutorConfig{
		CacheDir: dir, Logger: slog.New(slog.DiscardHandler), KeeperCommand: []string{os.Args[0], KeeperArg},
	})
	if err != nil {
		t.Fatal(err)
	}
	o = startAgent(t, nil, func(c *Config) { c.Executor, c.CacheDir = exec, dir })
	o.agent.clock = FenceClock
	return o, dir
}

// runs has the script of a task run, with a mark on its processes.
func (c *conn) runs(id, script, mark string) {
	c.t.Helper()
	c.dispatch(id, 1, func(p *messages.DispatchParams) {
		p.Args = []*messages.KeyValue{{Key: "run", Value: script}}
		p.Env = []*messages.KeyValue{{Key: markVariable, Value: mark}}
		p.Stop = &messages.StopPolicy{GraceMs: 60_000}
	})
	c.takes(id)
}

// stepEnds waits until a step has.
func (o *orchestrator) stepEnds() {
	o.t.Helper()
	eventually(o.t, "the step has ended", func() bool { return slices.Contains(o.kinds(), EventDispatchFinished) })
}

func TestAgent_ARealStepOutlivesItsConnectionAndIsAdopted(t *testing.T) {
	t.Parallel()
	o, dir := startReal(t)
	o.run()
	c := o.enrolled()
	gate := filepath.Join(dir, "gate")
	c.runs("d1", "echo before; while [ ! -e "+gate+" ]; do sleep 0.02; done; echo after; exit 3", "none")
	c.expect("d1/1 stdout before")
	_ = c.Close("", "")
	c = o.accept()
	if d := cmp.Diff([]string{"d1/1 running 7"}, c.inFlight()); d != "" {
		t.Error(d)
	}
	c.admitWith(verdict("d1", 1, verdictWait, 0))
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.stepEnds()
	c.dispatch("d1", 2, func(p *messages.DispatchParams) { p.Generation, p.OutputFromOffset = 2, 7 })
	c.expect("d1/2 accepted")
	c.expect("d1/2 started")
	c.expect("d1/2 stdout after")
	c.expect("d1/2 failed exit_nonzero")
	c.ackOf("d1/2", 13, true)
}

func TestAgent_ARealStepDiesAtItsFence(t *testing.T) {
	t.Parallel()
	o, _ := startReal(t)
	var away atomic.Bool
	o.refuse = func(int) error {
		if away.Load() {
			return errDialled
		}
		return nil
	}
	o.run()
	c := o.accept()
	c.send(responseTo(c.id, messages.VerbWorkerEnroll, &messages.EnrollResult{
		Worker: "gpu-1", PingMs: 10_000, GraceMs: 2000, KillMarginMs: 500, KillGraceMs: 300,
	}))
	_, mark := markedTask("")
	c.runs("d1", "trap '' TERM; echo up; while true; do sleep 0.1; done", mark)
	c.expect("d1/1 stdout up")
	away.Store(true)
	_ = c.Close("", "")
	o.stepEnds()
	assertNothingLeft(t, mark)
	away.Store(false)
	c = o.accept()
	if r := c.enroll.GetInFlight()[0].GetResult(); r.GetStatus() != statusLost || r.GetError() != outOfReach {
		t.Errorf("result %v", r)
	}
	c.admit()
}
