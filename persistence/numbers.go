package persistence

// numbersKept is how many streams the committer knows the last number of, at least, of those that were used last.
const numbersKept = 4 << 10

// numbers are the last event numbers of streams, for those used lately: two generations of maps, of which the older is
// dropped when the younger is full.
type numbers struct {
	kept       int
	young, old map[string]uint64
}

func newNumbers() numbers {
	return numbers{kept: numbersKept, young: map[string]uint64{}, old: map[string]uint64{}}
}

// age forgets those that were used longest ago when there are too many. As with records, never within a batch.
func (n *numbers) age() {
	if len(n.young) >= n.kept {
		n.young, n.old = n.old, n.young
		clear(n.young)
	}
}

func (n *numbers) get(stream string) (last uint64, known bool) {
	if last, known = n.young[stream]; known {
		return last, true
	}
	last, known = n.old[stream]
	return last, known
}

func (n *numbers) set(stream string, last uint64) { n.young[stream] = last }
