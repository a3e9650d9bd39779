package workflow

import (
	"github.com/swampd/swampd/messages"
)

// instance is one of a template's, as Progress knows it.
type instance struct {
	template int
	status   messages.StepStatus // empty until it has ended
}

// template is an expanded one. Its instances are numbered from first on.
type template struct {
	first, count, left int
	outcome            outcome // of the instances that have ended, together
}

// NextInstance is the ordinal that the first instance of the next expansion gets: one above all steps and instances that
// there are. A run remembers its expansions in their order, so that ResumeProgress numbers them again in the same way.
func (g *Progress) NextInstance() int { return len(g.ended) + len(g.instances) }

// Expand notes that a template that is ready has count instances, from NextInstance on. All of them are ready; what holds
// some of them back is a limit. Without any there is nothing to do: the template is skipped, and what depends on its
// success goes on. A template that is expanded or has ended is not expanded again.
func (g *Progress) Expand(step, count int) Change {
	var c Change
	if g.ended[step] != "" || g.templates[step] != nil {
		return c
	}
	if count == 0 {
		g.noteStep(step, messages.StepSkipped, passed)
		c.TemplatesEnded = append(c.TemplatesEnded, step)
		g.settle(&c)
		return c
	}
	g.expand(step, count)
	g.ready(step, &c)
	return c
}

func (g *Progress) expand(step, count int) {
	if g.templates == nil {
		g.templates = make(map[int]*template)
	}
	g.templates[step] = &template{first: g.NextInstance(), count: count, left: count}
	for range count {
		g.instances = append(g.instances, instance{template: step})
	}
}

// Template is the step of the plan that an ordinal belongs to: its own one, or that of the instance.
func (g *Progress) Template(ordinal int) int {
	if k := ordinal - len(g.ended); k >= 0 {
		return g.instances[k].template
	}
	return ordinal
}

// noteInstance keeps the end of an instance; the template ends with the last one.
func (g *Progress) noteInstance(ordinal int, s messages.StepStatus, o outcome, c *Change) bool {
	i := &g.instances[ordinal-len(g.ended)]
	if i.status != "" || !s.Ended() {
		return false
	}
	i.status = s
	t := g.templates[i.template]
	t.outcome |= o
	t.left--
	if t.left == 0 {
		g.noteStep(i.template, t.status(), t.outcome)
		c.TemplatesEnded = append(c.TemplatesEnded, i.template)
	}
	return true
}

// status is what the ends of the instances come to: failed if one failed, else cancelled if one was cancelled, else
// succeeded if one succeeded, else skipped.
func (t *template) status() messages.StepStatus {
	switch o := Condition(t.outcome &^ passed); {
	case o&OnFailed != 0:
		return messages.StepFailed
	case o&onCancelled != 0:
		return messages.StepCancelled
	case o&OnSucceeded != 0:
		return messages.StepSucceeded
	default:
		return messages.StepSkipped
	}
}
