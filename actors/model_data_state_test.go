package actors

import "github.com/swampd/swampd/messages"

// modelWrite is a write of a step that the data plane is at: the step's lease has been asked to make it known, and the data
// follows. Neither needs the worker's socket.
type modelWrite struct {
	x      *execution
	lease  string
	answer *answer
}

// put begins a write of a step.
func (w *world) put(x *execution) {
	m := &modelWrite{x, x.frame, newAnswer()}
	w.writes = append(w.writes, m)
	w.tracef("%s begins to write", m.lease)
	w.tell(leaseAddress(m.lease), markWrites{m.lease, m.answer})
}

// commitData goes on with the oldest write whose lease has answered, at any time after that: the data is committed on condition
// that the lease is active then.
func (w *world) commitData() {
	for i, m := range w.writes {
		select {
		case got := <-m.answer.ch:
			w.writes = append(w.writes[:i:i], w.writes[i+1:]...)
			if got.err != nil {
				w.tracef("%s may not write: %v", m.lease, got.err)
				return
			}
			l := &messages.LeaseRecord{}
			w.store.read(kindLease, m.lease, l)
			if messages.LeaseState(l.GetState()) != messages.LeaseActive {
				w.tracef("%s is not active any more: its write is void", m.lease)
				return
			}
			if !l.GetHasWrites() {
				w.fatalf("%s was told that its mark is durable, and it is not", m.lease)
			}
			w.tracef("%s has written", m.lease)
			w.wrote[m.x.key] = m.x.id
			return
		default:
		}
	}
}
