package messages

import (
	"slices"
	"strings"
)

// Label is one key=value pair of a worker or of a placement.
type Label struct {
	Key   string
	Value string
}

// Labels is a set of labels in key order, each key once. Records and frames keep lists instead of maps: a map field
// costs nineteen allocations to decode where a list costs one.
type Labels []Label

// LabelsOf returns the labels of m in key order.
func LabelsOf(m map[string]string) Labels {
	if len(m) == 0 {
		return nil
	}
	labels := make(Labels, 0, len(m))
	for k, v := range m {
		labels = append(labels, Label{k, v})
	}
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return labels
}

// Get returns the value of key, and whether the set has it.
func (l Labels) Get(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(l, key, func(e Label, k string) int { return strings.Compare(e.Key, k) })
	if !ok {
		return "", false
	}
	return l[i].Value, true
}

// Map returns the labels as a map that is never nil.
func (l Labels) Map() map[string]string {
	m := make(map[string]string, len(l))
	for _, e := range l {
		m[e.Key] = e.Value
	}
	return m
}

// String is the comma-joined k=v form that requirement sentences use.
func (l Labels) String() string {
	var b strings.Builder
	for i, e := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e.Key)
		b.WriteByte('=')
		b.WriteString(e.Value)
	}
	return b.String()
}

// Placement is what a step requires of a worker. The zero value requires nothing: the step is unplaced.
// Placements are values: they are shared between the instances of a template and never changed in place.
type Placement struct {
	// Target is a worker's name or instance uuid, or empty.
	Target string
	// Labels must all equal the worker's; what else the worker has does not matter.
	Labels Labels
	// Platform is os or os/arch in Go's names, or empty.
	Platform string
}

// IsZero tells whether the placement requires nothing.
func (p Placement) IsZero() bool {
	return p.Target == "" && len(p.Labels) == 0 && p.Platform == ""
}

// Key identifies the placement: two placements are one demand class exactly if their keys are equal.
func (p Placement) Key() string {
	var b strings.Builder
	put := func(s string) {
		b.WriteString(strings.ReplaceAll(s, "\x00", "\x00\x00"))
		b.WriteString("\x00\x01")
	}
	put(p.Target)
	put(p.Platform)
	for _, l := range p.Labels {
		put(l.Key)
		put(l.Value)
	}
	return b.String()
}

// Requirement is the sentence that describes the placement to a person, such as
// "labels gpu=true,region=eu and platform 'linux'". An unplaced step requires "any worker".
func (p Placement) Requirement() string {
	var parts []string
	if p.Target != "" {
		parts = append(parts, "target '"+p.Target+"'")
	}
	if len(p.Labels) > 0 {
		parts = append(parts, "labels "+p.Labels.String())
	}
	if p.Platform != "" {
		parts = append(parts, "platform '"+p.Platform+"'")
	}
	if len(parts) == 0 {
		return "any worker"
	}
	return strings.Join(parts, " and ")
}

// Candidate is what a placement is matched against: a worker as its enrollment described it.
type Candidate struct {
	Name     string
	Instance string
	Labels   Labels
	Platform string // Go's GOOS
	Arch     string // Go's GOARCH
}

// Match is the verdict of one placement on one candidate. Where it does not fit, Lacks says what is missing, one
// phrase for each unmet constraint, in the order target, labels, platform.
type Match struct {
	OK    bool
	Lacks []string
}

// Match tells whether a worker fits, and if not why. Every constraint holds together: a target does not switch the
// others off. This one test serves the first dispatch, every later one and every retry.
func (p Placement) Match(c Candidate) Match {
	var lacks []string
	if p.Target != "" && p.Target != c.Name && p.Target != c.Instance {
		lacks = append(lacks, "is not '"+p.Target+"'")
	}
	for _, want := range p.Labels {
		have, ok := c.Labels.Get(want.Key)
		switch {
		case !ok:
			lacks = append(lacks, "lacks label "+want.Key+"="+want.Value)
		case have != want.Value:
			lacks = append(lacks, "has "+want.Key+"="+have+" instead of "+want.Key+"="+want.Value)
		}
	}
	if os, arch, hasArch := strings.Cut(p.Platform, "/"); p.Platform != "" {
		if os != c.Platform || (hasArch && arch != "" && arch != c.Arch) {
			lacks = append(lacks, "is "+c.Platform+"/"+c.Arch+" instead of "+p.Platform)
		}
	}
	return Match{OK: len(lacks) == 0, Lacks: lacks}
}
