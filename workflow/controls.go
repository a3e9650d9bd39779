package workflow

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds of controls.
const (
	maxRetries     = 100
	maxConcurrency = 1_000_000
	maxGrace       = 3600
	maxPriority    = 24 * 60 * 60
	maxWeight      = 1000
	maxPreferred   = 50
)

// control reads a key that only steps have, and tells whether it is one.
func (d *decoder) control(e *entry, s *Step, x *Exprs) bool {
	controls := func() *Controls {
		if s.Controls == nil {
			s.Controls = &Controls{}
		}
		return s.Controls
	}
	switch e.key {
	case "timeout":
		s.Timeout, _ = d.seconds(e)
	case "allowFailure":
		if s.AllowFailure, _ = d.boolean(e); s.AllowFailure {
			d.uses(featureAllow, e.at)
		}
	case "guard":
		d.uses(featureGuard, e.at)
		x.Guard = d.expression(e.value, "'guard'", wantBool)
	case "retry":
		d.uses(featureRetry, e.at)
		controls().Retry = d.retry(e)
	case "stop":
		d.uses(featureStop, e.at)
		controls().Stop = d.stop(e)
	case "workingDir":
		d.uses(featureWorkingDir, e.at)
		controls().WorkingDir, x.WorkingDir = d.workingDir(e)
	case "shell":
		d.uses(featureShell, e.at)
		controls().Shell, _ = d.word(e.value, "'shell'", shells()...)
	default:
		return false
	}
	return true
}

func shells() []string { return []string{"bash", "sh", "pwsh", "cmd", "python"} }

func (d *decoder) workingDir(e *entry) (string, *Template) {
	s, ok := d.text(e.value, "'workingDir'")
	switch {
	case !ok:
	case strings.TrimSpace(s) == "" || strings.IndexByte(s, 0) >= 0 || len(s) > 4096:
		d.found.add(e.value.at, "'workingDir' is a path")
	default:
		return s, d.template(e.value, "'workingDir'")
	}
	return "", nil
}

// boolean reads true or false.
func (d *decoder) boolean(e *entry) (value, ok bool) {
	n := e.value
	if n.kind == scalar && n.plain {
		switch n.text {
		case "true", "True", "TRUE":
			return true, true
		case "false", "False", "FALSE":
			return false, true
		}
	}
	if n.kind != broken {
		d.found.add(n.at, "%s is true or false, not %s", quote(e.key), describe(n))
	}
	return false, false
}

// integer reads a whole number between two bounds.
func (d *decoder) integer(n *node, what string, least, most int) (int, bool) {
	if n.kind == broken {
		return 0, false
	}
	if f, ok := number(n); ok && f == math.Trunc(f) && f >= float64(least) && f <= float64(most) {
		return int(f), true
	}
	d.found.add(n.at, "%s is a whole number from %d to %d, not %s", what, least, most, describe(n))
	return 0, false
}

// retry reads the policy, or only how often.
func (d *decoder) retry(e *entry) *Retry {
	r := &Retry{Max: 1, Backoff: defaultBackoff(), Failure: true, Lost: true, Timeout: true}
	if e.value.kind == scalar && !e.value.null() {
		r.Max, _ = d.integer(e.value, "'retry'", 0, maxRetries)
		return r
	}
	if !d.is(e.value, mapping, "'retry'") {
		return r
	}
	named := false
	for i := range e.value.entries {
		switch k := &e.value.entries[i]; k.key {
		case "max":
			named = true
			r.Max, _ = d.integer(k.value, "'max'", 0, maxRetries)
		case "backoff":
			r.Backoff = d.backoff(k)
		case "on":
			d.retryOn(k.value, r)
		default:
			d.unknown(k, inRetry)
		}
	}
	if !named {
		d.found.add(e.value.at, "'retry' needs 'max': how often the step is tried again")
	}
	return r
}

func defaultBackoff() Backoff {
	return Backoff{Initial: time.Second, Factor: 2, Max: 5 * time.Minute}
}

func (d *decoder) backoff(e *entry) Backoff {
	b := defaultBackoff()
	if e.value.kind != mapping {
		if t, ok := d.seconds(e); ok {
			b.Initial, b.Max = t, max(b.Max, t)
		}
		return b
	}
	limited := false
	for i := range e.value.entries {
		switch k := &e.value.entries[i]; k.key {
		case "initial":
			if t, ok := d.seconds(k); ok {
				b.Initial = t
			}
		case "max":
			if t, ok := d.seconds(k); ok {
				b.Max, limited = t, true
			}
		case "factor":
			f, ok := number(k.value)
			if !ok || f < 1 || f > 100 {
				d.found.add(k.value.at, "'factor' is a number from 1 to 100, not %s", describe(k.value))
				continue
			}
			b.Factor = f
		default:
			d.unknown(k, inBackoff)
		}
	}
	switch {
	case !limited:
		b.Max = max(b.Max, b.Initial)
	case b.Max < b.Initial:
		d.found.add(e.value.at, "'max' of a backoff is not below 'initial'")
	}
	return b
}

func (d *decoder) retryOn(n *node, r *Retry) {
	r.Failure, r.Lost, r.Timeout = false, false, false
	items := n.items
	if n.kind != list {
		items = []*node{n}
	}
	if n.kind == list && len(items) == 0 {
		d.found.add(n.at, "'on' is empty: nothing would be tried again")
	}
	for _, item := range items {
		if _, ok := number(item); ok {
			if c, ok := d.integer(item, "an exit code", 1, 255); ok {
				r.ExitCodes = append(r.ExitCodes, c)
			}
			continue
		}
		switch word, _ := d.word(item, "what is tried again", "failure", "lost", "timeout"); word {
		case "failure":
			r.Failure = true
		case "lost":
			r.Lost = true
		case "timeout":
			r.Timeout = true
		}
	}
	slices.Sort(r.ExitCodes)
	r.ExitCodes = slices.Compact(r.ExitCodes)
}

func (d *decoder) stop(e *entry) *Stop {
	s := &Stop{Signal: "TERM", Grace: 10 * time.Second}
	if !d.is(e.value, mapping, "'stop'") {
		return s
	}
	for i := range e.value.entries {
		switch k := &e.value.entries[i]; k.key {
		case "signal":
			if k.value.kind == scalar {
				k.value.text = strings.TrimPrefix(k.value.text, "SIG")
			}
			s.Signal, _ = d.word(k.value, "'signal'", signals()...)
		case "grace":
			t, ok := d.seconds(k)
			if ok && t > maxGrace*time.Second {
				d.found.add(k.value.at, "'grace' is at most %d seconds", maxGrace)
			}
			s.Grace = t
		default:
			d.unknown(k, inStop)
		}
	}
	return s
}

func signals() []string { return []string{"TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "KILL"} }

// concurrency reads how many run at once, and the group.
func (d *decoder) concurrency(e *entry, s *settings, l level) {
	if e.value.kind != mapping {
		d.uses(featureConcurrency, e.at)
		s.concurrency, _ = d.integer(e.value, "'concurrency'", 0, maxConcurrency)
		return
	}
	var group, limit *entry
	for i := range e.value.entries {
		switch k := &e.value.entries[i]; k.key {
		case "max":
			d.uses(featureConcurrency, k.at)
			s.concurrency, _ = d.integer(k.value, "'max'", 0, maxConcurrency)
		case "group":
			group = k
		case "limit":
			limit = k
		default:
			d.unknown(k, inConcurrency)
		}
	}
	if limit != nil && group == nil {
		d.found.add(limit.at, "'limit' is that of a 'group': how many run at once in a run is 'max'")
	}
	if group == nil {
		return
	}
	d.uses(featureGroups, group.at)
	s.group = &Group{Limit: 1}
	if limit != nil {
		s.group.Limit, _ = d.integer(limit.value, "'limit'", 1, maxConcurrency)
	}
	if s.group.Name = d.nameOrTemplate(group); s.group.Name != "" {
		s.group.expr = d.template(group.value, "the group of "+l.String())
	}
}

// prefer reads labels with weights: a list, or a map of labels that count 1.
func (d *decoder) prefer(e *entry) []Preferred {
	var all []Preferred
	add := func(labels *entry, weight int) {
		pairs, _ := d.pairs(labels, d.label)
		for _, p := range pairs {
			all = append(all, Preferred{p.Key, p.Value, weight})
		}
	}
	if e.value.kind == mapping {
		add(e, 1)
	} else if d.is(e.value, list, "'prefer'") {
		for _, item := range e.value.items {
			if !d.is(item, mapping, "a preference") {
				continue
			}
			weight := 1
			var labels *entry
			for i := range item.entries {
				switch k := &item.entries[i]; k.key {
				case "labels":
					labels = k
				case "weight":
					weight, _ = d.integer(k.value, "'weight'", 1, maxWeight)
				default:
					d.unknown(k, inPreferred)
				}
			}
			if labels == nil {
				d.found.add(item.at, "a preference needs 'labels'")
			} else {
				add(labels, weight)
			}
		}
	}
	if len(all) > maxPreferred {
		d.found.add(e.value.at, "'prefer' has %d labels: at most %d", len(all), maxPreferred)
	}
	return all
}

// priority is seconds, also below zero.
func (d *decoder) priority(e *entry) *time.Duration {
	f, ok := number(e.value)
	if !ok || math.Abs(f) > maxPriority {
		if e.value.kind != broken {
			d.found.add(e.value.at, "'priority' is a number of seconds from -%d to %d, not %s", maxPriority, maxPriority, describe(e.value))
		}
		return nil
	}
	t := time.Duration(math.Round(f * float64(time.Second)))
	return &t
}
