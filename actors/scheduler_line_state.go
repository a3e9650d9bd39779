package actors

import "time"

// line is the waiting steps of one class, the oldest first: a binary heap that knows where each stands.
type line []*offer

func (l *line) push(o *offer) {
	o.index = len(*l)
	*l = append(*l, o)
	l.up(o.index)
}

func (l *line) remove(o *offer) {
	i := o.index
	if i < 0 {
		return
	}
	last := len(*l) - 1
	if i != last {
		l.swap(i, last)
	}
	(*l)[last] = nil
	*l = (*l)[:last]
	if i != last {
		l.down(i)
		l.up(i)
	}
	o.index = -1
}

func (l *line) swap(i, j int) {
	s := *l
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (l *line) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*l)[i].before((*l)[parent]) {
			return
		}
		l.swap(i, parent)
		i = parent
	}
}

func (l *line) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(*l) && (*l)[child].before((*l)[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		l.swap(i, least)
		i = least
	}
}

// due is a deadline of a step in line.
type due struct {
	at    time.Time
	offer *offer
}

// deadlines is a heap of what falls due, the earliest first. Steps that left the line leave theirs behind, to be dropped
// when it comes up.
type deadlines []due

func (h *deadlines) push(d due) {
	*h = append(*h, d)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].at.Before(s[parent].at) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *deadlines) pop() due {
	s := *h
	first := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s[last] = due{}
	s = s[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(s) && s[child].at.Before(s[least].at) {
				least = child
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return first
}

// keep drops the deadlines for which fn is false.
func (h *deadlines) keep(fn func(due) bool) {
	old := *h
	*h = (*h)[:0:0]
	for _, d := range old {
		if fn(d) {
			h.push(d)
		}
	}
}
