package worker

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swampd/swampd/messages"
)

// The terms of the scripted orchestrator in this file.
const (
	stormGrace  = 20 * time.Second
	stormMargin = 2200 * time.Millisecond
	stormKill   = 3 * time.Second
	stormPing   = 3 * time.Second
)

// storm is an orchestrator in bad weather: it drops connections, does not answer, forgets what it has not acknowledged,
// lets dispatches wait, adopts and gives up. It keeps books of what it has promised and what it has taken.
type storm struct {
	t    *testing.T
	r    *rand.Rand
	o    *orchestrator
	c    *conn
	seq  uint32
	ids  []string
	seen map[string]bool // what happened at all, so that the test is one

	mu    sync.Mutex
	books map[string]*claim
}

// claim is what the orchestrator knows of one dispatch, and what its step really does.
type claim struct {
	id         string
	generation uint32
	here       bool      // this session goes on with it
	promised   time.Time // the last promise for it
	given      bool      // up
	taken      []byte
	durable    int
	result     *messages.DispatchResult

	starts  int
	running bool
	printed int
}

// newStorm returns one in which every other worker has so little credit that most output goes by way of its disk, if it
// has one.
func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{t: t, r: rand.New(rand.NewPCG(seed, 3)), books: map[string]*claim{}, seen: map[string]bool{}}
	s.o = startAgent(t, s.step, func(c *Config) {
		if c.Concurrency = 3; seed%4 == 0 {
			c.CacheDir, c.SpoolBytes = t.TempDir(), 30_000
		}
	})
	if seed%2 == 0 {
		out := &s.o.agent.out
		out.limit, out.floor, out.shared = 8000, 1000, 5000
	}
	return s
}

// step is a step that prints now and then, and ends by itself, soon after TERM, or only with KILL. Its random numbers
// are its own.
func (s *storm) step(ctx context.Context, task Task, started func(), out Output) Outcome {
	r := rand.New(rand.NewPCG(uint64(len(task.DispatchID)), uint64(task.Attempt)))
	s.note(task.DispatchID, func(c *claim) { c.starts++; c.running = true })
	defer s.note(task.DispatchID, func(c *claim) { c.running = false })
	started()
	n, kinds := 0, r.IntN(3)
	for range r.IntN(40) {
		size := 1 + r.IntN(3000)
		s.note(task.DispatchID, func(c *claim) { c.printed += size })
		_ = out.Write([]Stream{Stdout, Stderr}[size%2], outputBytes(n, size)) // it fails once it is given up
		n += size
		select {
		case <-time.After(time.Duration(r.IntN(5000)) * time.Millisecond):
			continue
		case <-ctx.Done():
		}
		if kinds == 0 {
			<-task.Kill
		}
		return Outcome{Status: OutcomeCancelled, Code: CodeCancelled, Error: "cancelled"}
	}
	return Outcome{Status: OutcomeSucceeded}
}

func (s *storm) note(id string, f func(*claim)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.books[id])
}

// check wants that nothing runs beyond what was promised for it.
func (s *storm) check() {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.books {
		if c.starts > 1 {
			s.t.Fatalf("%s was started %d times", c.id, c.starts)
		}
		if c.running && time.Since(c.promised) > stormGrace-stormMargin {
			s.t.Fatalf("%s runs %v after the last promise", c.id, time.Since(c.promised))
		}
	}
}

// connect waits for the worker, and gives it a verdict on everything, or none. calm says that all goes on.
func (s *storm) connect(calm bool) {
	s.c = s.o.accept()
	s.check()
	named := map[string]*messages.InFlight{}
	for _, f := range s.c.enroll.GetInFlight() {
		named[f.GetDispatchId()] = f
	}
	var verdicts []*messages.InFlightVerdict
	for _, id := range s.ids {
		c := s.books[id]
		c.here = false
		f := named[id]
		if c.result == nil && s.r.IntN(3) == 0 { // it has crashed meanwhile
			c.taken = c.taken[:c.durable]
		}
		switch {
		case c.given || c.result != nil:
			if f != nil {
				verdicts = append(verdicts, verdict(id, f.GetGeneration(), verdictAbort, 0))
			}
			continue
		case f == nil && c.starts > 0:
			s.t.Fatalf("%s is not named", id)
		case f == nil: // it never arrived
			c.given = true
			continue
		}
		if int(f.GetOutputOffset()) < len(c.taken) || f.GetGeneration() > c.generation {
			s.t.Fatalf("%s has %d bytes of output under generation %d, %d were taken under %d", id, f.GetOutputOffset(), f.GetGeneration(), len(c.taken), c.generation)
		}
		kind := s.r.IntN(8)
		if calm {
			kind = 0
		}
		switch kind {
		case 0, 1, 2, 3:
			if kind == 3 {
				c.generation++
			}
			c.here, c.promised = true, time.Now()
			verdicts = append(verdicts, verdict(id, c.generation, verdictResume, uint32(c.durable)))
			s.seen["resumed "+f.GetState()] = true
		case 4, 5:
			verdicts = append(verdicts, verdict(id, f.GetGeneration(), verdictWait, 0))
			s.seen["waiting "+f.GetState()] = true
		case 6: // no word
		case 7:
			c.given = true
			verdicts = append(verdicts, verdict(id, f.GetGeneration(), verdictAbort, 0))
			s.seen["aborted "+f.GetState()] = true
		}
	}
	s.c.send(responseTo(s.c.id, messages.VerbWorkerEnroll, &messages.EnrollResult{
		Worker: "gpu-1", PingMs: messages.Milliseconds(stormPing), GraceMs: messages.Milliseconds(stormGrace),
		KillMarginMs: messages.Milliseconds(stormMargin), KillGraceMs: messages.Milliseconds(stormKill), InFlight: verdicts,
	}))
}

// hear takes what comes in a while. Some pings are not answered, and some output is not taken.
func (s *storm) hear(limit time.Duration, calm bool) {
	until := time.Now().Add(limit)
	for time.Now().Before(until) {
		ctx, cancel := context.WithDeadline(context.Background(), until)
		f, err := s.c.Read(ctx)
		cancel()
		if err != nil {
			return
		}
		s.check()
		s.frame(f, calm)
	}
	s.check()
}

func (s *storm) frame(f *messages.Frame, calm bool) {
	if f.GetRequest().GetWorkerPing() != nil {
		if calm || s.r.IntN(4) > 0 {
			for _, c := range s.books {
				if c.here {
					c.promised = time.Now()
				}
			}
			s.c.try(responseTo(f.GetId(), messages.VerbWorkerPing, &messages.PingResult{}))
		}
		return
	}
	id, generation := dispatchOf(f.GetId())
	c, ok := s.books[id]
	if !ok {
		if f.GetError() == nil && f.GetResponse().GetWorkerAbort() == nil && f.GetRequest().GetWorkerStatus() == nil {
			s.t.Fatalf("the worker says %q", describe(f))
		}
		return
	}
	if c.given || c.result != nil || f.GetError() != nil {
		c.given = c.given || f.GetError() != nil // refused
		return
	}
	if !c.here || generation != c.generation {
		s.t.Fatalf("the worker says %q, of what waits (%t) under generation %d", describe(f), !c.here, c.generation)
	}
	out := f.GetEvent().GetOutput()
	switch {
	case out != nil && int(out.GetOffset()) == len(c.taken) && (calm || s.r.IntN(8) > 0):
		from := len(c.taken)
		c.taken = append(c.taken, out.GetData()...)
		s.sound(c, from)
	case out != nil && int(out.GetOffset()) > len(c.taken) && calm:
		// It comes again.
	case f.GetResponse() != nil:
		if r := f.GetResponse().GetWorkerDispatch(); int(r.GetFinalOffset()) == len(c.taken) {
			c.result = r
			s.seen[r.GetStatus()] = true
			s.c.try(&messages.Frame{Id: f.GetId(), Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: r.GetFinalOffset(), Done: true}}})
			return
		}
	}
	if calm || s.r.IntN(3) == 0 {
		c.durable = len(c.taken)
		s.c.try(&messages.Frame{Id: f.GetId(), Body: &messages.Frame_Ack{Ack: &messages.Ack{Offset: uint32(c.durable)}}})
	}
}

// sound compares output with what was printed.
func (s *storm) sound(c *claim, from int) {
	s.mu.Lock()
	printed := c.printed
	s.mu.Unlock()
	if len(c.taken) > printed {
		s.t.Fatalf("%s: %d bytes came of %d", c.id, len(c.taken), printed)
	}
	if !bytes.Equal(c.taken[from:], outputBytes(from, len(c.taken)-from)) {
		s.t.Fatalf("%s: other output from %d on", c.id, from)
	}
}

// act does one thing of its own accord.
func (s *storm) act() {
	switch s.r.IntN(6) {
	case 0, 1: // new work
		s.seq++
		id := fmt.Sprintf("d%0*d", 1+s.r.IntN(30), s.seq)
		s.mu.Lock()
		s.books[id] = &claim{id: id, generation: 1, here: true, promised: time.Now()}
		s.mu.Unlock()
		s.ids = append(s.ids, id)
		s.send(id, 1)
	case 2: // work that this worker cannot have
		s.seq++
		s.send(fmt.Sprintf("x%d", s.seq), uint32(2+s.r.IntN(3)))
	default:
		if len(s.ids) == 0 {
			return
		}
		c := s.books[s.ids[s.r.IntN(len(s.ids))]]
		switch {
		case c.given || c.result != nil || c.starts == 0:
		case s.r.IntN(6) == 0:
			c.given = true
			s.seen["given up"] = true
			s.c.try(requestFrame("abort", messages.VerbWorkerAbort, &messages.AbortParams{DispatchId: c.id, Generation: c.generation}))
		case !c.here:
			c.generation++
			c.here, c.promised = true, time.Now()
			s.seen["adopted"] = true
			s.send(c.id, c.generation)
		default: // a copy, late or not
			s.send(c.id, c.generation-uint32(s.r.IntN(2)))
		}
	}
}

func (s *storm) send(id string, generation uint32) {
	offset := 0
	if c, ok := s.books[id]; ok {
		offset = c.durable
	}
	s.c.try(requestFrame(frameID(id, generation), messages.VerbWorkerDispatch, &messages.DispatchParams{
		DispatchId: id, Generation: generation, Seq: s.seq, Attempt: int32(1 + s.r.IntN(1000)), OutputFromOffset: uint32(offset),
	}))
}

// TestAgent_InAStorm runs random histories. No step runs without a promise for longer than its fence allows, none is
// started twice or without having been given, and the orchestrator gets every byte once and in order, however often it
// is cut off.
func TestAgent_InAStorm(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			s := newStorm(t, seed)
			var away time.Time
			s.o.refuse = func(int) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if time.Now().Before(away) {
					return errDialled
				}
				return nil
			}
			s.o.run()
			for range 6 {
				s.connect(false)
				for range s.r.IntN(12) {
					s.act()
					s.hear(time.Duration(s.r.IntN(3000))*time.Millisecond, false)
				}
				s.mu.Lock()
				if s.r.IntN(2) == 0 {
					away = time.Now().Add(time.Duration(s.r.IntN(40)) * time.Second)
				}
				s.mu.Unlock()
				_ = s.c.Close("", "")
				for time.Now().Before(away) {
					time.Sleep(100 * time.Millisecond)
					s.check()
				}
			}
			s.connect(true)
			s.hear(10*time.Minute, true)
			for _, id := range s.ids {
				c := s.books[id]
				if !c.given && (c.result == nil || int(c.result.GetFinalOffset()) != len(c.taken) || c.result.GetStatus() == OutcomeSucceeded && len(c.taken) != c.printed) {
					t.Errorf("seed %d: %s printed %d bytes, %d came, its result is %v", seed, id, c.printed, len(c.taken), c.result)
				}
			}
			if dir := s.o.agent.cfg.CacheDir; dir != "" {
				if _, files := spoolSizes(t, spoolRoot(dir)); files > 0 {
					t.Errorf("seed %d: %d files are left", seed, files)
				}
			}
			for what := range s.seen {
				seen[what] = true
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, want := range []string{
		"resumed running", "resumed ended", "waiting running", "waiting ended", "aborted running", "aborted ended", "adopted", "given up",
		OutcomeSucceeded, statusLost,
	} {
		if !seen[want] {
			t.Errorf("it never came to: %s", want)
		}
	}
}
