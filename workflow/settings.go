package workflow

import (
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// maxTarget is the longest name of a worker: that of a token, a dash and eight digits.
const maxTarget = 64 + 9

// settings are the keys that workflow, job and step have in common, as one of them gives them. What it does not give
// is nil or empty and inherited.
type settings struct {
	target, platform *string
	targetExpr       *Template
	labels           *texts
	queueTimeout     *time.Duration
	queueTimeoutAt   int // where the key stands, or -1
	lost             messages.OnWorkerLost
	env              texts
	affinity         *bool
	prefer           *[]Preferred
	spread           *string
	priority         *time.Duration
	// These are not inherited: they belong to what gives them.
	concurrency int
	group       *Group
}

// texts are values in the order of their keys, with the expressions in them: nil if there is none, else one for each.
type texts struct {
	values messages.Labels
	exprs  []*Template
}

// inherited is what the steps of a scope get.
type inherited struct {
	placement    messages.Placement
	labelExprs   []*Template
	targetExpr   *Template
	queueTimeout *time.Duration
	lost         messages.OnWorkerLost
	env          texts
	preference   *Preference
}

// setting reads a key into s, and tells whether it is one of these.
func (d *decoder) setting(e *entry, s *settings, l level) bool {
	switch e.key {
	case "env":
		s.env = d.texts(e, d.variable, "a variable of "+l.String(), wantVariable)
	case "labels":
		if d.cleared(e, "{}") {
			s.labels = new(texts)
		} else if labels := d.texts(e, d.label, "a label of "+l.String(), wantAny); e.value.kind == mapping {
			s.labels = &labels
		}
	case "target":
		s.target = d.placementText(e, isTarget, "a worker's name or instance uuid: lower-case letters, digits and . _ -")
		s.targetExpr = d.template(e.value, "'target'")
		if s.target != nil && *s.target == "loopback" {
			d.warned.add(e.value.at, "the worker 'loopback' takes only steps without a placement")
		}
	case "platform":
		s.platform = d.placementText(e, isPlatform, "os or os/arch in Go's names, such as linux or linux/amd64")
		if s.platform != nil {
			d.warnPlatform(e, *s.platform)
		}
	case "queueTimeout":
		s.queueTimeoutAt = e.at
		if t, ok := d.seconds(e); ok {
			s.queueTimeout = &t
		}
	case "onWorkerLost":
		lost, _ := d.word(e.value, "'onWorkerLost'", string(messages.LostRequeue), string(messages.LostFail))
		s.lost = messages.OnWorkerLost(lost)
	default:
		return d.wish(e, s, l)
	}
	return true
}

// wish reads a key that is about the choice among workers and the order in line.
func (d *decoder) wish(e *entry, s *settings, l level) bool {
	switch e.key {
	case "affinity":
		if v, ok := d.boolean(e); ok {
			s.affinity = &v
			if v {
				d.uses(featureAffinity, e.at)
			}
		}
	case "prefer":
		d.uses(featurePrefer, e.at)
		all := d.prefer(e)
		s.prefer = &all
	case "spread":
		d.uses(featureSpread, e.at)
		if text, ok := d.text(e.value, "'spread'"); ok {
			if text != "" && !isLabelKey(text) {
				d.found.add(e.value.at, "'spread' is the key of a label, not %s", quote(text))
			}
			s.spread = &text
		}
	case "priority":
		d.uses(featurePriority, e.at)
		s.priority = d.priority(e)
	case "concurrency":
		d.concurrency(e, s, l)
	default:
		return false
	}
	return true
}

// texts reads a map of texts that may hold expressions.
func (d *decoder) texts(e *entry, check func(e *entry) bool, what string, w want) texts {
	pairs, ok := d.pairs(e, check)
	t := texts{values: pairs}
	if !ok || e.value.kind != mapping {
		return t
	}
	for i := range e.value.entries {
		p := &e.value.entries[i]
		expr := d.templateOf(p.value, what, w)
		if expr == nil {
			continue
		}
		if t.exprs == nil {
			t.exprs = make([]*Template, len(pairs))
		}
		k, _ := slices.BinarySearchFunc(pairs, p.key, func(l messages.Label, key string) int { return strings.Compare(l.Key, key) })
		t.exprs[k] = expr
	}
	return t
}

// cleared tells whether a key of the placement has no value at all. That clears what would be inherited, as an
// explicitly empty value does, but it may as well be a value that somebody forgot or commented out.
func (d *decoder) cleared(e *entry, empty string) bool {
	if !e.value.null() {
		return false
	}
	d.warned.add(e.at, "%s is empty and requires nothing: write %s if that is meant", quote(e.key), empty)
	return true
}

func (d *decoder) placementText(e *entry, valid func(string) bool, what string) *string {
	if d.cleared(e, `""`) {
		return new(string)
	}
	s, ok := d.text(e.value, quote(e.key))
	if !ok {
		return nil
	}
	if s != "" && !valid(s) && !(e.key == "target" && hasExpr(s)) {
		d.found.add(e.value.at, "the %s %s: it must be %s", e.key, quote(s), what)
		return nil
	}
	return &s
}

func isTarget(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c >= 'A' && c <= 'Z') || (!letterOrDigit(c) && (i == 0 || strings.IndexByte("._-", c) < 0)) {
			return false
		}
	}
	return len(s) <= maxTarget
}

func isPlatform(s string) bool {
	os, arch, both := strings.Cut(s, "/")
	return isPlatformWord(os) && (!both || isPlatformWord(arch))
}

func isPlatformWord(s string) bool {
	const longest = 32
	for i := 0; i < len(s); i++ {
		if c := s[i]; !letterOrDigit(c) || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}

// warnPlatform knows the names that other tools give to Go's platforms. It only warns: a worker could be built for a
// platform that this program has not heard of.
func (d *decoder) warnPlatform(e *entry, platform string) {
	os, arch, _ := strings.Cut(platform, "/")
	for _, p := range [][3]string{
		{os, "macos", "darwin"}, {os, "osx", "darwin"}, {os, "mac", "darwin"}, {os, "win", "windows"}, {os, "win32", "windows"},
		{os, "win64", "windows"}, {os, "ubuntu", "linux"}, {os, "debian", "linux"}, {os, "alpine", "linux"},
		{arch, "x64", "amd64"}, {arch, "x86", "386"}, {arch, "i386", "386"}, {arch, "i686", "386"},
		{arch, "aarch64", "arm64"}, {arch, "armv7", "arm"}, {arch, "armhf", "arm"},
	} {
		if p[0] == p[1] {
			d.warned.add(e.value.at, "no worker is '%s': Go calls it '%s'", p[1], p[2])
		}
	}
}

// within lays the settings over what is inherited: what is absent is inherited, what is present replaces, and what is
// explicitly empty clears. Labels replace as a whole; variables name by name.
func (s *settings) within(outer inherited, scope Affinity) inherited {
	if s.target != nil {
		outer.placement.Target, outer.targetExpr = *s.target, s.targetExpr
	}
	if s.platform != nil {
		outer.placement.Platform = *s.platform
	}
	if s.labels != nil {
		outer.placement.Labels, outer.labelExprs = nil, nil
		if len(s.labels.values) > 0 {
			outer.placement.Labels, outer.labelExprs = s.labels.values, s.labels.exprs
		}
	}
	if s.queueTimeout != nil {
		outer.queueTimeout = s.queueTimeout
	}
	if s.lost != "" {
		outer.lost = s.lost
	}
	outer.env = overlay(outer.env, s.env)
	outer.preference = s.prefers(outer.preference, scope)
	return outer
}

// prefers lays wishes over those that are inherited. Steps with the same wishes share them.
func (s *settings) prefers(outer *Preference, scope Affinity) *Preference {
	if s.affinity == nil && s.prefer == nil && s.spread == nil && s.priority == nil {
		return outer
	}
	p := Preference{}
	if outer != nil {
		p = *outer
	}
	if s.affinity != nil {
		p.Affinity = NoAffinity
		if *s.affinity {
			p.Affinity = scope
		}
	}
	if s.prefer != nil {
		p.Prefer = *s.prefer
	}
	if s.spread != nil {
		p.Spread = *s.spread
	}
	if s.priority != nil {
		p.Priority = *s.priority
	}
	if p.Affinity == NoAffinity && len(p.Prefer) == 0 && p.Spread == "" && p.Priority == 0 {
		return nil
	}
	return &p
}

// overlay merges two sets in key order; the inner one wins.
func overlay(outer, inner texts) texts {
	switch {
	case len(inner.values) == 0:
		return outer
	case len(outer.values) == 0:
		return inner
	}
	merged := texts{values: make(messages.Labels, 0, len(outer.values)+len(inner.values))}
	if outer.exprs != nil || inner.exprs != nil {
		merged.exprs = make([]*Template, 0, cap(merged.values))
	}
	for o, i := 0, 0; o < len(outer.values) || i < len(inner.values); {
		c := -1
		switch {
		case o == len(outer.values):
			c = 1
		case i < len(inner.values):
			c = strings.Compare(outer.values[o].Key, inner.values[i].Key)
		}
		from, k := &inner, i
		if c < 0 {
			from, k = &outer, o
		}
		merged.values = append(merged.values, from.values[k])
		if merged.exprs != nil {
			merged.exprs = append(merged.exprs, exprAt(from.exprs, k))
		}
		if c <= 0 {
			o++
		}
		if c >= 0 {
			i++
		}
	}
	return merged
}

// exprAt is the kth of a list that is nil where there is none.
func exprAt(list []*Template, k int) *Template {
	if list == nil {
		return nil
	}
	return list[k]
}

func (i inherited) apply(s *Step, x *Exprs) {
	s.Placement, s.QueueTimeout, s.OnWorkerLost, s.Env, s.Preference = i.placement, i.queueTimeout, i.lost, i.env.values, i.preference
	x.Env, x.Labels, x.Target = i.env.exprs, i.labelExprs, i.targetExpr
}

// warnUnplaced warns of a queueTimeout that no step of its scope can make much of.
func (d *decoder) warnUnplaced(own *settings, steps []Step) {
	if own.queueTimeoutAt < 0 {
		return
	}
	for i := range steps {
		if !steps[i].Placement.IsZero() {
			return
		}
	}
	d.warned.add(own.queueTimeoutAt, "'queueTimeout' without target, labels or platform: a step that any worker can take hardly waits")
}
