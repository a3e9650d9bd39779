//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// size is a number that a variable may change.
func size(t *testing.T, variable string, n int) int {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		return n
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// exactlyOnce wants that many steps, each with one start and one end.
func exactlyOnce(t *testing.T, entries []entry, steps int) {
	t.Helper()
	type key struct{ run, step string }
	starts, ends := map[key]int{}, map[key]int{}
	for _, e := range entries {
		switch e.what {
		case "start":
			starts[key{e.run, e.step}]++
		case "end":
			ends[key{e.run, e.step}]++
		}
	}
	if len(starts) != steps {
		t.Errorf("%d steps started, not %d", len(starts), steps)
	}
	for k, n := range starts {
		if n != 1 || ends[k] != 1 {
			t.Errorf("step %s of run %s started %d times and ended %d times", k.step, k.run, n, ends[k])
		}
	}
	for _, w := range wrong(entries) {
		t.Error(w)
	}
}

// batches submits that many steps, in runs of at most 50, and returns the runs.
func batches(f *fleet, l *ledger, steps int, body func(i int) string) []string {
	var ids []string
	for done := 0; done < steps; {
		var list []string
		for ; done < steps && len(list) < 50; done++ {
			list = append(list, step(fmt.Sprintf("s%d", done), l.script(body(done)), "labels: {pool: a}"))
		}
		ids = append(ids, f.detach(flow(list...)))
	}
	return ids
}

// without wants runs that have succeeded, with steps of which none was lost.
func without(t *testing.T, f *fleet, ids []string) {
	t.Helper()
	for _, id := range ids {
		run := f.ends(id, 30*time.Second, "succeeded")
		for _, j := range run.Jobs {
			for _, s := range j.Steps {
				if s.Losses != 0 || s.Attempts != 1 {
					t.Errorf("step %s of run %s: %+v", s.Name, id, s)
				}
			}
		}
	}
}

// looped is a machine whose supervisor starts the worker again whenever it has left, as long as it is wanted.
type looped struct {
	f       *fleet
	name    string
	token   string
	flags   []string
	current atomic.Pointer[worker]
	hit     *worker // the life that was sent a signal
	lives   int
}

// live goes on until stop. It runs in a goroutine of its own and tells what went wrong.
func (l *looped) live(stop <-chan struct{}, processes func(*process)) error {
	cache := l.f.path("cache-" + l.name)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		args := append([]string{"ws://" + l.f.addr, "--cache-dir", cache, "--label", "pool=a", "--output", "json"}, l.flags...)
		p := startProcess(l.f.t, "swamp-worker", startOptions{env: l.f.env("SWAMP_WORKER_TOKEN=" + l.token), dir: l.f.dir}, args...)
		processes(p)
		l.lives++
		w := &worker{process: p, f: l.f, name: l.name}
		l.current.Store(w)
		select {
		case <-p.ended:
		case <-stop:
			_ = await(10*time.Second, func() error { // a signal before it has begun is no drain
				if p.alive() && len(p.stdout()) == 0 {
					return errors.New("it has said nothing yet")
				}
				return nil
			})
			if w != l.hit {
				_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			}
		}
		select {
		case <-p.ended:
		case <-time.After(patient(time.Minute)):
			return fmt.Errorf("%s does not leave: %s", l.name, p.text())
		}
		if p.code != 0 {
			return fmt.Errorf("life %d of %s exits %d: %s", l.lives, l.name, p.code, p.text())
		}
	}
}

// keepAlive runs machines until stop is called, which waits for them. What went wrong fails the test.
func keepAlive(t *testing.T, f *fleet, machines []*looped) (stop func()) {
	t.Helper()
	over := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, m := range machines {
		all.Go(func() {
			err := m.live(over, func(p *process) {
				mu.Lock()
				defer mu.Unlock()
				f.processes = append(f.processes, p)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	return sync.OnceFunc(func() {
		close(over)
		all.Wait()
	})
}

// Each step runs exactly once, on a worker that is there for it alone. E2E_EPHEMERAL is the number of steps.
func TestDrain_EphemeralWorkersRunEachStepOnce(t *testing.T) {
	t.Parallel()
	steps := size(t, "E2E_EPHEMERAL", 60)
	f := newFleet(t)
	ledger := newLedger(f)
	begun := time.Now()
	ids := batches(f, ledger, steps, func(int) string { return "true" })
	token := f.newToken("pool", "--max-enrollments", "unlimited")
	var machines []*looped
	for i := range 4 {
		machines = append(machines, &looped{f: f, name: fmt.Sprintf("m%d", i), token: token, flags: []string{"--max-dispatches", "1"}})
	}
	stop := keepAlive(t, f, machines)
	defer stop()
	eventually(t, time.Duration(steps)*time.Second+time.Minute, "the queue is empty", func() error {
		if n := ledger.ends(t); n < steps {
			return fmt.Errorf("%d of %d steps have ended", n, steps)
		}
		return nil
	})
	without(t, f, ids)
	stop()
	exactlyOnce(t, ledger.entries(t), steps)
	lives := 0
	for _, m := range machines {
		lives += m.lives
	}
	t.Logf("%d steps by %d lives of %d machines in %s", steps, lives, len(machines), time.Since(begun).Round(time.Second))
	if lives < steps {
		t.Errorf("%d steps were run by %d lives", steps, lives)
	}
	f.booksAgree()
}

// ends is how many steps have come to their end.
func (l *ledger) ends(t testing.TB) int {
	t.Helper()
	n := 0
	for _, e := range l.entries(t) {
		if e.what == "end" {
			n++
		}
	}
	return n
}

// Each step runs exactly once while its workers are stopped at random, which drains them. E2E_SIGNALS is the number of
// steps, E2E_SEED what is chosen by.
func TestDrain_UnderRandomSignalsEachStepRunsOnce(t *testing.T) {
	t.Parallel()
	steps, seed := size(t, "E2E_SIGNALS", 80), size(t, "E2E_SEED", int(time.Now().UnixNano()%1e6))
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	t.Logf("E2E_SEED=%d", seed)
	f := newFleet(t)
	ledger := newLedger(f)
	begun := time.Now()
	ids := batches(f, ledger, steps, func(int) string { return fmt.Sprintf("sleep 0.%02d", r.IntN(30)) })
	token := f.newToken("pool", "--max-enrollments", "unlimited")
	var machines []*looped
	for i := range 3 {
		machines = append(machines, &looped{f: f, name: fmt.Sprintf("m%d", i), token: token, flags: []string{"--concurrency", "2"}})
	}
	stop := keepAlive(t, f, machines)
	defer stop()
	signals := 0
	eventually(t, time.Duration(steps)*time.Second+time.Minute, "every step has ended", func() error {
		// One signal in a life, since a second one kills; and none before it has begun.
		m := machines[r.IntN(len(machines))]
		if w := m.current.Load(); w != nil && r.IntN(5) == 0 && w != m.hit && len(w.stdout()) > 0 && w.alive() {
			w.process.signal([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[r.IntN(3)])
			m.hit = w
			signals++
		}
		if n := ledger.ends(t); n < steps {
			return fmt.Errorf("%d of %d steps have ended", n, steps)
		}
		return nil
	})
	without(t, f, ids)
	stop()
	exactlyOnce(t, ledger.entries(t), steps)
	lives := 0
	for _, m := range machines {
		lives += m.lives
	}
	t.Logf("%d steps under %d signals to %d lives of %d machines in %s", steps, signals, lives, len(machines), time.Since(begun).Round(time.Second))
	if lives < len(machines)+3 {
		t.Errorf("the storm has hit nobody: %d lives", lives)
	}
	f.booksAgree()
	if lost := f.d.text(); strings.Contains(lost, "level=ERROR") {
		t.Errorf("swampd says %s", lost)
	}
}
