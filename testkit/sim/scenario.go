package sim

import (
	"fmt"
	"strings"
	"time"
)

// A Scenario is all that happens in one simulation, apart from what machines decide by chance, which follows from the seed.
type Scenario struct {
	Seed         uint64
	Grace        time.Duration
	QueueTimeout time.Duration
	// Loopback is the capacity of the orchestrator's own worker; 0: there is none.
	Loopback int
	// Keep is how long ended runs are kept, and workers that are away; 0: as long as the scenario lasts.
	Keep     time.Duration
	Machines []Machine
	Ops      []Op
}

// A Machine may become a worker, or become one only once the faults are over. Its name is its worker's.
type Machine struct {
	Name     string
	Labels   map[string]string
	Platform string // os/arch
	Capacity int
	// Forgets: it kills its steps when it has lost its connection, and comes back with nothing. The others go on, as long as
	// their fence lets them.
	Forgets bool
	// Pool: it shares its token with all others of the kind, and nobody asks for it by name.
	Pool bool
	// Real: the agent of the package worker runs on it, and no script of one.
	Real bool
	// Token is how long its tokens are valid; 0: a day.
	Token time.Duration
}

// A Mood is how often in a hundred dispatches a worker does something else than to run the step.
type Mood struct {
	Busy, CannotStart int // it refuses
	Fail              int // the step fails
	Hang              int // the step does not end before the faults are over
	DropBefore        int // it loses its connection with the dispatch in hand
	DropAfter         int // the same once it has accepted
	Die               int // its process dies after it has accepted
	Deaf              int // it does not do what a polite cancel asks for
}

// Kind is the kind of an operation.
type Kind string

// The operations.
const (
	OpSubmit   Kind = "submit"   // a client submits a run
	OpRepeat   Kind = "repeat"   // the same run again, as a client does that got no answer
	OpConflict Kind = "conflict" // another workflow under the same run id
	OpCancel   Kind = "cancel"   // a client cancels a run, or a step

	OpStart  Kind = "start"  // a worker's process starts
	OpKill   Kind = "kill"   // it dies
	OpLeave  Kind = "leave"  // it drains by itself
	OpDrain  Kind = "drain"  // a client has it drained
	OpPause  Kind = "pause"  // a client pauses it, for a while or until it is resumed
	OpResume Kind = "resume" // a client takes a drain or pause back
	OpRevoke Kind = "revoke" // a client revokes its token

	OpCut  Kind = "cut"  // its connection breaks
	OpHalf Kind = "half" // its connection breaks, and neither end is told
	OpLate Kind = "late" // its frames take their time for a while

	OpGarbage Kind = "garbage" // it says what makes no sense

	OpPanic   Kind = "panic"    // an actor panics
	OpCrash   Kind = "crash"    // the orchestrator dies, and comes back after a while
	OpStop    Kind = "stop"     // the orchestrator stops in an orderly way, and comes back after a while
	OpDisk    Kind = "disk"     // a commit fails, which ends the process
	OpNoSpace Kind = "no space" // the disk is full for a while
	OpSlow    Kind = "slow"     // commits take their time for a while
	OpStall   Kind = "stall"    // the orchestrator stands still for a while, and its workers do not
)

// An Op is one operation. Which fields count follows from its kind.
type Op struct {
	At     time.Duration
	Kind   Kind
	Run    string
	Flow   *Flow
	Step   string
	Force  bool
	Worker string
	Mood   Mood
	// For is how long it lasts, or how long the orchestrator is down.
	For time.Duration
	// Actor and Stage are a kind of actor and a stage of [actors.Point]; empty is any. N counts the points there from the
	// operation on, and Times is how often it happens from the Nth on.
	Actor, Stage string
	N, Times     int
	// Disk is when the commit fails: before it is applied, or after.
	Disk string
	// Again is after how many batches the next boot dies too; 0: it does not.
	Again int
	// Late is how long a frame takes, in either direction.
	Late time.Duration
	// Level is how full the disk is: 1 refuses new work, 2 output too, 3 everything.
	Level int
}

// String is the operation as a line of a list.
func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%10s %s", o.At.Round(time.Millisecond), o.Kind)
	add := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	if o.Run != "" {
		add("%s", o.Run)
	}
	if o.Step != "" {
		add("step %s", o.Step)
	}
	if o.Worker != "" {
		add("%s", o.Worker)
	}
	if o.Force {
		add("by force")
	}
	if o.N > 0 {
		add("at %s of %s, number %d", or(o.Stage, "any point"), or(o.Actor, "any actor"), o.N)
	}
	if o.Disk != "" {
		add("%s it is applied", o.Disk)
	}
	if o.Times > 1 {
		add("and %d times more", o.Times-1)
	}
	if o.Late > 0 {
		add("by %s", o.Late.Round(time.Millisecond))
	}
	if o.Level > 0 {
		add("level %d", o.Level)
	}
	if o.For > 0 {
		add("for %s", o.For.Round(time.Millisecond))
	}
	if o.Again > 0 {
		add("and again in the boot, after %d commits", o.Again)
	}
	if o.Mood != (Mood{}) {
		add("%s", o.Mood)
	}
	if o.Flow != nil {
		add("%s", o.Flow)
	}
	return b.String()
}

// String names what is out of the ordinary.
func (m Mood) String() string {
	var parts []string
	add := func(name string, percent int) {
		if percent > 0 {
			parts = append(parts, fmt.Sprintf("%s %d%%", name, percent))
		}
	}
	add("busy", m.Busy)
	add("cannot start", m.CannotStart)
	add("fails", m.Fail)
	add("hangs", m.Hang)
	add("drops before", m.DropBefore)
	add("drops after", m.DropAfter)
	add("dies", m.Die)
	add("deaf", m.Deaf)
	return "(" + strings.Join(parts, ", ") + ")"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// String is the scenario as a list.
func (s Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: grace %s, queue timeout %s, loopback %d", s.Seed, s.Grace, s.QueueTimeout, s.Loopback)
	if s.Keep > 0 {
		fmt.Fprintf(&b, ", what is over is kept for %s", s.Keep.Round(time.Second))
	}
	b.WriteByte('\n')
	for _, m := range s.Machines {
		fmt.Fprintf(&b, "%10s %s: %v %s, %d slots", "", m.Name, m.Labels, m.Platform, m.Capacity)
		if m.Forgets {
			b.WriteString(", keeps nothing over a lost connection")
		}
		if m.Real {
			b.WriteString(", the real agent")
		}
		if m.Pool {
			b.WriteString(", of the pool")
		}
		if m.Token > 0 {
			fmt.Fprintf(&b, ", tokens for %s", m.Token.Round(time.Second))
		}
		b.WriteByte('\n')
	}
	for _, o := range s.Ops {
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	return b.String()
}
