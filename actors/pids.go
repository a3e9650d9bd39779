package actors

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/swampd/swampd/messages"
)

// nearPIDs is how many PIDs are proposed in place of one that is not there.
const nearPIDs = 3

// findPID finds the actor that somebody means: by its PID, with or without the root's name before it, or by the end of one,
// where only one ends so. lives tells whether it takes memory: one that rests does not.
func (sys *System) findPID(pid string) (found string, lives bool, err error) {
	pid = strings.Trim(pid, "/")
	root := sys.root.GetId()
	for _, id := range []string{pid, root + "/" + pid} {
		if _, ok := sys.byPID.Load(id); ok {
			return id, true, nil
		}
	}
	var ends []string
	var all []string
	look := func(id string) {
		if strings.HasSuffix(id, "/"+pid) {
			ends = append(ends, id)
		}
		all = append(all, id)
	}
	living := make(map[string]bool)
	sys.byPID.Range(func(id, _ any) bool {
		living[id.(string)] = true
		look(id.(string))
		return true
	})
	exact := ""
	err = sys.resting(func(id, _, _ string, _ *timestamppb.Timestamp) {
		if living[id] {
			return
		}
		if id == pid || id == root+"/"+pid {
			exact = id
		}
		look(id)
	})
	slices.Sort(ends)
	ends = slices.Compact(ends)
	switch {
	case err != nil:
		return "", false, err
	case exact != "":
		return exact, false, nil
	case len(ends) == 1:
		return ends[0], living[ends[0]], nil
	case len(ends) > 1:
		slices.SortFunc(ends, comparePIDs)
		return "", false, messages.Faultf(messages.CodeNotFound, "several actors are called %s: %s", pid, strings.Join(ends[:min(len(ends), nearPIDs)], ", "))
	}
	near := nearBook{name: pid}
	for _, id := range all {
		near.add(id)
	}
	return "", false, messages.Faultf(messages.CodeNotFound, "no actor %s%s", pid, near.proposal())
}

// nearBook keeps the PIDs that are most like one that is not there, by their last parts.
type nearBook struct {
	name string
	best []nearPID
}

type nearPID struct {
	id       string
	distance int
}

func (b *nearBook) add(id string) {
	// A path with as many parts as the one that was given, and a name with as many letters or so: else it is no slip.
	tail := id
	for range strings.Count(id, "/") - strings.Count(b.name, "/") {
		_, tail, _ = strings.Cut(tail, "/")
	}
	if len(b.best) == nearPIDs && abs(len(tail)-len(b.name)) >= b.best[nearPIDs-1].distance {
		return
	}
	d := nearPID{id, distance(b.name, tail)}
	i, _ := slices.BinarySearchFunc(b.best, d, func(a, b nearPID) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return comparePIDs(a.id, b.id)
	})
	if i >= nearPIDs {
		return
	}
	if slices.ContainsFunc(b.best, func(n nearPID) bool { return n.id == id }) {
		return
	}
	b.best = slices.Insert(b.best, i, d)
	b.best = b.best[:min(len(b.best), nearPIDs)]
}

func (b *nearBook) proposal() string {
	var names []string
	for _, n := range b.best {
		names = append(names, n.id)
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return ": the nearest is " + names[0]
	default:
		return ": the nearest are " + strings.Join(names, ", ")
	}
}

func abs(n int) int { return max(n, -n) }
