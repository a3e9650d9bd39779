package actors

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/swampd/swampd/messages"
)

// under is a machine as the walks and properties below look at it. States are made anew for each use, since some machines
// change in place.
type under[S any] struct {
	step    func(S, any, moment) (S, decision)
	version func(S) uint64
	// record is the body that the state would write.
	record func(S) proto.Message
	// reload is the state as the journal has it: from its record, where there is one.
	reload func(S) S
	resume func(S, moment) []obligation
	// start is what an actor does that begins with a reloaded state.
	start func(S, moment) []effect
	kind  string
	ended func(S) bool
	// soft are fields of the record that may be ahead of it: what they say can be found out again.
	soft []protoreflect.Name
	// excused are messages that may be lost with the actor, each with the reason why nothing comes of that.
	excused map[reflect.Type]string
}

// message is the type of a message, as a key of excused.
func message[M any]() reflect.Type { return reflect.TypeFor[M]() }

func walkNow() moment {
	return moment{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), sequence: 900, epoch: 3}
}

// differ compares states or decisions field by field.
func differ(a, b any) string {
	if reflect.DeepEqual(a, b) { // the usual case, and fast
		return ""
	}
	return cmp.Diff(a, b, cmp.Exporter(func(reflect.Type) bool { return true }), protocmp.Transform(),
		cmp.Comparer(func(a, b *answer) bool { return (a == nil) == (b == nil) }))
}

// check holds one transition to what holds of all: it is pure, terminal absorbs, a record rises by one and names the
// version before, what is not written is not changed, and nothing that somebody has to see is lost with the actor.
func (u *under[S]) check(t interface {
	Helper()
	Errorf(string, ...any)
}, name string, state func() S, cmd func() any, at moment,
) S {
	t.Helper()
	before := state()
	version, ended := u.version(before), u.ended(before)
	old := u.record(before)
	after, d := u.step(before, cmd(), at)
	again, d2 := u.step(state(), cmd(), at)
	if diff := differ(d, d2); diff != "" {
		t.Errorf("%s: the same input gives another decision:\n%s", name, diff)
	}
	if diff := differ(after, again); diff != "" {
		t.Errorf("%s: the same input gives another state:\n%s", name, diff)
	}
	own := 0
	for _, w := range d.writes {
		if w.state == "" || w.body == nil {
			t.Errorf("%s: writes %s %s without state or body", name, w.kind, w.id)
		}
		if w.kind != u.kind {
			continue
		}
		own++
		if w.replaces != version {
			t.Errorf("%s: the write names version %d, the one before is %d", name, w.replaces, version)
		}
		if diff := cmp.Diff(u.record(after), w.body, protocmp.Transform()); diff != "" {
			t.Errorf("%s: what is written is not the state (-state +written):\n%s", name, diff)
		}
	}
	switch {
	case own > 1:
		t.Errorf("%s: writes its record %d times", name, own)
	case len(d.erases) == 0 && u.version(after) != version+uint64(own):
		t.Errorf("%s: version %d became %d with %d writes", name, version, u.version(after), own)
	case own == 0 && len(d.erases) == 0:
		ignore := protocmp.IgnoreFields(old, u.soft...)
		if diff := cmp.Diff(old, u.record(after), protocmp.Transform(), ignore); diff != "" {
			t.Errorf("%s: the record changed and was not written:\n%s", name, diff)
		}
	}
	if ended && (len(d.writes) > 0 || len(d.events) > 0 || d.log != nil || !u.ended(after)) {
		t.Errorf("%s: something that has ended decides %d writes and %d events", name, len(d.writes), len(d.events))
	}
	if len(d.writes) > 1000 || len(d.events) > 1000 {
		t.Errorf("%s: a commit of %d writes and %d events", name, len(d.writes), len(d.events))
	}
	if len(d.erases) == 0 {
		u.checkCrash(t, name, after, d, at)
	}
	return after
}

// checkCrash is rule P1: if the actor dies between the commit and its effects, what it was to tell is told all the same,
// by what it owes or does when it starts anew.
func (u *under[S]) checkCrash(t interface {
	Helper()
	Errorf(string, ...any)
}, name string, after S, d decision, at moment,
) {
	t.Helper()
	if u.version(after) == 0 {
		return // nothing is known of it
	}
	reloaded := u.reload(after)
	told := make(map[string]bool)
	for _, o := range u.resume(reloaded, at) {
		told[key(o.to, o.msg)] = true
	}
	for _, e := range u.start(reloaded, at) {
		if e, ok := e.(tell); ok {
			told[key(e.to, e.msg)] = true
		}
	}
	for _, e := range d.effects {
		e, ok := e.(tell)
		if !ok || told[key(e.to, e.msg)] {
			continue
		}
		if u.excused[reflect.TypeOf(e.msg)] == "" {
			t.Errorf("%s: a panic before the effects loses %T to %v", name, e.msg, e.to)
		}
	}
	// What is owed without the crash is owed after it too.
	for _, o := range u.resume(after, at) {
		if !told[key(o.to, o.msg)] && u.excused[reflect.TypeOf(o.msg)] == "" {
			t.Errorf("%s: a panic makes it forget that it owes %q to %v", name, o.id, o.to)
		}
	}
}

func key(to address, msg any) string { return fmt.Sprintf("%v %T", to, msg) }

// walk takes every command in every state.
func walk[S any](t *testing.T, u *under[S], states map[string]func() S, commands map[string]func() any) {
	t.Helper()
	for sn, state := range states {
		for cn, cmd := range commands {
			u.check(t, cn+" while "+sn, state, cmd, walkNow())
		}
	}
	if len(states) < 5 || len(commands) < 5 {
		t.Errorf("%d states and %d commands are no walk", len(states), len(commands))
	}
}

func stepUnder() *under[stepState] {
	return &under[stepState]{
		kind: kindStep, step: stepStep, version: func(s stepState) uint64 { return s.version },
		record: func(s stepState) proto.Message { return s.record() },
		reload: func(s stepState) stepState {
			return stepFrom(foundStep{
				record: s.record(), version: s.version, plan: samplePlan(), limit: time.Minute, grace: time.Second,
			})
		},
		resume: resumeStep, start: func(stepState, moment) []effect { return nil },
		ended: func(s stepState) bool { return s.status.Ended() },
		excused: map[reflect.Type]string{
			message[leaseNoted]():   "the lease tells its end again until it is noted",
			message[releaseSlot]():  "the step offers itself again, which voids the choice, or says at its end that it will never take it",
			message[withdrawStep](): "the scheduler tells the deadline again until the step has withdrawn",
			message[awaitWorker]():  "the lease tells its end again, and the step asks again",
			message[stepRests]():    "it stays, offers itself again, and rests then",
			message[stepUp]():       "the run goes on without it after a while",
		},
	}
}

func leaseUnder() *under[leaseState] {
	return &under[leaseState]{
		kind: kindLease, step: stepLease, version: func(l leaseState) uint64 { return l.version },
		record: func(l leaseState) proto.Message { return l.write().body },
		reload: func(l leaseState) leaseState {
			r := leaseFrom(l.write().body.(*messages.LeaseRecord), l.version, "w", &samplePlan().Steps[0])
			r.grace = time.Second
			return r
		},
		resume: resumeLease, start: func(l leaseState, _ moment) []effect { return l.found().effects },
		ended: func(l leaseState) bool { return l.state.Ended() },
		// The log says how much output is durable, and the loss clock begins anew.
		soft: []protoreflect.Name{"offset", "logged", "first_lost_at", "worker_version"},
		excused: map[reflect.Type]string{
			message[leaseUp]():        "the step asks again",
			message[claimSettled]():   "the worker's actor asks again",
			message[claimLease]():     "the worker's actor asks again",
			message[leaseHere]():      "the worker asks again when it starts, and the lease introduces itself when it does",
			message[cancelDispatch](): "of a lease that is over: the worker kills what is acknowledged as over when it speaks of it next",
		},
	}
}

func workerUnder() *under[workerState] {
	return &under[workerState]{
		kind: kindWorker, step: stepWorker, version: func(w workerState) uint64 { return w.version },
		record: func(w workerState) proto.Message { return w.write().body },
		reload: func(w workerState) workerState {
			return workerFrom(w.name, w.write().body.(*messages.WorkerRecord), w.version, w.timing)
		},
		resume: resumeWorker, start: func(w workerState, at moment) []effect { return startWorker(w, at).effects },
		ended: func(workerState) bool { return false },
		soft:  []protoreflect.Name{"last_seen_at"},
		excused: map[reflect.Type]string{
			message[leaseLost]():       "the lease is told again whenever it speaks, or its grace passes",
			message[leaseTurnedAway](): "the lease asks again until its dispatch is accepted, and the new actor sends it",
			message[leaseNamed]():      "the lease is told when it introduces itself to the new actor",
			message[leaseSocketLost](): "a lease that introduces itself to a worker that is gone is told",
			message[workerStirred]():   "news that the next report brings again",
			message[workerGone]():      "a disconnected worker gets nothing; the next actor of it says so again",
			message[tokenGoneNoted]():  "the token asks again until it is noted",
			message[awaitNoted]():      "the step asks again",
			message[workerBack]():      "the step waits for one grace at most",
			message[workerKnown]():     "told by what is owed",
			message[releaseSlot]():     "the claim is asked about again, and settled again",
		},
	}
}

func tokenUnder() *under[tokenState] {
	return &under[tokenState]{
		kind: kindToken, step: func(t tokenState, cmd any, at moment) (tokenState, decision) { return stepToken(t, []any{cmd}, at) },
		version: func(t tokenState) uint64 { return t.version },
		record:  func(t tokenState) proto.Message { return t.write().body },
		reload: func(t tokenState) tokenState {
			var bindings []*messages.BindingRecord
			for machine, worker := range t.machines {
				bindings = append(bindings, &messages.BindingRecord{Token: t.name, Generation: t.generation, MachineId: machine, Worker: worker})
			}
			return tokenFrom(t.name, t.write().body.(*messages.TokenRecord), t.version, bindings)
		},
		resume: resumeToken, start: func(t tokenState, at moment) []effect { return t.timers(at) },
		ended: func(tokenState) bool { return false }, // its name can be given again
		excused: map[reflect.Type]string{
			message[redeemed]():     "the machine tries again when its enrollment is not answered",
			message[enrollWorker](): "the machine tries again when its enrollment is not answered",
		},
	}
}

func TestStep_EveryCommandInEveryState(t *testing.T) {
	t.Parallel()
	walk(t, stepUnder(), stepStates(), stepCommands())
}

func TestLease_EveryCommandInEveryState(t *testing.T) {
	t.Parallel()
	walk(t, leaseUnder(), leaseStates(), leaseCommands())
}

func TestWorker_EveryCommandInEveryState(t *testing.T) {
	t.Parallel()
	walk(t, workerUnder(), workerStates(), workerCommands())
}

func TestToken_EveryCommandInEveryState(t *testing.T) {
	t.Parallel()
	walk(t, tokenUnder(), tokenStates(), tokenCommands())
}
