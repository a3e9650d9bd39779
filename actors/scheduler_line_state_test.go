package actors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLine_IsASortedList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l line
		var list []*offer
		for i := range rapid.IntRange(1, 80).Draw(t, "moves") {
			switch {
			case len(list) > 0 && rapid.IntRange(0, 2).Draw(t, "move") == 0: // anyone leaves
				k := rapid.IntRange(0, len(list)-1).Draw(t, "who")
				l.remove(list[k])
				l.remove(list[k]) // and twice is once
				list = slices.Delete(list, k, k+1)
			default:
				o := &offer{index: -1, offerStep: offerStep{
					queueID: fmt.Sprint(i), place: uint64(rapid.IntRange(0, 4).Draw(t, "place")), ordinal: uint32(rapid.IntRange(0, 2).Draw(t, "ordinal")),
				}}
				l.push(o)
				list = append(list, o)
			}
			slices.SortFunc(list, func(a, b *offer) int {
				return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.ordinal, b.ordinal), strings.Compare(a.queueID, b.queueID))
			})
			if len(l) != len(list) || len(list) > 0 && l[0] != list[0] {
				t.Fatalf("the line has %d, the list %d; the first is not the first", len(l), len(list))
			}
			for i, o := range l {
				if o.index != i {
					t.Fatalf("the one at %d believes to stand at %d", i, o.index)
				}
			}
		}
		for _, want := range list {
			if got := l[0]; got != want {
				t.Fatalf("%s leaves before %s", got.queueID, want.queueID)
			}
			l.remove(l[0])
		}
	})
}

func TestDeadlines_FallDueInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h deadlines
		var list []time.Time
		take := func() {
			slices.SortFunc(list, time.Time.Compare)
			if got := h.pop().at; !got.Equal(list[0]) {
				t.Fatalf("%s falls due before %s", got, list[0])
			}
			list = list[1:]
		}
		for range rapid.IntRange(1, 80).Draw(t, "moves") {
			switch rapid.IntRange(0, 4).Draw(t, "move") {
			case 0:
				if len(list) > 0 {
					take()
				}
			case 1:
				limit := sampleTime(rapid.IntRange(0, 40).Draw(t, "limit"))
				h.keep(func(d due) bool { return d.at.After(limit) })
				list = slices.DeleteFunc(list, func(at time.Time) bool { return !at.After(limit) })
			default:
				at := sampleTime(rapid.IntRange(0, 50).Draw(t, "at"))
				h.push(due{at, nil})
				list = append(list, at)
			}
			if len(h) != len(list) {
				t.Fatalf("%d deadlines, want %d", len(h), len(list))
			}
		}
		for len(list) > 0 {
			take()
		}
	})
}
