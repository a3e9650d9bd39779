package actors

import (
	cmplib "cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
)

// pool draws commands for a scheduler and its twin.
type pool struct {
	t        *rapid.T
	s        *schedulerState
	twin     *twin
	at       moment
	versions map[string]uint64
	steps    int
	known    []offerStep
	slots    []twinTold // that were given, used or not
	asked    *reserveSlots
	before   map[string]bool // offers before the command: whether they were assigned
}

func workerNames() []string { return []string{"a", "b", "c"} }

// anyWanted draws one of few placements, so that classes share workers.
func anyWanted(t *rapid.T) messages.Placement {
	return rapid.SampledFrom([]messages.Placement{
		{}, {Target: "a"}, {Platform: "linux"}, {Platform: "linux/arm64"}, {Labels: messages.LabelsOf(map[string]string{"gpu": "true"})},
		{Target: "b", Platform: "linux"}, {Target: "nobody"},
	}).Draw(t, "placement")
}

func (p *pool) offerOf(o int) offerStep {
	return offerStep{
		step: stepAddress("r", "j", fmt.Sprint(o)), queueID: fmt.Sprintf("r.%d.q1", o), dispatchID: firstDispatch("r", o),
		placement: anyWanted(p.t), place: uint64(rapid.IntRange(1, 5).Draw(p.t, "place")), ordinal: uint32(o),
		parked: rapid.IntRange(0, 3).Draw(p.t, "parked") == 3,
	}
}

// movesOn notes that a step has left its wait behind: it does not offer that again.
func (p *pool) movesOn(dispatchID string) {
	p.known = slices.DeleteFunc(p.known, func(o offerStep) bool { return o.dispatchID == dispatchID })
}

// draw makes the next command.
func (p *pool) draw() any {
	t := p.t
	switch rapid.IntRange(0, 14).Draw(t, "command") {
	case 0, 1, 2:
		p.steps++
		o := p.offerOf(p.steps)
		if rapid.Bool().Draw(t, "limited") {
			o.deadline = p.at.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "limit")) * time.Second)
		}
		p.known = append(p.known, o)
		return o
	case 3: // again
		if o, ok := pick(t, "offer", p.known); ok {
			return o
		}
	case 4:
		if o, ok := pick(t, "offer", p.known); ok {
			w := withdrawStep{queueID: o.queueID}
			if rapid.Bool().Draw(t, "over") {
				w.dispatchID = o.dispatchID
				p.movesOn(o.dispatchID)
			}
			return w
		}
	case 5, 6: // the end of a lease
		if s, ok := pick(t, "slot", p.slots); ok {
			r := releaseSlot{dispatchID: s.dispatchID, from: leaseAddress(s.dispatchID + "/1"), generation: uint32(rapid.IntRange(0, 2).Draw(t, "generation"))}
			p.movesOn(s.dispatchID)
			switch rapid.IntRange(0, 4).Draw(t, "refused") {
			case 3:
				r.refusedBy = s.worker
			case 4: // a claim's, which may be of a dispatch that a restored store knows nothing of
				r.from, r.generation = workerAddress(s.worker), claimedSlot
			}
			return r
		}
	case 7: // a choice that is not taken
		if s, ok := pick(t, "slot", p.slots); ok {
			return releaseSlot{dispatchID: s.dispatchID, ticket: s.ticket, stale: rapid.Bool().Draw(t, "stale")}
		}
	case 8:
		if p.asked != nil && rapid.IntRange(0, 2).Draw(t, "again") == 2 {
			return *p.asked
		}
		q := reserveSlots{run: runAddress("r"), question: 1}
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			p.steps++
			o := p.offerOf(p.steps)
			q.items = append(q.items, reserveItem{p.steps, o.dispatchID, o.placement})
		}
		p.asked = &q
		return q
	case 9:
		if o, ok := pick(t, "offer", p.known); ok {
			p.movesOn(o.dispatchID)
			p.slots = append(p.slots, twinTold{dispatchID: o.dispatchID})
			return holdSlot{o.dispatchID, uint32(rapid.IntRange(1, 2).Draw(t, "generation")), rapid.SampledFrom(workerNames()).Draw(t, "worker")}
		}
	case 10, 11:
		name := rapid.SampledFrom(workerNames()).Draw(t, "worker")
		if rapid.IntRange(0, 9).Draw(t, "old news") < 9 {
			p.versions[name]++
		}
		var claimed []string
		for _, s := range p.slots {
			if rapid.IntRange(0, 9).Draw(t, "claimed") == 9 && !slices.Contains(claimed, s.dispatchID) {
				claimed = append(claimed, s.dispatchID)
			}
		}
		k := workerKnown{
			claimed: claimed,
			worker:  workerAddress(name), name: name, instance: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "instance"), version: p.versions[name],
			labels:   messages.LabelsOf(map[string]string{"gpu": rapid.SampledFrom([]string{"true", "false"}).Draw(t, "gpu")}),
			platform: "linux", arch: rapid.SampledFrom([]string{"amd64", "arm64"}).Draw(t, "arch"),
			capacity: rapid.IntRange(0, 3).Draw(t, "capacity"),
			status:   rapid.SampledFrom([]messages.WorkerStatus{messages.WorkerIdle, messages.WorkerIdle, messages.WorkerDisconnected, messages.WorkerDraining}).Draw(t, "status"),
		}
		k.left = k.status == messages.WorkerDisconnected && rapid.Bool().Draw(t, "left")
		return k
	case 13: // of a run's steps, some of them perhaps again
		c := offerSteps{run: runAddress("r"), number: 1}
		for range rapid.IntRange(1, 4).Draw(t, "items") {
			o, again := pick(t, "offer", p.known)
			if !again || rapid.Bool().Draw(t, "another") {
				p.steps++
				o = p.offerOf(p.steps)
				o.parked = false
				p.known = append(p.known, o)
			}
			c.items = append(c.items, o)
		}
		slices.SortFunc(c.items, func(a, b offerStep) int {
			return cmplib.Or(cmplib.Compare(a.place, b.place), cmplib.Compare(a.ordinal, b.ordinal))
		})
		return c
	case 12:
		if rapid.Bool().Draw(t, "gone") {
			return workerGone{rapid.SampledFrom(workerNames()).Draw(t, "worker")}
		}
		return workerStirred{rapid.SampledFrom(workerNames()).Draw(t, "worker")}
	}
	p.at.now = p.at.now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
	return deadlineElapsed{}
}

// TestScheduler_DecidesLikeItsTwin compares each decision with that of a scheduler that works everything out anew, and
// holds that nothing waits beside a free match, that the oldest goes first, and that no slot is given twice.
func TestScheduler_DecidesLikeItsTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, schedulerStory)
}

func schedulerStory(t *rapid.T) {
	p := &pool{
		t: t, s: newScheduler(1, false), twin: newTwin(1), at: walkNow(), versions: make(map[string]uint64),
	}
	for range rapid.IntRange(1, 60).Draw(t, "commands") {
		cmd := p.draw()
		p.at.sequence++
		if rapid.Bool().Draw(t, "time goes by") {
			p.at.now = p.at.now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
		}
		p.before = make(map[string]bool)
		for id, o := range p.s.offers {
			p.before[id] = o.assigned
		}
		_, d := stepScheduler(p.s, cmd, p.at)
		p.twin.told = nil
		dead := p.twin.take(cmd, p.at.now)
		p.compare(cmd, d, dead)
		p.invariants(cmd, d)
	}
}

// compare holds what was told, and what is known, against the twin.
func (p *pool) compare(cmd any, d decision, dead []string) {
	p.t.Helper()
	var told []twinTold
	var gotDead []string
	for _, e := range d.effects {
		e, ok := e.(tell)
		if !ok {
			continue
		}
		switch m := e.msg.(type) {
		case assignStep:
			told = append(told, twinTold{m.dispatchID, m.choice.worker, m.choice.ticket})
		case slotsReserved:
			for _, g := range m.grants {
				if g.ok {
					told = append(told, twinTold{firstDispatch("r", g.ordinal), g.choice.worker, g.choice.ticket})
				} else if g.why == "" {
					p.t.Fatalf("%T: a refusal without a reason", cmd)
				}
			}
		case queueDeadline:
			gotDead = append(gotDead, m.queueID)
		}
	}
	if diff := cmp.Diff(p.twin.told, told, cmp.AllowUnexported(twinTold{})); diff != "" {
		p.t.Fatalf("%T gives (-twin +scheduler):\n%s", cmd, diff)
	}
	p.slots = append(p.slots, told...)
	slices.Sort(gotDead)
	if diff := cmp.Diff(dead, gotDead); diff != "" {
		p.t.Fatalf("%T tells deadlines (-twin +scheduler):\n%s", cmd, diff)
	}
	taken := make(map[string]twinSlot)
	for id, s := range p.s.taken {
		taken[id] = twinSlot{
			worker: s.worker, queueID: s.queueID, ticket: s.choice.ticket, generation: s.generation, chosen: s.choice.worker, version: s.choice.version,
		}
		if s.generation == claimedSlot {
			taken[id] = twinSlot{worker: s.worker, claim: true}
		}
	}
	if diff := cmp.Diff(p.twin.taken, taken, cmp.AllowUnexported(twinSlot{})); diff != "" {
		p.t.Fatalf("%T leaves taken (-twin +scheduler):\n%s", cmd, diff)
	}
	var waiting, parked, assigned, gotWaiting, gotParked, gotAssigned []string
	for _, o := range p.twin.offers {
		switch {
		case o.assigned:
			assigned = append(assigned, o.queueID)
		case o.parked:
			parked = append(parked, o.queueID)
		default:
			waiting = append(waiting, o.queueID)
		}
	}
	for _, o := range p.s.offers {
		switch {
		case o.assigned:
			gotAssigned = append(gotAssigned, o.queueID)
		case slices.Contains(o.class.parked, o):
			gotParked = append(gotParked, o.queueID)
		default:
			gotWaiting = append(gotWaiting, o.queueID)
		}
	}
	for _, list := range [][2][]string{{waiting, gotWaiting}, {parked, gotParked}, {assigned, gotAssigned}} {
		slices.Sort(list[0])
		slices.Sort(list[1])
		if diff := cmp.Diff(list[0], list[1]); diff != "" {
			p.t.Fatalf("%T leaves in line, parked or assigned (-twin +scheduler):\n%s", cmd, diff)
		}
	}
	if p.s.waiting != len(waiting)+len(parked) || p.s.parked != len(parked) {
		p.t.Fatalf("%T: it counts %d waiting and %d parked, there are %d and %d", cmd, p.s.waiting, p.s.parked, len(waiting)+len(parked), len(parked))
	}
}

// invariants hold whatever the twin says.
func (p *pool) invariants(cmd any, d decision) {
	p.t.Helper()
	s := p.s
	for _, c := range s.classes {
		if len(c.line) == 0 && len(c.parked) == 0 {
			p.t.Fatalf("%T: a class that nobody waits in stays: %s", cmd, c.placement.Requirement())
		}
		for _, w := range s.workers {
			if len(c.line) > 0 && w.free() > 0 && s.fit(c, w) {
				p.t.Fatalf("%T: %s waits beside %s, which is free", cmd, c.line[0].queueID, w.name)
			}
		}
		if len(c.line) > 0 && strings.HasSuffix(s.whyOf(c), "a free slot") {
			p.t.Fatalf("%T: %s waits for no reason", cmd, c.line[0].queueID)
		}
	}
	counted := make(map[string]int)
	for _, sl := range s.taken {
		counted[sl.worker]++
	}
	if s.parked > 0 && len(s.paused) == 0 {
		p.t.Fatalf("%T: %d steps wait for the next turn of workers that are not there", cmd, s.parked)
	}
	for name, w := range s.workers {
		if w.taken != counted[name] {
			p.t.Fatalf("%T: %s counts %d slots taken, there are %d", cmd, name, w.taken, counted[name])
		}
	}
	for _, e := range d.effects {
		e, ok := e.(tell)
		if !ok {
			continue
		}
		a, ok := e.msg.(assignStep)
		if !ok || p.before[a.queueID] { // what is said again was decided before
			continue
		}
		if w := s.workers[a.choice.worker]; w.taken > w.capacity {
			p.t.Fatalf("%T: %s has %d of %d slots taken and gets another step", cmd, w.name, w.taken, w.capacity)
		}
		given := s.offers[a.queueID]
		for _, c := range s.classes {
			if len(c.line) > 0 && given != nil && c.line[0].before(given) && s.fit(c, s.workers[a.choice.worker]) {
				p.t.Fatalf("%T: %s was served before %s, which is older", cmd, a.queueID, c.line[0].queueID)
			}
		}
	}
}

// know tells a scheduler of a worker.
func know(s *schedulerState, name string, capacity int, status messages.WorkerStatus, labels ...string) {
	m := make(map[string]string)
	for i := 0; i < len(labels); i += 2 {
		m[labels[i]] = labels[i+1]
	}
	_, _ = stepScheduler(s, workerKnown{
		worker: workerAddress(name), name: name, instance: name + "-1", version: 1, labels: messages.LabelsOf(m), platform: "linux", arch: "amd64",
		capacity: capacity, status: status,
	}, walkNow())
}

func TestScheduler_SaysWhyAStepWaits(t *testing.T) {
	t.Parallel()
	gpu := messages.Placement{Labels: messages.LabelsOf(map[string]string{"gpu": "true"})}
	tests := []struct {
		name      string
		pool      func(s *schedulerState)
		placement messages.Placement
		want      string
	}{
		{"an empty pool", func(*schedulerState) {}, gpu, "no worker is connected"},
		{"only disconnected workers", func(s *schedulerState) {
			know(s, "a", 1, messages.WorkerDisconnected)
		}, gpu, "no worker is connected"},
		{"no match, and the nearest miss", func(s *schedulerState) {
			know(s, "a", 1, messages.WorkerIdle, "gpu", "false")
			know(s, "b", 1, messages.WorkerIdle)
		}, messages.Placement{Labels: gpu.Labels, Platform: "linux/arm64"},
			"none of 2 connected matches; nearest is a, which has gpu=false instead of gpu=true and is linux/amd64 instead of linux/arm64"},
		{"all that match are busy", func(s *schedulerState) {
			know(s, "a", 0, messages.WorkerIdle, "gpu", "true")
			know(s, "b", 0, messages.WorkerIdle, "gpu", "true")
		}, gpu, "2 matching, all busy"},
		{"the one that matches drains", func(s *schedulerState) {
			know(s, "a", 1, messages.WorkerDraining, "gpu", "true")
			know(s, "b", 1, messages.WorkerIdle)
		}, gpu, "a is draining"},
		{"the target is gone", func(s *schedulerState) {
			know(s, "a", 1, messages.WorkerDisconnected)
			know(s, "b", 1, messages.WorkerIdle)
		}, messages.Placement{Target: "a"}, "a is disconnected"},
		{"several reasons", func(s *schedulerState) {
			know(s, "a", 0, messages.WorkerIdle, "gpu", "true")
			for _, name := range []string{"b", "c", "d", "e", "f"} {
				know(s, name, 1, messages.WorkerPaused, "gpu", "true")
			}
		}, gpu, "1 matching, all busy, b is paused, c is paused, d is paused, 2 more likewise"},
		{"a worker that refused a moment ago", func(s *schedulerState) {
			know(s, "a", 1, messages.WorkerIdle, "gpu", "true")
			_, _ = stepScheduler(s, offerStep{step: stepAddress("r", "j", "x"), queueID: "q", dispatchID: "d", placement: gpu}, walkNow())
			_, _ = stepScheduler(s, releaseSlot{dispatchID: "d", refusedBy: "a", from: leaseAddress("d/1")}, walkNow())
		}, gpu, "1 refused a moment ago"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScheduler(1, false)
			tt.pool(s)
			a := newAnswer()
			_, d := stepScheduler(s, askWhy{map[string]messages.Placement{"k": tt.placement}, a}, walkNow())
			for _, e := range d.effects {
				if r, ok := e.(respond); ok {
					r.to.give(r.result, r.err)
				}
			}
			got := (<-a.ch).result.(map[string]string)["k"]
			if want := "waiting for a worker matching " + tt.placement.Requirement() + ": " + tt.want; got != want {
				t.Errorf("why it waits:\n got %s\nwant %s", got, want)
			}
			if len(s.classes) > 0 {
				t.Error("the question left a class behind")
			}
		})
	}
}

func TestScheduler_HandsOutNothingOnceItIsClosed(t *testing.T) {
	t.Parallel()
	s := newScheduler(1, false)
	know(s, "a", 2, messages.WorkerIdle)
	at := walkNow()
	given := func(d decision) (n int) {
		for _, e := range d.effects {
			if e, ok := e.(tell); ok {
				switch m := e.msg.(type) {
				case assignStep:
					n++
				case slotsReserved:
					for _, g := range m.grants {
						if g.ok {
							n++
						} else if g.why != "waiting for a worker matching target 'a': the orchestrator stops" {
							t.Errorf("it waits because %q", g.why)
						}
					}
				}
			}
		}
		return n
	}
	target := messages.Placement{Target: "a"}
	offer := func(id string) offerStep {
		return offerStep{step: stepAddress("r", "j", id), queueID: id, dispatchID: "d" + id, placement: target, place: 1}
	}
	ask := reserveSlots{run: runAddress("r"), question: 1, items: []reserveItem{{0, "d0", target}}}
	if _, d := stepScheduler(s, offer("1"), at); given(d) != 1 {
		t.Fatal("nothing is handed out before")
	}
	for _, cmd := range []any{closePool{}, offer("2"), ask, workerStirred{"a"}, releaseSlot{dispatchID: "d1"}, deadlineElapsed{}, offer("3")} {
		if _, d := stepScheduler(s, cmd, at); given(d) != 0 {
			t.Errorf("%T hands something out", cmd)
		}
	}
}

// After a restore from a backup a worker may claim a dispatch of which the store knows nothing, and whose id a waiting step
// has for its next one.
func TestScheduler_TheEndOfAClaimLeavesAStepThatWaitsForTheSameDispatch(t *testing.T) {
	t.Parallel()
	at := walkNow()
	offer := offerStep{step: stepAddress("r", "j", "s"), queueID: "q", dispatchID: "d", placement: messages.Placement{Target: "a"}, place: 1}
	claims := workerKnown{
		worker: workerAddress("a"), name: "a", instance: "i", version: 1, platform: "linux", arch: "amd64", capacity: 1,
		status: messages.WorkerIdle, claimed: []string{"d"},
	}
	for name, before := range map[string][]any{"it waited before": {offer, claims}, "it waits since": {claims, offer}} {
		s := newScheduler(1, false)
		for _, cmd := range before {
			if _, d := stepScheduler(s, cmd, at); slices.ContainsFunc(d.effects, isAssignment) {
				t.Errorf("%s: %T hands it out, and the worker has no free slot", name, cmd)
			}
		}
		_, d := stepScheduler(s, releaseSlot{dispatchID: "d", from: workerAddress("a"), generation: claimedSlot}, at)
		if !slices.ContainsFunc(d.effects, isAssignment) {
			t.Errorf("%s: the slot is free, and it is not handed out", name)
		}
		_, _ = stepScheduler(s, releaseSlot{dispatchID: "d", from: workerAddress("a"), generation: claimedSlot}, at) // said twice
		if sl := s.taken["d"]; sl == nil || s.workers["a"].taken != 1 {
			t.Errorf("%s: the slot is %v, and the worker has %d taken", name, sl, s.workers["a"].taken)
		}
	}
}

func isAssignment(e effect) bool {
	t, ok := e.(tell)
	if !ok {
		return false
	}
	_, ok = t.msg.(assignStep)
	return ok
}

func TestScheduler_LoopbackTakesUnplacedStepsAndNoOthers(t *testing.T) {
	t.Parallel()
	for _, loopback := range []bool{false, true} {
		for _, placed := range []bool{false, true} {
			s := newScheduler(1, loopback)
			know(s, "a", 1, messages.WorkerIdle)
			if loopback {
				_, _ = stepScheduler(s, workerKnown{
					worker: workerAddress(Loopback), name: Loopback, version: 1, platform: "linux", arch: "amd64", capacity: 4, loopback: true, status: messages.WorkerIdle,
				}, walkNow())
			}
			var p messages.Placement
			want := map[bool]string{false: "a", true: Loopback}[loopback]
			if placed {
				p.Platform, want = "linux", "a"
			}
			_, d := stepScheduler(s, offerStep{step: stepAddress("r", "j", "x"), queueID: "q", dispatchID: "d", placement: p}, walkNow())
			got := ""
			for _, e := range d.effects {
				if e, ok := e.(tell); ok {
					if a, ok := e.msg.(assignStep); ok {
						got = a.choice.worker
					}
				}
			}
			if got != want {
				t.Errorf("loopback %v, placed %v: it goes to %q, want %q", loopback, placed, got, want)
			}
		}
	}
}
