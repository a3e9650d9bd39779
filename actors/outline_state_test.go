package actors

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swampd/swampd/messages"
)

// outline is a decision in a few words each: what is written on which condition, which events, and what follows.
func outline(d decision) []string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if d.log != nil {
		say("log of %s, %d chunks", d.log.dispatch, len(d.log.chunks))
	}
	for _, w := range d.writes {
		say("%s %s", w.kind, w.state)
	}
	for _, q := range d.requires {
		say("if %s is at %d", q.kind, q.version)
	}
	for _, e := range d.events {
		say("event %s", e.GetKind())
	}
	for _, e := range d.effects {
		switch e := e.(type) {
		case tell:
			say("tell %s %s", e.to.kind, commandWord(e.msg))
		case transmit:
			say("send %s", frameKind(e.frame))
		case respond:
			switch {
			case e.err != nil:
				say("answer: %s", messages.CodeOf(e.err))
			default:
				say("answer %s", commandWord(e.result))
			}
		case hangUp:
			say("hang up: %s", e.code)
		case arm:
			say("arm %s", e.name)
		case bear:
			say("bear %s", e.child.kind)
		case tellChildren:
			say("tell children %s", commandWord(e.msg))
		default:
			say("%s", commandWord(e))
		}
	}
	return slices.DeleteFunc(list, func(s string) bool { return strings.HasPrefix(s, "disarm") })
}

// owing is what a state owes, in words.
func owing(owed []obligation) []string {
	var list []string
	for _, o := range owed {
		list = append(list, fmt.Sprintf("owes %s %s", o.to.kind, commandWord(o.msg)))
	}
	return list
}

func commandWord(msg any) string { return strings.TrimPrefix(fmt.Sprintf("%T", msg), "actors.") }

// cell is one cell of a machine's table.
type cell[S any] struct {
	name  string
	state S
	cmd   any
	// want is the outline of the decision and what is owed then, separated by semicolons.
	want string
}

// checkCells compares cells with what a machine decides.
func checkCells[S any](t *testing.T, u *under[S], cells []cell[S]) {
	t.Helper()
	for _, tt := range cells {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			after, d := u.step(private(tt.state), tt.cmd, walkNow())
			got := append(outline(d), owing(u.resume(after, walkNow()))...)
			var want []string
			for _, w := range strings.Split(tt.want, "; ") {
				if w != "" {
					want = append(want, w)
				}
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decides (-want +got):\n%s", diff)
			}
		})
	}
}
