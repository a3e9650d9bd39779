package actors

import (
	"crypto/subtle"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// Kinds of actors. Those with a record have the name of its kind.
const (
	kindRoot      = "root"
	kindScheduler = "scheduler"
	kindRouter    = "router"
	kindWorker    = "worker"
	kindToken     = "token"
	kindRun       = "run"
	kindStep      = "step"
	kindLease     = "lease"
	kindSession   = "session"
	// kindData is no actor, but has places that a test may want to break.
	kindData = "data"
)

// Kinds of records that have no actor of their own.
const (
	recordSource  = "source"
	recordPending = "pending"
	recordOutput  = "output"
	recordBinding = "binding"
)

// An address names an actor, whether it lives or not.
type address struct {
	kind string
	id   string
}

// schedulerAddress() is the one scheduler.
func schedulerAddress() address { return address{kindScheduler, kindScheduler} }

func runAddress(run string) address     { return address{kindRun, escape(run)} }
func workerAddress(name string) address { return address{kindWorker, escape(name)} }
func tokenAddress(name string) address  { return address{kindToken, escape(name)} }

func stepAddress(run, job, step string) address {
	return address{kindStep, escape(run) + "/" + escape(job) + "/" + escape(step)}
}

// leaseAddress takes a lease's record id, dispatch/generation.
func leaseAddress(id string) address {
	dispatch, generation, _ := strings.Cut(id, "/")
	return address{kindLease, escape(dispatch) + "/" + escape(generation)}
}

// escape percent-encodes what would be mistaken for structure in a PID.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	plain := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	if i == len(s) && s != "" {
		return s
	}
	b := []byte(s[:i])
	for ; i < len(s); i++ {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// unescape undoes escape.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	digit := func(c byte) byte {
		if c >= 'A' {
			return c - 'A' + 10
		}
		return c - '0'
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			b = append(b, digit(s[i+1])<<4|digit(s[i+2]))
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

// moment is what a transition may know of the world.
type moment struct {
	now time.Time
	// sequence is above every one before it: the order in line.
	sequence uint64
	epoch    uint64
	// awakeSince is when the process last found that it had stood still; zero: never.
	awakeSince time.Time
}

// class is the class of a commit when space is short.
type class int

const (
	classEnding class = iota
	classData
	classNewWork
)

// A write puts one version of a record into the commit.
type write struct {
	kind     string
	id       string
	replaces uint64 // 0: a birth
	state    string
	ended    bool
	body     proto.Message
}

// A require makes the commit conditional: the live record has that version.
type require struct {
	kind    string
	id      string
	version uint64
}

// logWrite is output that has to be durable before the commit.
type logWrite struct {
	dispatch string
	chunks   []*messages.OutputChunk
}

// A decision is what a transition answers with: what must be durable, and what follows once it is.
type decision struct {
	class    class
	log      *logWrite
	writes   []write
	erases   []erase
	requires []require
	// alive is a lease that has to be active; empty: none.
	alive  string
	stream string
	events []*messages.RunEvent
	// newStream: the stream begins with these events.
	newStream bool
	// drained is the cause of a drain that begins with the commit, to be counted.
	drained string
	effects []effect
}

func (d *decision) durable() bool {
	return d.log != nil || len(d.writes) > 0 || len(d.erases) > 0 || len(d.events) > 0
}

func (d *decision) then(e ...effect) { d.effects = append(d.effects, e...) }

// An effect is something to do after the commit. The set is closed.
type effect interface{ effect() }

// tell sends a message to another actor.
type tell struct {
	to  address
	msg any
}

// respond answers a question from the edge.
type respond struct {
	to     *answer
	result any
	err    error
}

// transmit queues a frame on a socket; a socket that is gone takes nothing.
type transmit struct {
	session uint64
	frame   *messages.Frame
}

// hangUp closes a socket after what is queued on it.
type hangUp struct {
	session uint64
	code    messages.Code
	text    string
}

// probe asks a socket's peer for a sign of life, and tells the actor itself the outcome as a probeAnswered.
type probe struct {
	session uint64
	within  time.Duration
}

// arm sets the actor's timer of that name, in place of what it was set to; cmd comes back to the actor then.
type arm struct {
	name  string
	after time.Duration
	cmd   any
}

// disarm stops the timer of that name.
type disarm struct{ name string }

// again sends a message to the actor itself, behind what has arrived.
type again struct{ cmd any }

// bear gives a child a message, and starts it for that if it does not live: with its first state, where it is borne.
type bear struct {
	child address
	msg   any
	// plan spares a child that has to read its record the way to it.
	plan *workflow.Plan
}

// rest ends an actor that has nothing to do before somebody speaks to it, unless somebody has.
type rest struct{}

// tellChildren sends a message to every child.
type tellChildren struct{ msg any }

// closeLog lets go of what is open for a dispatch's output.
type closeLog struct{ dispatch string }

// leave ends the actor: its router stops routing to it.
type leave struct{}

func (tell) effect()         {}
func (respond) effect()      {}
func (transmit) effect()     {}
func (hangUp) effect()       {}
func (probe) effect()        {}
func (arm) effect()          {}
func (disarm) effect()       {}
func (again) effect()        {}
func (bear) effect()         {}
func (tellChildren) effect() {}
func (closeLog) effect()     {}
func (leave) effect()        {}
func (rest) effect()         {}

// An obligation is something that another actor must still be told. It is derived from the state alone, told at once,
// and told again until the state no longer owes it (rules P1 and P3).
type obligation struct {
	// id tells obligations of one actor apart; the same id is the same obligation.
	id  string
	to  address
	msg any
	// every is the time to the first repetition, which then doubles; 0 is 100 ms.
	every time.Duration
	// told: an effect of the same decision has told it already, with more.
	told bool
}

// confirms tells whether a message only confirms that something was noted. No actor is started for one: it would do again
// what its record owes, and be confirmed again, for ever.
func confirms(msg any) bool {
	switch msg.(type) {
	case leaseUp, leaseNoted, slotNoted, offerNoted, offersNoted, awaitNoted, endNoted, workerNoted, tokenGoneNoted, stepRests, stepUp:
		return true
	default:
		return false
	}
}

// commitRefused comes back to a machine whose commit was refused for reasons of its own: a condition that does not
// hold, or no space. Nothing was written, and the state is the one before.
type commitRefused struct {
	cmd     any
	noSpace bool
	// effects are those that the refused decision would have had.
	effects []effect
}

// poisoned stands in for a command that panicked every time.
type poisoned struct{ cmd any }

// schedulerStarted says that there is a new scheduler, which knows nothing.
type schedulerStarted struct{ epoch uint64 }

// answer carries a result to one asker at the edge. A second one is dropped, so that a question that was repeated can
// be answered twice.
type answer struct{ ch chan answered }

type answered struct {
	result any
	err    error
}

func newAnswer() *answer { return &answer{ch: make(chan answered, 1)} }

func (a *answer) give(result any, err error) {
	if a == nil {
		return
	}
	select {
	case a.ch <- answered{result, err}:
	default:
	}
}

// equalDigest compares in constant time.
func equalDigest(a, b []byte) bool { return len(a) > 0 && subtle.ConstantTimeCompare(a, b) == 1 }
