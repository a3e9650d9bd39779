package persistence

// numbersKept is how many streams the committer knows the last number of, at least, before it forgets those that were
// used longest ago. A batch may append to fewer streams than that, so what it has numbered is never forgotten within it.
const numbersKept = 16 << 10

// numbers are the last event numbers of streams, for those used lately: two generations of maps, of which the older is
// dropped when the younger is full.
type numbers struct {
	young, old map[string]uint64
}

func newNumbers() numbers { return numbers{young: map[string]uint64{}, old: map[string]uint64{}} }

func (n *numbers) get(stream string) (last uint64, known bool) {
	if last, known = n.young[stream]; known {
		return last, true
	}
	last, known = n.old[stream]
	return last, known
}

func (n *numbers) set(stream string, last uint64) {
	if len(n.young) >= numbersKept {
		n.young, n.old = n.old, n.young
		clear(n.young)
	}
	n.young[stream] = last
}
