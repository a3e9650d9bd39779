package actors

import (
	"github.com/swampd/swampd/messages"
)

// markWrites asks that the lease has made durable that its dispatch writes. Only then may the data plane write for it: who
// loses the worker later must know that the step may have written.
type markWrites struct {
	lease  string
	answer *answer
}

func (m markWrites) identity() string { return m.lease }

// marked is the answer: the mark is durable.
type marked struct{}

// markWrites makes the mark durable, once, and answers after that. Whoever asks meanwhile stands in the mailbox behind the
// one commit. The state has the mark only once the commit has been made, so that a refused one marks nothing.
func (l leaseState) markWrites(c markWrites) (leaseState, decision) {
	if l.unknown != "" { // it never was, or is long gone
		return l, decision{effects: []effect{respond{c.answer, nil, errLeaseOver(l.id())}, leave{}}}
	}
	if l.state != messages.LeaseActive {
		_, d := l.mayLeave() // the question may have started the actor
		d.effects = append([]effect{respond{c.answer, nil, errLeaseOver(l.id())}}, d.effects...)
		return l, d
	}
	d := decision{class: classData, effects: []effect{respond{c.answer, marked{}, nil}}}
	if !l.hasWrites {
		l.hasWrites = true
		l.version++
		d.writes = append(d.writes, l.write())
	}
	return l, d
}

// errLeaseOver refuses a write whose lease is not active any more.
func errLeaseOver(lease string) error {
	return messages.Faultf(messages.CodeEnded, "dispatch %s is over: nothing can be written for it any more", dispatchOf(lease))
}

// errNoSpace refuses a write for want of space.
func errNoSpace() error {
	return messages.Faultf(messages.CodeNoSpace, "the orchestrator's store is short of space: free some and write again")
}
