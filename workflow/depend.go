package workflow

import (
	"maps"
	"slices"
	"strings"
)

// dependency is one entry of a dependsOn before the name is resolved.
type dependency struct {
	owner int // the job or the step that depends
	name  string
	at    int
	when  Condition
}

// dependsOn reads what a job or step depends on; what is "job" or "step".
func (d *decoder) dependsOn(e *entry, what string, owner int, deps []dependency) []dependency {
	v := e.value
	if v.kind == scalar && !v.null() {
		if name := d.name(e); name != "" { // one name may stand without a list
			deps = append(deps, dependency{owner, name, v.at, OnSucceeded})
		}
		return deps
	}
	if !d.is(v, list, "'dependsOn'") {
		return deps
	}
	for _, item := range v.items {
		dep, ok := d.dependency(item, what)
		if ok {
			dep.owner = owner
			deps = append(deps, dep)
		}
	}
	return deps
}

// dependency reads NAME or {step: NAME, condition: {type: succeeded}}.
func (d *decoder) dependency(n *node, what string) (dep dependency, ok bool) {
	dep = dependency{at: n.at, when: OnSucceeded}
	if n.kind != mapping {
		dep.name, ok = d.text(n, "a dependency")
		return dep, ok
	}
	found := false
	for i := range n.entries {
		e := &n.entries[i]
		switch e.key {
		case what:
			found = true
			dep.at = e.value.at
			dep.name, ok = d.text(e.value, quote(e.key))
		case "job", "step":
			found = true
			d.found.add(e.at, "a %s depends on %ss only, not on a %s", what, what, e.key)
		case "condition":
			dep.when = d.conditionOf(e.value)
		default:
			d.unknown(e, inDependency)
		}
	}
	if !found {
		d.found.add(n.at, "a dependency needs '%s': the name of the %s", what, what)
	}
	return dep, ok
}

// conditionOf reads the condition of a dependency and refuses one that no end meets. Where it is wrong it is reported and
// Always.
func (d *decoder) conditionOf(n *node) Condition {
	c, ok := d.condition(n)
	switch {
	case !ok:
		return Always
	case c == 0:
		d.found.add(n.at, "this condition never holds: what has it would never run")
		return Always
	case c != OnSucceeded:
		d.uses(featureConditions, n.at)
	}
	return c
}

// condition reads a word, or {type: WORD}, or what joins other conditions.
func (d *decoder) condition(n *node) (Condition, bool) {
	if n.kind == scalar && !n.null() {
		return d.conditionWord(n, "a condition", false)
	}
	if !d.is(n, mapping, "'condition'") {
		return 0, false
	}
	i := slices.IndexFunc(n.entries, func(e entry) bool { return e.key == "type" })
	if i < 0 {
		d.found.add(n.at, "a condition needs a 'type': %s", oneOf(conditionWords(true)))
		return 0, false
	}
	typ := n.entries[i].value
	operand := ""
	if typ.kind == scalar {
		operand = map[string]string{"and": "conditions", "or": "conditions", "not": "condition"}[typ.text]
	}
	c, ok := d.conditionWord(typ, "the type of a condition", true)
	var inner *node
	for i := range n.entries {
		switch e := &n.entries[i]; {
		case e.key == "type":
		case e.key == operand:
			inner = e.value
		case operand == "" && (e.key == "conditions" || e.key == "condition"):
			if ok {
				d.found.add(e.at, "'%s' belongs to a condition of another type, not to '%s'", e.key, typ.text)
			}
		default:
			d.unknown(e, inCondition)
		}
	}
	switch {
	case operand == "":
		return c, ok
	case inner == nil:
		d.found.add(n.at, "a condition of type '%s' needs '%s'", typ.text, operand)
		return 0, false
	case operand == "condition":
		c, ok = d.condition(inner)
		return ^c & Always, ok
	default:
		return d.joined(inner, typ.text)
	}
}

// joined reads the conditions of 'and' and 'or'.
func (d *decoder) joined(n *node, word string) (Condition, bool) {
	if !d.is(n, list, "'conditions'") {
		return 0, false
	}
	if len(n.items) < 2 {
		d.found.add(n.at, "'%s' joins at least two conditions", word)
		return 0, false
	}
	both, either, ok := Always, Condition(0), true
	for _, item := range n.items {
		c, good := d.condition(item)
		ok = ok && good
		both, either = both&c, either|c
	}
	if word == "and" {
		return both, ok
	}
	return either, ok
}

// conditionWord reads the name of a condition. The words that join others are 0.
func (d *decoder) conditionWord(n *node, what string, joins bool) (Condition, bool) {
	word, ok := d.word(n, what, conditionWords(joins)...)
	switch word {
	case "succeeded":
		return OnSucceeded, ok
	case "failed":
		return OnFailed, ok
	case "completed":
		return OnCompleted, ok
	case "skipped":
		return OnSkipped, ok
	case "always":
		return Always, ok
	default:
		return 0, ok
	}
}

func conditionWords(joins bool) []string {
	words := []string{"succeeded", "failed", "completed", "skipped", "always"}
	if joins {
		words = append(words, "and", "or", "not")
	}
	return words
}

// link resolves all dependencies and refuses cycles.
func (d *decoder) link() {
	for _, dep := range d.jobDeps {
		j := &d.plan.Jobs[dep.owner]
		if to, ok := d.find(dep, d.jobNames, "job", j.Name); ok {
			j.Needs, j.When = need(j.Needs, j.When, to, dep)
		}
	}
	for i := range d.plan.Jobs {
		j := &d.plan.Jobs[i]
		if j.Needs, j.When = ascending(j.Needs, j.When); slices.Contains(j.When, 0) {
			d.contradicts(d.jobDeps, i, d.plan.Jobs[j.Needs[slices.Index(j.When, 0)]].Name)
		}
	}
	for _, dep := range d.stepDeps {
		s := &d.plan.Steps[dep.owner]
		if to, ok := d.find(dep, d.stepNames[s.Job], "step", s.Name); ok {
			s.Needs, s.When = need(s.Needs, s.When, to, dep)
		}
	}
	for i := range d.plan.Steps {
		s := &d.plan.Steps[i]
		if s.Needs, s.When = ascending(s.Needs, s.When); slices.Contains(s.When, 0) {
			d.contradicts(d.stepDeps, i, d.plan.Steps[s.Needs[slices.Index(s.When, 0)]].Name)
		}
	}
	d.cycles("job", len(d.plan.Jobs), d.jobDeps,
		func(i int) []int { return d.plan.Jobs[i].Needs }, func(i int) string { return d.plan.Jobs[i].Name })
	d.cycles("step", len(d.plan.Steps), d.stepDeps,
		func(i int) []int { return d.plan.Steps[i].Needs }, func(i int) string { return d.plan.Steps[i].Name })
}

// contradicts reports conditions on one need of which each may hold, but not all of them.
func (d *decoder) contradicts(deps []dependency, owner int, name string) {
	at := 0
	for _, dep := range deps {
		if dep.owner == owner && dep.name == name {
			at = dep.at
		}
	}
	d.found.add(at, "the conditions on %s never hold together: what has them would never run", quote(name))
}

// need adds a need with its condition. The conditions are nil while all of them are OnSucceeded.
func need(needs []int, conditions []Condition, to int, dep dependency) ([]int, []Condition) {
	needs = append(needs, to)
	if conditions == nil && dep.when != OnSucceeded {
		conditions = make([]Condition, len(needs)-1, len(needs))
		for i := range conditions {
			conditions[i] = OnSucceeded
		}
	}
	if conditions != nil {
		conditions = append(conditions, dep.when)
	}
	return needs, conditions
}

// ascending puts needs in order, each once: where one is named more than once, all of its conditions have to hold.
func ascending(needs []int, conditions []Condition) ([]int, []Condition) {
	if conditions == nil {
		slices.Sort(needs)
		return slices.Compact(needs), nil
	}
	together := make(map[int]Condition, len(needs))
	for k, n := range needs {
		c, ok := together[n]
		if !ok {
			c = Always
		}
		together[n] = c & conditions[k]
	}
	needs = slices.Sorted(maps.Keys(together))
	conditions = conditions[:0]
	for _, n := range needs {
		conditions = append(conditions, together[n])
	}
	return needs, conditions
}

// find resolves one dependency. From is the name of the one that depends.
func (d *decoder) find(dep dependency, known names, what, from string) (int, bool) {
	to, ok := known[dep.name]
	if ok && to != dep.owner {
		return to, true
	}
	if d.found.drop() {
		return 0, false
	}
	self := what + " " + quote(from)
	if ok {
		d.found.add(dep.at, "%s depends on itself", self)
		return 0, false
	}
	if what == "step" {
		for job, steps := range d.stepNames {
			if _, ok := steps[dep.name]; ok {
				d.found.add(dep.at, "%s depends on %s, which is a step of job %s: steps depend on steps of their own job, jobs on jobs",
					self, quote(dep.name), quote(d.plan.Jobs[job].Name))
				return 0, false
			}
		}
	}
	hint := ""
	if near, ok := nearest(dep.name, d.namesBeside(dep, what)); ok {
		hint = ": did you mean " + quote(near) + "?"
	}
	d.found.add(dep.at, "%s depends on %s, but there is no such %s%s", self, quote(dep.name), what, hint)
	return 0, false
}

// namesBeside are those that a dependency could have meant, in file order.
func (d *decoder) namesBeside(dep dependency, what string) []string {
	var list []string
	if what == "job" {
		for i := range d.plan.Jobs {
			if i != dep.owner {
				list = append(list, d.plan.Jobs[i].Name)
			}
		}
		return list
	}
	for _, i := range d.plan.Jobs[d.plan.Steps[dep.owner].Job].Steps {
		if i != dep.owner {
			list = append(list, d.plan.Steps[i].Name)
		}
	}
	return list
}

// cycles reports what can never start because it waits for itself in the end.
func (d *decoder) cycles(what string, n int, deps []dependency, needs func(int) []int, name func(int) string) {
	if len(deps) == 0 {
		return
	}
	left := make([]int, n) // needs that are not known to end
	users := make([][]int, n)
	ready := make([]int, 0, n)
	for i := range n {
		left[i] = len(needs(i))
		for _, to := range needs(i) {
			users[to] = append(users[to], i)
		}
		if left[i] == 0 {
			ready = append(ready, i)
		}
	}
	for k := 0; k < len(ready); k++ {
		for _, i := range users[ready[k]] {
			if left[i]--; left[i] == 0 {
				ready = append(ready, i)
			}
		}
	}
	// Whoever is left needs somebody who is left, so that going from need to need must come to a cycle.
	visit := make([]int, n)
	for start := range n {
		if left[start] == 0 || visit[start] != 0 {
			continue
		}
		i := start
		for visit[i] == 0 {
			visit[i] = start + 1
			i = firstLeft(needs(i), left)
		}
		if visit[i] == start+1 {
			d.cycle(what, i, deps, left, needs, name)
		}
	}
}

// firstLeft is the first need that is left; whoever is left has one.
func firstLeft(needs, left []int) int {
	return needs[slices.IndexFunc(needs, func(i int) bool { return left[i] > 0 })]
}

// cycle reports the cycle that goes through i, beginning with its first in the file.
func (d *decoder) cycle(what string, i int, deps []dependency, left []int, needs func(int) []int, name func(int) string) {
	const shown = 20
	around := []int{i}
	for k := firstLeft(needs(i), left); k != i; k = firstLeft(needs(k), left) {
		around = append(around, k)
	}
	first := slices.Index(around, slices.Min(around))
	around = append(around[first:], around[:first]...)
	var path strings.Builder
	for k, m := range around {
		if k < shown-1 || k == len(around)-1 {
			path.WriteString(quote(name(m)) + " -> ")
		} else if k == shown-1 {
			path.WriteString("… -> ")
		}
	}
	path.WriteString(quote(name(around[0])))
	from, to := around[0], around[1]
	at := 0
	for _, dep := range deps {
		if dep.owner == from && dep.name == name(to) {
			at = dep.at
			break
		}
	}
	d.found.add(at, "%ss %s and %s depend on each other: %s", what, quote(name(from)), quote(name(around[len(around)-1])), path.String())
}
