package worker

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFifo_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q fifo[int]
		var want []int
		n := 0
		for range rapid.IntRange(0, 500).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "step") < 6 {
				n++
				q.push(n)
				want = append(want, n)
			} else {
				next, there := q.peek()
				got, ok := q.pop()
				if ok != (len(want) > 0) || there != ok || got != next || ok && got != want[0] {
					t.Fatalf("took %d, %t, want %v", got, ok, want)
				}
				want = want[min(1, len(want)):]
			}
			if q.len() != len(want) || len(q.items) > 2*len(want)+70 {
				t.Fatalf("holds %d in %d, want %d", q.len(), len(q.items), len(want))
			}
		}
	})
}
