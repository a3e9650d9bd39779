package workflow

import "container/heap"

// Limiter holds back steps that are ready, so that not more of them are under way at once than the plan allows: in a run,
// in a job, and of a template. It is pure and not safe for concurrent use. What it lets go goes in the order of ordinals as
// far as the limits allow. To let one go costs what the plan has of jobs and of templates with limits, however many steps
// wait.
type Limiter struct {
	plan  *Plan
	under map[limit]int      // steps under way
	held  map[line]*ordinals // those that are held back
}

// line is what steps stand in together because the same limits hold for them: a template with a limit of its own, or all
// other steps of a job.
type line struct{ job, template int }

func (l *Limiter) line(step int) line {
	s := &l.plan.Steps[step]
	if s.Controls != nil && s.Controls.Concurrency > 0 {
		return line{s.Job, step}
	}
	return line{s.Job, -1}
}

// limit is a scope that has one.
type limit struct {
	level level
	index int
}

// ordinals are a heap, the least first.
type ordinals []int

func (h ordinals) Len() int           { return len(h) }
func (h ordinals) Less(i, k int) bool { return h[i] < h[k] }
func (h ordinals) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

// Push and Pop are for container/heap.
func (h *ordinals) Push(v any) { *h = append(*h, v.(int)) }

// Pop removes the last one.
func (h *ordinals) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// NewLimiter returns the limiter of a run of which nothing is under way.
func NewLimiter(p *Plan) *Limiter {
	return &Limiter{plan: p, under: make(map[limit]int), held: make(map[line]*ordinals)}
}

// limits lists those that hold for a line, with how many they let go at once.
func (l *Limiter) limits(of line) (scopes [3]limit, most [3]int) {
	scopes = [3]limit{{inWorkflow, 0}, {inJob, of.job}, {inStep, of.template}}
	most = [3]int{l.plan.Concurrency, l.plan.Jobs[of.job].Concurrency, 0}
	if of.template >= 0 {
		most[2] = l.plan.Steps[of.template].Controls.Concurrency
	}
	return scopes, most
}

func (l *Limiter) free(of line) bool {
	scopes, most := l.limits(of)
	for i := range scopes {
		if most[i] > 0 && l.under[scopes[i]] >= most[i] {
			return false
		}
	}
	return true
}

// Hold gives a step to the limiter that is ready. Step is its place in the plan, which for an instance is its template.
func (l *Limiter) Hold(step, ordinal int) {
	of := l.line(step)
	h := l.held[of]
	if h == nil {
		h = &ordinals{}
		l.held[of] = h
	}
	heap.Push(h, ordinal)
}

// Drop takes back a step that will not run. It is false if the limiter does not hold it.
func (l *Limiter) Drop(step, ordinal int) bool {
	of := l.line(step)
	h := l.held[of]
	if h == nil {
		return false
	}
	for i, o := range *h {
		if o == ordinal {
			heap.Remove(h, i)
			l.forget(of)
			return true
		}
	}
	return false
}

func (l *Limiter) forget(of line) {
	if l.held[of].Len() == 0 {
		delete(l.held, of)
	}
}

// Next lets the step go that is next, if the limits allow one. It is under way until Done.
func (l *Limiter) Next() (ordinal int, ok bool) {
	var best line
	for of, h := range l.held {
		if (!ok || (*h)[0] < (*l.held[best])[0]) && l.free(of) {
			best, ok = of, true
		}
	}
	if !ok {
		return 0, false
	}
	ordinal = heap.Pop(l.held[best]).(int)
	l.forget(best)
	l.start(best)
	return ordinal, true
}

// Under notes that a step is under way that the limiter did not let go: one that was so before a restart.
func (l *Limiter) Under(step int) { l.start(l.line(step)) }

func (l *Limiter) start(of line) {
	scopes, _ := l.limits(of)
	for _, s := range scopes {
		l.under[s]++
	}
}

// Done notes that a step that was under way has ended.
func (l *Limiter) Done(step int) {
	scopes, _ := l.limits(l.line(step))
	for _, s := range scopes {
		if l.under[s]--; l.under[s] <= 0 {
			delete(l.under, s)
		}
	}
}

// Held counts the steps that are held back.
func (l *Limiter) Held() int {
	n := 0
	for _, h := range l.held {
		n += h.Len()
	}
	return n
}
