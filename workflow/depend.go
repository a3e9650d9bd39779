package workflow

import (
	"slices"
	"strings"
)

// dependency is one entry of a dependsOn before the name is resolved.
type dependency struct {
	owner int // the job or the step that depends
	name  string
	at    int
}

// dependsOn reads what a job or step depends on; what is "job" or "step".
func (d *decoder) dependsOn(e *entry, what string, owner int, deps []dependency) []dependency {
	v := e.value
	if v.kind == scalar && !v.null() {
		if name := d.name(e); name != "" { // one name may stand without a list
			deps = append(deps, dependency{owner, name, v.at})
		}
		return deps
	}
	if !d.is(v, list, "'dependsOn'") {
		return deps
	}
	for _, item := range v.items {
		name, at, ok := d.dependency(item, what)
		if ok {
			deps = append(deps, dependency{owner, name, at})
		}
	}
	return deps
}

// dependency reads NAME or {step: NAME, condition: {type: succeeded}}.
func (d *decoder) dependency(n *node, what string) (name string, at int, ok bool) {
	if n.kind != mapping {
		name, ok = d.text(n, "a dependency")
		return name, n.at, ok
	}
	found := false
	for i := range n.entries {
		e := &n.entries[i]
		switch e.key {
		case what:
			found = true
			at = e.value.at
			name, ok = d.text(e.value, quote(e.key))
		case "job", "step":
			found = true
			d.found.add(e.at, "a %s depends on %ss only, not on a %s", what, what, e.key)
		case "condition":
			if d.is(e.value, mapping, "'condition'") {
				d.condition(e.value)
			}
		default:
			d.unknown(e, inDependency)
		}
	}
	if !found {
		d.found.add(n.at, "a dependency needs '%s': the name of the %s", what, what)
	}
	return name, at, ok
}

func (d *decoder) condition(n *node) {
	i := slices.IndexFunc(n.entries, func(e entry) bool { return e.key == "type" })
	if i < 0 {
		d.found.add(n.at, "a condition needs a 'type': succeeded")
		return
	}
	typ := n.entries[i].value
	if typ.kind == scalar {
		switch typ.text {
		case "always", "failed", "completed", "skipped", "and", "or", "not":
			d.found.add(typ.at, "the condition '%s' is not supported by this version", typ.text)
			return // the other keys may belong to it
		}
	}
	d.word(typ, "the type of a condition", "succeeded")
	for i := range n.entries {
		if e := &n.entries[i]; e.key != "type" {
			d.unknown(e, inCondition)
		}
	}
}

// link resolves all dependencies and refuses cycles.
func (d *decoder) link() {
	jobNeeds := make([][]int, len(d.plan.Jobs))
	for _, dep := range d.jobDeps {
		if to, ok := d.find(dep, d.jobNames, "job", d.plan.Jobs[dep.owner].Name); ok {
			jobNeeds[dep.owner] = append(jobNeeds[dep.owner], to)
		}
	}
	for i := range jobNeeds {
		d.plan.Jobs[i].Needs = ascending(jobNeeds[i])
	}
	for _, dep := range d.stepDeps {
		s := &d.plan.Steps[dep.owner]
		if to, ok := d.find(dep, d.stepNames[s.Job], "step", s.Name); ok {
			s.Needs = append(s.Needs, to)
		}
	}
	for i := range d.plan.Steps {
		d.plan.Steps[i].Needs = ascending(d.plan.Steps[i].Needs)
	}
	d.cycles("job", len(d.plan.Jobs), d.jobDeps,
		func(i int) []int { return d.plan.Jobs[i].Needs }, func(i int) string { return d.plan.Jobs[i].Name })
	d.cycles("step", len(d.plan.Steps), d.stepDeps,
		func(i int) []int { return d.plan.Steps[i].Needs }, func(i int) string { return d.plan.Steps[i].Name })
}

func ascending(needs []int) []int {
	slices.Sort(needs)
	return slices.Compact(needs)
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
