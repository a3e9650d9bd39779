package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/swampd/swampd/actors"
)

// trace is a fingerprint of all that has happened, with its times. It does not depend on the order in which things of one
// instant are noted: those do not touch each other.
type trace struct {
	sum   uint64
	notes []note
}

// note is a line of the log, written only for somebody who reads it.
type note struct {
	at    time.Duration
	point actors.Point
	text  string
}

func (t *trace) add(what uint64, p actors.Point) {
	at := since()
	t.sum += mix(what ^ mix(uint64(at)))
	t.notes = append(t.notes, note{at: at, point: p})
}

// say notes something that is no point of an actor.
func (t *trace) say(format string, args ...any) {
	at, text := since(), fmt.Sprintf(format, args...)
	t.sum += mix(fold(fnvOffset, text) ^ mix(uint64(at)))
	t.notes = append(t.notes, note{at: at, text: text})
}

// String is what has happened, in its order.
func (t *trace) String() string {
	var b strings.Builder
	for _, n := range t.notes {
		if n.text == "" {
			n.text = fmt.Sprintf("%-9s %-9s %-28s %s", n.point.Stage, n.point.Kind, n.point.ID, n.point.Command)
		}
		fmt.Fprintf(&b, "%14s %s\n", n.at, n.text)
	}
	return b.String()
}
