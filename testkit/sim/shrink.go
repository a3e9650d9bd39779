package sim

import "slices"

// Shrink makes a scenario shorter, and simpler, as long as it still fails. It asks fails at most so many times. What a
// machine does by chance follows from the seed and from what it is asked, so the rest goes on as before wherever it can.
func Shrink(s Scenario, tries int, fails func(Scenario) bool) Scenario {
	k := &shrinker{best: s, left: tries, fails: fails}
	for changed := true; changed && k.left > 0; {
		changed = k.dropOps()
		changed = k.simplifyOps() || changed
		changed = k.dropSteps() || changed
		changed = k.dropMachines() || changed
	}
	return k.best
}

type shrinker struct {
	best  Scenario
	left  int
	fails func(Scenario) bool
}

// try takes a simpler scenario if it fails too.
func (k *shrinker) try(s Scenario) bool {
	if k.left <= 0 {
		return false
	}
	k.left--
	if !k.fails(s) {
		return false
	}
	k.best = s
	return true
}

// dropOps drops operations: half of them, then quarters, down to single ones.
func (k *shrinker) dropOps() bool {
	changed := false
	for size := max(len(k.best.Ops)/2, 1); ; size /= 2 {
		for at := 0; at < len(k.best.Ops); {
			s := k.best
			end := min(at+size, len(s.Ops))
			s.Ops = slices.Concat(s.Ops[:at], s.Ops[end:])
			if k.try(s) {
				changed = true
			} else {
				at = end
			}
		}
		if size <= 1 {
			return changed
		}
	}
}

// simplifyOps takes what is special off each operation.
func (k *shrinker) simplifyOps() bool {
	changed := false
	for i := range k.best.Ops {
		for _, simpler := range []func(Op) Op{
			func(o Op) Op { o.Mood = Mood{}; return o },
			func(o Op) Op { o.Times = min(o.Times, 1); return o },
			func(o Op) Op { o.Again = 0; return o },
			func(o Op) Op { o.Force = false; return o },
			func(o Op) Op { o.Step = ""; return o },
		} {
			s := k.best
			s.Ops = slices.Clone(s.Ops)
			if s.Ops[i] = simpler(s.Ops[i]); s.Ops[i] != k.best.Ops[i] {
				changed = k.try(s) || changed
			}
		}
	}
	return changed
}

// dropSteps drops jobs and steps of the workflows.
func (k *shrinker) dropSteps() bool {
	changed := false
	for i := range k.best.Ops {
		flow := k.best.Ops[i].Flow
		if flow == nil {
			continue
		}
		for _, j := range flow.Jobs {
			if k.dropStep(i, j.Name, "") {
				changed = true
				continue
			}
			for _, step := range j.Steps {
				changed = k.dropStep(i, j.Name, step.Name) || changed
			}
		}
	}
	return changed
}

func (k *shrinker) dropStep(op int, job, step string) bool {
	old := k.best.Ops[op].Flow
	flow, ok := old.without(job, step)
	if !ok {
		return false
	}
	s := k.best
	s.Ops = slices.Clone(s.Ops)
	for i := range s.Ops { // the same run is submitted with the same workflow
		if s.Ops[i].Flow == old {
			s.Ops[i].Flow = &flow
		}
	}
	return k.try(s)
}

// dropMachines drops machines that nothing is left for.
func (k *shrinker) dropMachines() bool {
	changed := false
	for i := len(k.best.Machines) - 1; i >= 0 && len(k.best.Machines) > 1; i-- {
		name := k.best.Machines[i].Name
		if slices.ContainsFunc(k.best.Ops, func(o Op) bool { return o.Worker == name }) {
			continue
		}
		s := k.best
		s.Machines = slices.Delete(slices.Clone(s.Machines), i, i+1)
		changed = k.try(s) || changed
	}
	return changed
}
